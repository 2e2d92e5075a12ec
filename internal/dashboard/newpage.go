package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/model"
)

var newRoutes = routes{
	"/tasks/new": (*visit).newTask, "/periodics/new": (*visit).newRule, "/plans/new": (*visit).newPlan, "/flows/new": (*visit).newFlow,
	"/periodics/{tenant}/{name}/edit": (*visit).editRule,
}

// mayEdit refuses whoever may not send what the page is for.
func (v *visit) mayEdit() error {
	if v.who.May("operator") {
		return nil
	}
	return &problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "your role reads: operators and administrators make and change things"}
}

// ofWhom is the first line of a text to begin with: the tenant of the page that somebody comes from, where it has one.
func (v *visit) ofWhom() string {
	tenant := v.ofTenant(pick(v.r.URL.Query(), "tenant")).Get("tenant")
	if tenant == "" || tenant == model.NoTenant {
		return ""
	}
	return "tenant: " + strconv.Quote(tenant) + "\n"
}

// newTask sends a task: another one, or one that has ended once more, with other arguments.
func (v *visit) newTask() error {
	if err := v.mayEdit(); err != nil {
		return err
	}
	title, text := "Send a task", v.ofWhom()
	if typ := v.r.URL.Query().Get("type"); typ != "" {
		text += "type: " + strconv.Quote(typ) + "\n"
	}
	if id := v.r.URL.Query().Get("again"); id != "" {
		if title = "Send " + id + " again"; strings.Count(id, "/") < 2 {
			return v.nothingHere()
		}
		text, v.err = v.sentAgain(id)
	}
	types := v.servedTypes()
	e := editor{
		Call: "POST /tasks", Then: "/tasks/{id:3}", Label: "Send", Idempotent: true, Text: text,
		Fields: []field{
			{Name: "type", Label: "Type", Help: "which handler runs it", Required: true, Suggested: types},
			{Name: "key", Label: "Key", Help: "at most one task per key; generated if empty"},
			{Name: "args", Label: "Arguments", Help: `JSON; of the type http, such as {"url": "https://example.org"}`, As: "json"},
			{Name: "in", Label: "Delay", Help: "such as 5m or 2h; now if empty"},
		},
		Groups: []fieldGroup{{Title: "More", Folded: true, Fields: []field{
			{Name: "tenant", Label: "Tenant"},
			{Name: "priority", Label: "Priority", Help: "0 to 9; 9 runs first; 5 if empty", As: "number"},
			{Name: "options.timeout", Label: "Timeout of an execution", Help: "such as 90s"},
			{Name: "options.retry.strategy", Label: "Retry", Options: []string{"none", "fixed", "exponential", "sequence"}},
			{Name: "options.retry.interval", Label: "Interval of retries", Help: "such as 30s"},
			{Name: "options.retry.max_errors", Label: "Errors until it fails for good", As: "number"},
			{Name: "options.need_manual", Label: "A person decides when it has failed", As: "bool"},
		}}},
	}
	if title != "Send a task" {
		e.Help = "The task begins a new life under its key: with the arguments and options that are here, and no attempt yet."
	}
	return v.edit(title, "Tasks", e)
}

// sentAgain is a task that has ended, or waits for its retry, as a send that begins a new life under its key.
func (v *visit) sentAgain(id string) (string, error) {
	task, err := v.get("/tasks"+idPath(id, 3), nil)
	if err != nil {
		return "", err
	}
	send := document{"existing": []string{"restart-failed"}}
	if status := model.Status(text(task["status"])); status.Succeeded() || status == model.StatusManuallyProcessed {
		send["existing"] = []string{"restart-succeeded"}
	}
	for _, name := range []string{"type", "key", "tenant", "creator", "category", "priority", "args", "options"} {
		if value, is := task[name]; is {
			send[name] = value
		}
	}
	delete(object(send["options"]), "claim_by") // of its type
	delete(object(send["options"]), "expires_at")
	return formText[form.Task](send, "a task")
}

// formText is a document as YAML, in the order and the units in which people write one.
func formText[T any](doc document, thing string) (string, error) {
	out, err := json.Marshal(doc)
	if err != nil {
		return "", err
	}
	read, err := form.ReadJSON[T]("", 1, out, thing)
	if err != nil {
		return "", err
	}
	return form.YAML(read.Form)
}

// servedTypes are the types that workers serve, without those of mscheduler itself. They belong to no tenant.
func (v *visit) servedTypes() (types []string) {
	if v.who.Tenants != nil {
		return nil
	}
	for _, w := range v.every("/workers", "workers", url.Values{"state": {"alive"}}) {
		types = append(types, texts(object(w)["types"])...)
	}
	slices.Sort(types)
	return slices.DeleteFunc(slices.Compact(types), func(typ string) bool { return ours(typ) > 0 })
}

// dryRun says what storing a rule would do, with a forecast of a week.
const dryRun = "POST /periodics/preview?forecast_days=7"

