package dashboard

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

var taskRoutes = routes{"/tasks": (*visit).tasks, "/tasks/{tenant}/{type}/{key...}": (*visit).task}

// bulkFilters are the names of a filter of tasks that a bulk job has, too.
var bulkFilters = []string{"tenant", "type", "key", "status", "category", "creator", "worker_id", "error", "arg", "created_after", "created_before"}

func (v *visit) tasks() error {
	q := v.r.URL.Query()
	doc := v.rows("tasks")
	chosen := pick(q, bulkFilters...)
	all := len(chosen) == 0
	filter := document{}
	for name, values := range v.ofTenant(chosen) { // a job goes over what the list shows
		if filter[name] = values[0]; name == "status" || name == "arg" {
			filter[name] = values
		}
	}
	args := q["arg"]
	if len(args) == 0 {
		args = []string{""}
	}
	live := v.ofTenant(pick(q, "tenant", "type"))
	live.Set("of", "tasks")
	looks := "The server ends a page when it has looked at 10,000 tasks or read 8 MiB. The next page continues from there."
	if q.Get("key") != "" && (q.Get("tenant") == "" || q.Get("type") == "") {
		looks = "The server ends a page when it has looked at 10,000 tasks, or at 100 pairs of a tenant and a type, or read 8 MiB. The next page continues from there."
	}
	return v.render("tasks", page{Title: "Tasks", Nav: "Tasks", Live: live, Poll: 15, Data: document{
		"tasks": list(doc["tasks"]), "next": doc["next"], "cut": text(doc["next"]) != "" && len(list(doc["tasks"])) < perPage, "looks": looks, "unreadable": list(doc["unreadable"]), "statuses": lifecycle.Statuses, "status": q["status"], "args": args, "filter": filter, "all": all,
	}})
}

func (v *visit) task() error {
	id := []string{v.r.PathValue("tenant"), v.r.PathValue("type"), v.r.PathValue("key")}
	path := "/tasks" + pathOf(id...)
	generation := pick(v.r.URL.Query(), "generation")
	task := v.read(path, generation)
	why := document(nil)
	if len(generation) == 0 { // only the newest life goes on
		why = v.try(unlessGone, path+"/explain", nil)
	}
	lives := v.read(path+"/lives", url.Values{"limit": {strconv.Itoa(perPage)}, "page_token": v.r.URL.Query()["page_token"]})
	delivery := v.deliveryOf(task)
	can := actionsOf(task, v.d.clock.Now())
	made := madeBy(task)
	remarked := slices.DeleteFunc([]string{"cancel", "resolve"}, func(verb string) bool { return !can[verb] })
	return v.render("task", page{Title: strings.Join(id, "/"), Nav: "Tasks", Poll: 5, // its reasons depend on workers, pauses and time, too
		Live: url.Values{"tenant": id[:1], "type": id[1:2], "key": id[2:]},
		Data: document{"task": task, "path": path, "why": why, "lives": list(lives["tasks"]), "moreLives": lives["next"], "past": len(generation) > 0, "made": made, "trace": v.traceOf(task), "delivery": delivery, "timeline": timelineOf(task, v.d.clock.Now()), "can": can, "again": can["again"] && made == nil && ours(id[1]) == 0, "remarked": remarked}})
}

// executions are those of the life of a task that the query names; without a generation, of the newest.
func (v *visit) executions() []any {
	q := v.r.URL.Query()
	return list(v.read("/tasks"+idPath(q.Get("of"), 3), pick(q, "generation"))["worker_states"])
}

// deliveryOf is the task that delivers the callback of a life, with its attempts; nil = there is none.
func (v *visit) deliveryOf(task document) document {
	status, generation := model.Status(text(task["status"])), task["generation"]
	if !status.Ended() && status != model.StatusPending || text(task["type"]) == input.CallbackType {
		return nil
	}
	life, err := strconv.ParseInt(text(generation), 10, 64)
	if err != nil { // the API would have to break its description
		return nil
	}
	return v.try(unlessRefused, "/tasks"+pathOf(tenantOf(task), input.CallbackType, lifecycle.DeliveryKey(text(task["id"]), life)), nil)
}

// origin is what made a task.
type origin struct{ Words, Name, Path string }

// madeBy is what made a task, with its page; nil = somebody has sent it.
func madeBy(task document) *origin {
	o := object(task["origin"])
	id := text(o["id"])
	switch text(o["kind"]) {
	case lifecycle.OutcomePeriodic:
		tick := object(o["tick"])
		return &origin{"the tick " + text(tick["nominal"]) + " of the rule", text(tick["rule"]), "/runs" + pathOf(tenantOf(task), text(tick["run"]))}
	case lifecycle.OutcomePlan:
		return &origin{"step " + number(o["step"]) + " of the plan", id, "/plans" + idPath(id, 2)}
	case lifecycle.OutcomeDelivery:
		return &origin{"a callback of the task", id, "/tasks" + idPath(id, 3)}
	case lifecycle.OutcomeFlow:
		node := text(o["node"])
		of := &origin{"the node " + node + " of the flow", id, "/flows" + idPath(id, 2)}
		if strings.HasPrefix(text(task["key"]), graph.KindStream+":") {
			of.Words, of.Path = "the node "+node+" of the stream", "/streams"+idPath(id, 2)
		}
		of.Path += "?" + url.Values{"node": {node}}.Encode()
		return of
	}
	return nil
}

// trace is the trace of the span that sent a task. URL is where people see it; "" = nobody has said.
type trace struct{ ID, URL string }

// traceOf is the trace of a task; nil = it has none.
func (v *visit) traceOf(task document) *trace {
	parts := strings.Split(text(object(task["trace"])["traceparent"]), "-") // version, trace, span and flags
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return nil
	}
	return &trace{parts[1], strings.ReplaceAll(v.d.config.TraceURL, input.TraceID, parts[1])}
}

// actionsOf are the actions that a task allows: those that change it, by the rules that decide them.
func actionsOf(task document, now time.Time) map[string]bool {
	t := &model.Task{Status: model.Status(text(task["status"]))}
	t.CancelRequestedAt, _ = instant(task["cancel_requested_at"])
	for _, w := range list(task["worker_states"]) {
		at, _ := instant(object(w)["retry_at"])
		t.WorkerStates = append(t.WorkerStates, model.WorkerState{RetryAt: at})
	}
	eff, can := lifecycle.ResolveOptions(), map[string]bool{"redeliver": t.Status.Ended(), "again": t.Status.Ended() || t.Status == model.StatusError}
	for name, command := range map[string]func() (*model.Task, error){
		"release": func() (*model.Task, error) { return lifecycle.Release(t, eff, now) },
		"cancel":  func() (*model.Task, error) { return lifecycle.Cancel(t, "", eff, now) },
		"update":  func() (*model.Task, error) { return lifecycle.Update(t, lifecycle.Patch{}, model.Options{}, now) },
		"resolve": func() (*model.Task, error) { return lifecycle.Resolve(t, "", eff, now) },
		"retry":   func() (*model.Task, error) { return lifecycle.RetryNow(t, "", eff, now) },
	} {
		changed, err := command()
		can[name] = err == nil && changed != t
	}
	switch typ := text(task["type"]); { // as the producer refuses them
	case typ == input.NodeType:
		can["retry"], can["release"], can["update"] = false, false, false
	case input.OwnType(typ):
		can["update"] = false
	}
	return can
}
