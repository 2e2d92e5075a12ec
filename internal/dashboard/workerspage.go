package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

var workerRoutes = routes{"/workers": (*visit).workers, "/workers/{id}": (*visit).worker}

// mostHeld is how many executions the list of workers looks at; the page of a worker has all of its own.
const mostHeld = 200

// held is an open execution with its task.
type held struct {
	Task  string
	Type  string
	State document // of the execution
}

// workerLine is a worker as the list shows it.
type workerLine struct {
	Doc  document
	Held []held
}

func (v *visit) workers() error {
	q := v.r.URL.Query()
	all, err := v.every("/workers", "workers", url.Values{})
	if err != nil {
		return err
	}
	tasks, err := v.get("/tasks", url.Values{"status": {"Executing"}, "limit": {strconv.Itoa(mostHeld)}})
	if err != nil {
		return err
	}
	by := heldBy(list(tasks["tasks"]))
	alive, slots, running := 0, int64(0), int64(0)
	wanted, typ, state := strings.ToLower(strings.TrimSpace(q.Get("q"))), q.Get("type"), q.Get("state")
	var lines []workerLine
	for _, w := range all {
		w := object(w)
		if w["alive"] == true {
			alive, slots, running = alive+1, slots+integer(w["concurrency"]), running+integer(w["running"])
		}
		matches := strings.Contains(strings.ToLower(text(w["id"])+" "+text(w["host"])+" "+text(w["version"])), wanted) &&
			(typ == "" || slices.Contains(texts(w["types"]), typ)) && (state == "" || (state == "alive") == (w["alive"] == true))
		if matches {
			lines = append(lines, workerLine{w, by[text(w["id"])]})
		}
	}
	lines, next := pageOf(v, lines, func(l workerLine) string { return text(l.Doc["id"]) })
	v.render("workers", page{Title: "Workers", Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"lines": lines, "next": next, "all": len(all), "alive": alive, "dead": len(all) - alive, "slots": slots, "running": running,
		"cut": text(tasks["next"]) != "", "mostHeld": mostHeld,
	}})
	return nil
}

// heldBy are the open executions of tasks by their workers.
func heldBy(tasks []any) map[string][]held {
	out := map[string][]held{}
	for _, t := range tasks {
		t := object(t)
		for _, s := range list(t["worker_states"]) {
			s := object(s)
			if s["success_time"] == nil && s["fail_time"] == nil {
				id := text(s["worker_id"])
				out[id] = append(out[id], held{text(t["id"]), text(t["type"]), s})
			}
		}
	}
	return out
}

func (v *visit) worker() error {
	id := v.r.PathValue("id")
	path := "/workers" + pathOf(id)
	worker, err := v.get(path, nil)
	if err != nil && problemOf(err).Status != http.StatusNotFound { // one that pulls has no document
		return err
	}
	tasks, err := v.get("/tasks", url.Values{"worker_id": {id}, "status": {"Executing"}, "limit": {strconv.Itoa(mostHeld)}})
	if err != nil {
		return err
	}
	holds := heldBy(list(tasks["tasks"]))[id]
	if worker == nil && len(holds) == 0 {
		return &problem{Status: http.StatusNotFound, Title: "Not found", Detail: "no worker " + id + " was heard of within a day: workers that stop properly leave at once"}
	}
	v.render("worker", page{Title: id, Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"id": id, "path": path, "may": v.who.May("operator"), "worker": worker, "held": holds, "more": text(tasks["next"]) != "",
	}})
	return nil
}
