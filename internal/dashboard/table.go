package dashboard

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
)

// perPage is how many rows a page of a list has.
const perPage = 50

// tableOf is a list of the API: where it is, and the names of its filters in the query of a page, which are those of the
// API.
type tableOf struct {
	path    string   // %s is the id that the query names as of
	field   string   // of the answer
	filters []string // names in the query
	named   string   // the filter that finds things of one tenant by the beginning of their names
	columns []string // of the files: paths in a document; the JSON lines have all of it
}

// tables are the lists that can be filtered, paged and written as files.
var tables = map[string]tableOf{
	"tasks": {"/tasks", "tasks", []string{"tenant", "type", "key", "status", "category", "creator", "worker_id", "error", "arg", "created_after", "created_before", "history", "sort"}, "",
		[]string{"id", "status", "tenant", "type", "key", "category", "creator", "priority", "start_time", "attempt", "error_count", "lapse_count", "error_info", "created_at", "updated_at", "finished_at", "exec_time_ms"}},
	"audit": {"/audit", "entries", []string{"tenant", "who", "operation", "kind", "resource", "outcome", "after", "before"}, "",
		[]string{"id", "at", "ended_at", "who", "name", "from", "door", "operation", "kind", "resource", "count", "tenant", "outcome", "status", "reason", "before", "after", "request"}},
	"tokens": {"/tokens", "tokens", nil, "", []string{"id", "name", "role", "tenants", "state", "created_at", "created_by", "last_used_at", "expires_at", "revoked_at"}},
	"plans": {"/plans", "plans", []string{"tenant", "plan_id", "station", "status", "over", "sort"}, "plan_id",
		[]string{"id", "status", "station", "caller", "description", "plan_type", "plan_value", "plan_repet", "step", "plan_time", "real_repet", "skipped", "last_state", "reason", "created_at", "updated_at", "ended_at"}},
	"runs": {"/runs", "runs", []string{"tenant", "rule_id", "status", "from", "to", "sort"}, "",
		[]string{"id", "rule", "tenant", "nominal", "last_nominal", "ticks", "status", "reason", "error_info", "attempt", "manual", "late_ms", "started_at", "executed_at", "ended_at", "task_id"}},
	"flows": {"/flows", "flows", []string{"tenant", "key", "status", "sort"}, "key",
		[]string{"id", "status", "tenant", "key", "creator", "description", "reason", "counts", "parent", "created_at", "updated_at", "ended_at"}},
	"rules": {"/periodics", "rules", []string{"tenant", "name"}, "name",
		[]string{"id", "name", "tenant", "status", "cron", "timezone", "task", "next_fire_at", "last", "paused_at", "created_at", "updated_at"}},
	"workers": {"/workers", "workers", []string{"state"}, "", []string{"id", "alive", "host", "pid", "version", "types", "concurrency", "running", "started_at", "heartbeat_at", "clock_error_ms", "drain"}},
	"jobs":    {"/bulk", "jobs", []string{"tenant"}, "", []string{"id", "status", "action", "filter", "remark", "matched", "changed", "skipped", "failed", "creator", "created_at", "finished_at", "error_info"}},
	"nodes":   {"/flows%s/nodes", "nodes", nil, "", []string{"node", "status", "type", "after", "since", "ready_at", "started_at", "ended_at", "reason", "error_info", "life", "task_id", "output"}},
	"chain":   {"/streams%s/nodes", "nodes", nil, "", []string{"position", "node", "status", "type", "since", "started_at", "ended_at", "reason", "error_info", "life", "task_id", "output"}},
	"results": {"/plans%s/results", "results", nil, "", []string{"step", "try", "plan_time", "worker", "state", "at", "result", "error_info"}},
	"streams": {"/streams", "streams", []string{"all"}, "",
		[]string{"stream", "status", "closed", "init", "wait", "ended_5m", "ended_1h", "node", "node_status", "since", "reason"}},
}

// asked is the query for a page of the list: what the page's own query says of it.
func (v *visit) asked(t tableOf, q url.Values, limit int) url.Values {
	out := pick(q, append([]string{"page_token"}, t.filters...)...)
	if t.named != "" && out.Get(t.named) != "" {
		v.ofOneTenant(out)
	}
	out.Set("limit", strconv.Itoa(limit))
	return v.ofTenant(out)
}

// rows reads the page of a list that the page's query names.
func (v *visit) rows(name string) (document, error) {
	t := tables[name]
	return v.get(t.path, v.asked(t, v.r.URL.Query(), perPage))
}

// every reads all pages of a list of few things that the query selects, such as workers and types.
func (v *visit) every(path, field string, query url.Values) (all []any, err error) {
	q := maps.Clone(query)
	for q.Set("limit", "1000"); ; {
		doc, err := v.get(path, q)
		if err != nil {
			return nil, err
		}
		all = append(all, list(doc[field])...)
		next := text(doc["next"])
		if next == "" {
			return all, nil
		}
		q.Set("page_token", next)
	}
}

// pageOf is the page of a list that is read as a whole: behind the thing that the query of the page names. next names
// the last thing of the page, if there are more.
func pageOf[T any](v *visit, all []T, name func(T) string) (shown []T, next string) {
	after := v.r.URL.Query().Get("page_token")
	from := 1 + slices.IndexFunc(all, func(one T) bool { return after != "" && name(one) == after })
	shown = all[from:min(from+perPage, len(all))]
	if from+len(shown) < len(all) {
		next = name(shown[len(shown)-1])
	}
	return shown, next
}

// pick is the part of a query that has these names: what a page of the API's events is about.
func pick(q url.Values, names ...string) url.Values {
	out := url.Values{}
	for _, name := range names {
		for _, value := range q[name] {
			if value != "" {
				out.Add(name, value)
			}
		}
	}
	return out
}
