package dashboard

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// perPage is how many rows a page of a list has.
const perPage = 50

// tableOf is a list of the API: where it is, and the names of its filters in the query of a page, which are those of the
// API.
type tableOf struct {
	path    string   // %s is the id that the query names as of; "" = the page makes the list, see whole
	field   string   // of the answer
	filters []string // names in the query
	named   string   // the filter that finds things of one tenant by the beginning of their names
	columns []string // of the files: paths in a document; the JSON lines have all of it
	parts   int      // of the id, apart from the last one; 0 = 2
	// keep reports whether the query selects a thing, where the API lacks the filter; nil = it always does.
	keep func(q url.Values, doc document) bool
	// whole is the list as the page makes it from several lists; nil = it is one of the API.
	whole func(v *visit) []any
}

// tables are the lists that can be filtered, paged and written as files.
var tables = map[string]tableOf{
	"tasks": {path: "/tasks", field: "tasks", filters: []string{"tenant", "type", "key", "status", "category", "creator", "worker_id", "error", "arg", "created_after", "created_before", "history", "sort"},
		columns: []string{"id", "status", "tenant", "type", "key", "category", "creator", "priority", "start_time", "attempt", "error_count", "lapse_count", "error_info", "created_at", "updated_at", "finished_at", "exec_time_ms"}},
	"audit": {path: "/audit", field: "entries", filters: []string{"tenant", "who", "operation", "kind", "resource", "outcome", "after", "before"},
		columns: []string{"id", "at", "ended_at", "who", "name", "from", "door", "operation", "kind", "resource", "count", "tenant", "outcome", "status", "reason", "before", "after", "request"}},
	"tokens": {path: "/tokens", field: "tokens", columns: []string{"id", "name", "role", "tenants", "state", "created_at", "created_by", "last_used_at", "expires_at", "revoked_at"}},
	"plans": {path: "/plans", field: "plans", filters: []string{"tenant", "plan_id", "station", "status", "over", "sort"}, named: "plan_id",
		columns: []string{"id", "status", "station", "caller", "description", "plan_type", "plan_value", "plan_repet", "step", "plan_time", "real_repet", "skipped", "last_state", "reason", "created_at", "updated_at", "ended_at"}},
	"runs": {path: "/runs", field: "runs", filters: []string{"tenant", "rule_id", "status", "from", "to", "sort"}, keep: keepsRun,
		columns: []string{"id", "rule", "tenant", "nominal", "last_nominal", "ticks", "status", "reason", "error_info", "attempt", "manual", "late_ms", "started_at", "executed_at", "ended_at", "task_id"}},
	"lives": {path: "/tasks%s/lives", field: "tasks", parts: 3, columns: []string{"id", "generation", "status", "attempt", "error_count", "error_info", "created_at", "updated_at", "finished_at", "archived_at", "exec_time_ms"}},
	"executions": {whole: (*visit).executions, parts: 3,
		columns: []string{"attempt", "worker_id", "claimed_at", "ping_expire_time", "success_time", "fail_time", "fail_kind", "fail_reason", "retry_at", "exec_id"}},
	"held":     {whole: (*visit).heldBy, columns: []string{"task_id", "type", "worker_id", "attempt", "claimed_at", "ping_expire_time", "deadline", "parked"}},
	"types":    {whole: (*visit).typeFile, columns: []string{"type", "state", "name", "category", "workers", "running", "max_running", "due", "oldest_due_at", "later", "ended_from", "ended_1h", "failed_1h", "rate_limit"}},
	"series":   {whole: (*visit).seriesFile, columns: []string{"at", "succeeded", "failed", "other", "delay_ms.p50", "delay_ms.p95", "ran_ms.p50", "ran_ms.p95"}},
	"findings": {whole: (*visit).findings, columns: []string{"check", "state", "detail", "advice"}},
	"waiting":  {whole: (*visit).waitingFile, columns: []string{"of", "id", "node", "since", "reason", "error_info"}},
	"flows": {path: "/flows", field: "flows", filters: []string{"tenant", "key", "status", "sort"}, named: "key",
		columns: []string{"id", "status", "tenant", "key", "creator", "description", "reason", "counts", "parent", "created_at", "updated_at", "ended_at"}},
	"rules": {path: "/periodics", field: "rules", filters: []string{"tenant", "name"}, named: "name",
		columns: []string{"id", "name", "tenant", "status", "cron", "timezone", "task", "next_fire_at", "last", "paused_at", "created_at", "updated_at"}},
	"workers": {path: "/workers", field: "workers", filters: []string{"state"}, keep: keepsWorker, columns: []string{"id", "alive", "host", "pid", "version", "types", "concurrency", "running", "started_at", "heartbeat_at", "clock_error_ms", "drain"}},
	"jobs":    {path: "/bulk", field: "jobs", filters: []string{"tenant"}, columns: []string{"id", "status", "action", "filter", "remark", "matched", "changed", "skipped", "failed", "creator", "created_at", "finished_at", "error_info"}},
	"nodes":   {path: "/flows%s/nodes", field: "nodes", keep: keepsNode, columns: []string{"node", "status", "type", "after", "since", "ready_at", "started_at", "ended_at", "reason", "error_info", "life", "task_id", "output"}},
	"chain":   {path: "/streams%s/nodes", field: "nodes", keep: keepsNode, columns: []string{"position", "node", "status", "type", "since", "started_at", "ended_at", "reason", "error_info", "life", "task_id", "output"}},
	"results": {path: "/plans%s/results", field: "results", filters: []string{"sort"}, columns: []string{"step", "try", "plan_time", "worker", "state", "at", "result", "error_info"}},
	"streams": {path: "/streams", field: "streams", filters: []string{"all", "status"},
		columns: []string{"stream", "status", "closed", "init", "wait", "ended_5m", "ended_1h", "first", "last", "node", "node_status", "since", "reason"}},
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

// pathTo is the path of the API of a list of the thing that the query names; "" = it does not name one.
func (t tableOf) pathTo(q url.Values) string {
	before, after, needs := strings.Cut(t.path, "%s")
	of, parts := q.Get("of"), cmp.Or(t.parts, 2)
	if needs && strings.Count(of, "/") < parts-1 {
		return ""
	}
	if needs {
		before += idPath(of, parts)
	}
	return before + after
}

// kept are the things of a page of the list that the query selects.
func (t tableOf) kept(q url.Values, all []any) []any {
	if t.keep == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(one any) bool { return !t.keep(q, object(one)) })
}

