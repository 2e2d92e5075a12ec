package dashboard

import (
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

func (v *visit) workers() error {
	q := v.r.URL.Query()
	all, err := v.every("/workers", "workers", url.Values{})
	if err != nil {
		return err
	}
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
			lines = append(lines, workerLine{Doc: w})
		}
	}
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
		held, err := v.get("/executions", of)
		if err != nil {
			return err
		}
		complete = held["complete"] == true
		for _, h := range list(held["executions"]) {
			l := &lines[slices.Index(ids, text(object(h)["worker_id"]))]
			l.Held = append(l.Held, h)
		}
	}
	v.render("workers", page{Title: "Workers", Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"lines": lines, "next": next, "all": len(all), "alive": alive, "dead": len(all) - alive, "slots": slots, "running": running,
		"cut": !complete,
	}})
	return nil
}

func (v *visit) worker() error {
	id := v.r.PathValue("id")
	path := "/workers" + pathOf(id)
	worker, err := v.get(path, nil)
	if err != nil && problemOf(err).Status != http.StatusNotFound { // one that pulls has no document
		return err
	}
	of := url.Values{"worker": {id}, "limit": {strconv.Itoa(mostHeld)}}
	if types := texts(worker["types"]); len(types) <= mostTypesAsked {
		of["type"] = types
	}
	held, err := v.get("/executions", of)
	if err != nil {
		return err
	}
	holds := list(held["executions"])
	if worker == nil && len(holds) == 0 && held["complete"] == true {
		return &problem{Status: http.StatusNotFound, Title: "Not found", Detail: "no worker " + id + " was heard of within a day: workers that stop properly leave at once"}
	}
	v.render("worker", page{Title: id, Nav: "Workers", Live: url.Values{"of": {"workers"}}, Poll: 5, Data: document{
		"id": id, "path": path, "may": v.who.May("operator"), "worker": worker, "held": holds, "more": held["complete"] != true,
	}})
	return nil
}