var ruleFields = []field{
	{Name: "cron", Label: "Cron", Help: "minute, hour, day of month, month, day of week: 0 3 * * *", Required: true},
	{Name: "timezone", Label: "Time zone", Help: "such as Europe/Berlin"},
	{Name: "type", Label: "Type of its tasks"},
	{Name: "args", Label: "Arguments of its tasks", Help: "JSON", As: "json"},
	{Name: "description", Label: "Description"},
	{Name: "enabled", Label: "It fires", As: "bool"},
}

func (v *visit) newRule() error {
	if err := v.mayEdit(); err != nil {
		return err
	}
	return v.edit("Make a periodic rule", "Periodic", editor{
		Call: "POST /periodics", Then: "/periodics/{living:2}", Label: "Make the rule", Preview: dryRun, Idempotent: true, Text: v.ofWhom() + "cron: 0 3 * * *\ntimezone: UTC\nenabled: true\n",
		Fields: append([]field{{Name: "name", Label: "Name", Required: true}, {Name: "tenant", Label: "Tenant"}}, ruleFields...),
	})
}

func (v *visit) editRule() error {
	if err := v.mayEdit(); err != nil {
		return err
	}
	name := v.r.PathValue("name")
	path := "/periodics" + pathOf(v.r.PathValue("tenant"), name)
	out, err := v.ask(path+"/definition", nil)
	if err != nil {
		return err
	}
	text, err := form.YAMLOfJSON(out.body.Bytes())
	if err != nil {
		return err
	}
	return v.edit("Edit "+name, "Periodic", editor{
		Call: "PUT " + path, Match: out.header.Get("ETag"), Then: path, Label: "Save", Preview: dryRun, Text: text, Fields: ruleFields,
		Help: "*** stands for a secret that stays as it is.",
	})
}

// firstFlow is what the page of a new flow begins with.
const firstFlow = `args: {order: {id: 7}}
nodes:
  - id: pay
    type: payment
    args: {order: {$arg: order.id}}
  - id: stock
    type: stock
    after: [pay]
  - id: approve
    after: [pay]
    ask: Is the amount correct?
  - id: done
    type: mail
    after: [stock, approve]
    args: {receipt: {$output: pay.receipt}}
`

// newFlow checks and draws a definition for everybody; operators start it.
func (v *visit) newFlow() error {
	label := ""
	if v.who.May("operator") {
		label = "Start"
	}
	return v.edit("New flow", "Flows", editor{
		Call: "POST /flows", Then: "/flows/{id:2}", Label: label, Preview: "POST /flows/validate?picture=svg", Draws: true, Idempotent: true, Text: v.ofWhom() + firstFlow,
		Fields: []field{
			{Name: "key", Label: "Key", Help: "at most one flow per key; generated if empty"},
			{Name: "args", Label: "Arguments", Help: "JSON; nodes refer to them by $arg", As: "json"},
			{Name: "tenant", Label: "Tenant"},
		},
	})
}

// newPlan publishes a plan. The definition of a plan never changes, so in place of an edit it publishes another one like it.
func (v *visit) newPlan() error {
	if err := v.mayEdit(); err != nil {
		return err
	}
	text := v.ofWhom()
	if like := v.r.URL.Query().Get("like"); like != "" {
		text, v.err = v.planLike(like)
	}
	return v.edit("Publish a plan", "Plans", editor{
		Call: "POST /plans", Then: "/plans/{id:2}", Label: "Publish", Preview: "POST /plans/preview", Idempotent: true, Text: text,
		Fields: []field{
			{Name: "plan_id", Label: "Plan id", Help: "generated if empty"},
			{Name: "station", Label: "Station", Help: "the type of the tasks of its steps", Required: true},
			{Name: "plan_type", Label: "Steps run", Options: []string{"none", "time", "second", "minute", "hour", "day", "week", "month"}},
			{Name: "plan_value", Label: "Interval or day", Help: "week: 0 (Sunday) to 6; month: 1 to 31, or 0 for the last day", As: "number"},
			{Name: "plan_repet", Label: "Number of steps", Help: "-1 for no end", As: "number"},
			{Name: "plan_time", Label: "Time", Help: "such as 2026-12-01 02:30"},
			{Name: "timezone", Label: "Time zone", Help: "such as Europe/Berlin; UTC if empty"},
			{Name: "messages", Label: "Messages", Help: "JSON: a list of 1 to 1000 arguments of each step", As: "json"},
		},
	})
}

// planLike is the definition of a plan without its id.
func (v *visit) planLike(id string) (string, error) {
	if strings.Count(id, "/") < 1 {
		return "", v.nothingHere()
	}
	plan, err := v.get("/plans"+idPath(id, 2), nil)
	if err != nil {
		return "", err
	}
	definition := document{}
	for _, name := range []string{
		"tenant", "request_id", "station", "caller", "description", "plan_type", "plan_value", "plan_repet", "no_keep", "plan_time", "timezone", "messages", "plan_exec_timeout_ms", "priority", "options", "callback",
	} {
		if value, is := plan[name]; is {
			definition[name] = value
		}
	}
	return formText[form.Plan](definition, "a plan")
}
