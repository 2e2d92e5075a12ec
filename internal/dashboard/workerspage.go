package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

var workerRoutes = routes{"/workers": (*visit).workers, "/workers/{id}": (*visit).worker}

// mostHeld is how many executions the pages of workers show, the list of workers and the page of each.
const mostHeld = 1000

// mostTypesAsked is how many types the API takes for a list of executions.
const mostTypesAsked = 100

// workerLine is a worker as the list shows it.
type workerLine struct {
	Doc  document
	Held []any // open executions
}

// keepsWorker reports whether a list shows a worker: by a text in its id, host or version, and by a type that it serves.
func keepsWorker(q url.Values, w document) bool {
	wanted, typ := strings.ToLower(strings.TrimSpace(q.Get("q"))), q.Get("type")
	return strings.Contains(strings.ToLower(text(w["id"])+" "+text(w["host"])+" "+text(w["version"])), wanted) && (typ == "" || slices.Contains(texts(w["types"]), typ))
}

// workerOrders are the orders of the list of workers beside that by id.
var workerOrders = map[string]func(a, b workerLine) int{
	"-running": func(a, b workerLine) int { return cmp.Compare(integer(b.Doc["running"]), integer(a.Doc["running"])) },
	"heartbeat": func(a, b workerLine) int {
		return strings.Compare(text(a.Doc["heartbeat_at"]), text(b.Doc["heartbeat_at"]))
	},
	"-started": func(a, b workerLine) int {
		return strings.Compare(text(b.Doc["started_at"]), text(a.Doc["started_at"]))
	},
	"version": func(a, b workerLine) int { return strings.Compare(text(a.Doc["version"]), text(b.Doc["version"])) },
}

// heldBy are the executions that the worker of the query holds.
func (v *visit) heldBy() []any {
	id := v.r.URL.Query().Get("of")
	worker := v.try(unlessGone, "/workers"+pathOf(id), nil) // one that pulls has no document
	held := v.held(id, worker)
	if v.err == nil && held["complete"] != true { // the API lists no more, and half a file must not look like a whole one
		v.err = &problem{Status: http.StatusConflict, Title: "The file would lack some", Detail: "the worker holds, or the fleet runs, more than a file can have: " + number(mostHeld) + " executions of a worker at most"}
	}
	return list(held["executions"])
}

func (v *visit) held(id string, worker document) document {
	of := url.Values{"worker": {id}, "limit": {strconv.Itoa(mostHeld)}}
	if types := texts(worker["types"]); len(types) <= mostTypesAsked {
		of["type"] = types
	}
	return v.read("/executions", of)
}

func (v *visit) workers() error {
	q := v.r.URL.Query()
	all := v.every("/workers", "workers", url.Values{})
	alive, slots, running := 0, int64(0), int64(0)
	var lines []workerLine
	for _, w := range all {
		w := object(w)
		if w["alive"] == true {
			alive, slots, running = alive+1, slots+integer(w["concurrency"]), running+integer(w["running"])
		}
		if state := q.Get("state"); keepsWorker(q, w) && (state == "" || (state == "alive") == (w["alive"] == true)) {
			lines = append(lines, workerLine{Doc: w})
		}
	}
	sorted(q, lines, workerOrders)
	lines, next := pageOf(v, lines, func(l workerLine) string { return text(l.Doc["id"]) })
	ids := make([]string, len(lines))
	for i, l := range lines {
		ids[i] = text(l.Doc["id"])
	}
	complete := true
	if len(ids) > 0 {
		of := url.Values{"worker": ids, "limit": {strconv.Itoa(mostHeld)}}
		var types []string
		for _, l := range lines {
			types = append(types, texts(l.Doc["types"])...)
		}
		slices.Sort(types)
		if types = slices.Compact(types); len(types) <= mostTypesAsked {
			of["type"] = types
		}
		held := v.read("/executions", of)
		complete = held["complete"] == true
		for _, h := range list(held["executions"]) {
			l := &lines[slices.Index(ids, text(object(h)["worker_id"]))]
			l.Held = append(l.Held, h)
		}
	}
	return v.render("workers", page{Title: "Workers", Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"lines": lines, "next": next, "all": len(all), "alive": alive, "dead": len(all) - alive, "slots": slots, "running": running,
		"cut": !complete,
	}})
}

func (v *visit) worker() error {
	id := v.r.PathValue("id")
	path := "/workers" + pathOf(id)
	worker := v.try(unlessGone, path, nil) // one that pulls has no document
	held := v.held(id, worker)
	holds := list(held["executions"])
	if worker == nil && len(holds) == 0 && held["complete"] == true {
		return &problem{Status: http.StatusNotFound, Title: "Not found", Detail: "no worker " + id + " was heard of within a day: workers that stop properly leave at once"}
	}
	return v.render("worker", page{Title: id, Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"id": id, "path": path, "may": v.who.May("operator"), "worker": worker, "held": holds, "more": held["complete"] != true,
	}})
}