// sorted sorts a list that is read as a whole by one of several orders, which the query names; in an order that is none
// of them it stays as it is.
func sorted[T any](q url.Values, all []T, orders map[string]func(a, b T) int) {
	if order := orders[q.Get("sort")]; order != nil {
		slices.SortStableFunc(all, order)
	}
}

// rows reads the page of a list that the page's query names.
func (v *visit) rows(name string) document {
	t := tables[name]
	return v.read(t.path, v.asked(t, v.r.URL.Query(), perPage))
}

// every reads all pages of a list of few things that the query selects, such as workers and types.
func (v *visit) every(path, field string, query url.Values) (all []any) {
	q := maps.Clone(query)
	for q.Set("limit", "1000"); ; {
		doc := v.read(path, q)
		all = append(all, list(doc[field])...)
		next := text(doc["next"])
		if next == "" {
			return all
		}
		q.Set("page_token", next)
	}
}

// pageOf is the page of a list that is read as a whole: behind the thing that the query of the page names. next is its
// page_token for the page behind this one, if there is one: how many things are before that, and the name of the last of
// them. The number counts when the thing has left the list.
func pageOf[T any](v *visit, all []T, name func(T) string) (shown []T, next string) {
	count, after, _ := strings.Cut(v.r.URL.Query().Get("page_token"), "/")
	from, err := strconv.Atoi(count)
	if err != nil || from < 0 {
		from = 0
	} else if i := slices.IndexFunc(all, func(one T) bool { return name(one) == after }); i >= 0 {
		from = i + 1
	}
	if from >= len(all) { // the list has become shorter: its end
		from = max(len(all)-perPage, 0)
	}
	shown = all[from:min(from+perPage, len(all))]
	if end := from + len(shown); end < len(all) {
		next = strconv.Itoa(end) + "/" + name(shown[len(shown)-1])
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
