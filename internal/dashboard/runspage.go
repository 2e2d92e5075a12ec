package dashboard

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// choice is an entry of a filter.
type choice struct{ Name, Value string }

// failedRuns are the states of runs that have failed.
const failedRuns = "FAILED,TIMEOUT,FAILED_TIMEOUT"

// statusChoices are the states of runs that people look for.
var statusChoices = []choice{
	{"any", ""}, {"failed", failedRuns}, {"waiting or running", "SCHEDULED,QUEUED,RUNNING,WAITING_CALLBACK"},
	{"SUCCESS", "SUCCESS"}, {"SKIPPED", "SKIPPED"}, {"CANCELED", "CANCELED"}, {"SCHEDULED", "SCHEDULED"}, {"QUEUED", "QUEUED"}, {"RUNNING", "RUNNING"},
	{"WAITING_CALLBACK", "WAITING_CALLBACK"}, {"FAILED", "FAILED"}, {"TIMEOUT", "TIMEOUT"}, {"FAILED_TIMEOUT", "FAILED_TIMEOUT"},
}

// lateRun is the delay from which on a run counts as late, in milliseconds.
const lateRun = 60_000

// runsQuery is the query of a page as the API understands it: browsers leave out the seconds and the zone of a time.
func runsQuery(q url.Values) url.Values {
	out := pick(q, "tenant", "rule_id", "status", "from", "to", "sort", "page_token")
	for _, name := range []string{"from", "to"} {
		for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
			if at, err := time.Parse(layout, out.Get(name)); err == nil {
				out.Set(name, at.Format(time.RFC3339))
			}
		}
	}
	return out
}

// keepsRun reports whether a page that shows late runs only shows a run.
func keepsRun(q url.Values, run document) bool {
	return q.Get("late") == "" || integer(run["late_ms"]) >= lateRun
}

func (v *visit) runs() error {
	q := v.ofTenant(runsQuery(v.r.URL.Query()))
	doc := v.read("/runs", v.asked(tables["runs"], q, perPage))
	runs, late := tables["runs"].kept(v.r.URL.Query(), list(doc["runs"])), v.r.URL.Query().Get("late") != ""
	if late {
		q.Set("late", "yes")
	}
	return v.render("runs", page{Title: "Runs", Nav: "Periodic", Live: runsOf(q.Get("tenant")), Data: document{
		"runs": runs, "next": doc["next"], "unreadable": list(doc["unreadable"]), "late": late, "all": !late && len(q) == 0, "choices": statusChoices, "ledger": q,
	}})
}

func (v *visit) run() error {
	path := "/runs" + pathOf(v.r.PathValue("tenant"), v.r.PathValue("run"))
	run := v.read(path, nil)
	var task document
	if id := text(run["task_id"]); id != "" {
		task = v.try(unlessGone, "/tasks"+idPath(id, 3), nil)
	}
	waits := slices.Contains(strings.Split(statusChoices[2].Value, ","), text(run["status"]))
	return v.render("run", page{Title: "Run of " + text(run["rule"]), Nav: "Periodic", Live: runsOf(v.r.PathValue("tenant")), Poll: 5, Data: document{
		"run": run, "path": path, "rule": "/periodics" + pathOf(v.r.PathValue("tenant"), text(run["rule"])), "task": task, "waits": waits, "late": integer(run["late_ms"]) >= lateRun,
	}})
}
