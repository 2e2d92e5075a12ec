package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// operation is what the API's description says of one operation.
type operation struct {
	method, path string
	ID           string `json:"operationId"`
	Role         string `json:"x-role"`
	Tenants      string `json:"x-tenants"`
	Audited      bool   `json:"x-audited"`
}

// operations are all that the API has.
func (w *world) operations() (out []operation) {
	w.t.Helper()
	var doc struct {
		Paths map[string]map[string]operation `json:"paths"`
	}
	text, err := w.api.DescriptionJSON()
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(text, &doc))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			op.method, op.path = strings.ToUpper(method), path
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.ID, b.ID) })
	require.NotEmpty(w.t, out)
	return out
}

// guarded is a world whose requests need tokens.
func guarded(t *testing.T) *world {
	return newWorld(t, func(c *rest.Config) { c.NoTokens = false })
}

// with is the world with a new token.
func (w *world) with(role access.Role, tenants ...string) *world {
	w.t.Helper()
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(w.t, err)
	text, _, err := access.Create(w.t.Context(), st, access.Wanted{Name: string(role), Role: string(role), Tenants: tenants})
	require.NoError(w.t, err)
	out := *w
	out.token = text
	return &out
}

// of is the path of an operation on things of a tenant.
func (o operation) of(tenant string) string {
	path := strings.NewReplacer("{tenant}", tenant, "{type}", "mail", "{key}", "k", "{id}", "x", "{name}", "nightly", "{run}", "x@2026-01-31T02:30:00Z", "{plan_id}", "p", "{node}", "a", "{scene}", "s", "{group}", "g", "{token}", "x").Replace(o.path)
	if o.ID == "watch-events" {
		path += "?kind=none" // else it would not end; TestEventsOfOtherTenantsAreNotTold is about what it tells
	}
	return path
}

func TestWithoutATokenNothingButHealthAnswers(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	w.ready()
	open := map[string]int{ // all others need a token
		"GET /livez": 200, "GET /readyz": 200, "/": 404, // health, and what is not there
		"GET /docs": 200, "GET /docs/{$}": 200, "GET /docs/page.css": 200, "GET /docs/page.js": 200, // a page without data
		"POST /api/v1/callbacks/{token}": 404, "PUT /api/v1/callbacks/{token}": 404, // of no run
	}
	patterns := w.api.Patterns()
	require.Greater(t, len(patterns), 80)
	for _, pattern := range patterns {
		method, path, _ := strings.Cut(pattern, " ")
		if path == "" {
			method, path = "GET", pattern
		}
		a := w.do(method, operation{path: strings.ReplaceAll(path, "{$}", "")}.of("-"), "")
		if status, is := open[pattern]; is {
			require.Equal(t, status, a.status, "%s: %s", pattern, a.text)
			delete(open, pattern)
			continue
		}
		require.Equal(t, http.StatusUnauthorized, a.status, pattern)
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"), pattern)
		require.NotContains(t, path, "{$}")
	}
	require.Empty(t, open)
	require.Equal(t, "ok\n", w.do("GET", "/livez", "").text)
	require.Equal(t, "ok\n", w.do("GET", "/readyz", "").text)
	require.Equal(t, http.StatusUnauthorized, w.as("Authorization", "Bearer msk_x_y").do("GET", "/api/v1/tasks", "").status)
	require.Equal(t, http.StatusUnauthorized, w.as("Authorization", "Basic eDp5").do("GET", "/api/v1/tasks", "").status)
}

func TestARoleAllowsItsOperationsAndNoOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	w := guarded(t)
	for _, role := range access.Roles {
		mine := w.with(role)
		for _, op := range w.operations() {
			a := mine.do(op.method, op.of("-"), "")
			if op.Role == "" || role.Includes(access.Role(op.Role)) {
				require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s: %s: %s", role, op.ID, a.text)
			} else {
				require.Equal(t, http.StatusForbidden, a.status, "%s: %s", role, op.ID)
			}
		}
	}
}

// Each operation keeps to the tenants of a token in the way that its description says. A new operation
// without such a way fails here.
func TestATokenOfATenantSeesAndChangesNothingOfAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	w := guarded(t)
	all := w.with(access.Admin)
	for _, tenant := range []string{"mine", "other"} {
		all.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k", "tenant": %q}`, tenant))
		all.ok("POST", "/api/v1/periodics", fmt.Sprintf(`{"name": "nightly", "tenant": %q, "cron": "@daily", "type": "mail"}`, tenant))
		all.ok("POST", "/api/v1/periodics/"+tenant+"/nightly/trigger", "")
		all.ok("POST", "/api/v1/plans", fmt.Sprintf(`{"plan_id": "p", "tenant": %q, "station": "mail", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`, tenant))
		all.ok("POST", "/api/v1/bulk", fmt.Sprintf(`{"action": "release", "filter": {"tenant": %q}}`, tenant))
		all.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": "k", "tenant": %q, "nodes": [{"id": "a", "type": "of-flow"}]}`, tenant))
	}
	things := func() (texts []string) {
		for _, path := range []string{"/tasks/other/mail/k", "/periodics/other/nightly", "/runs?tenant=other", "/bulk?tenant=other", "/plans/other/p", "/flows/other/k/nodes"} {
			texts = append(texts, all.do("GET", "/api/v1"+path, "").text)
		}
		return texts
	}
	before := things()
	mine := w.with(access.Admin, "mine")
	for _, op := range w.operations() {
		t.Run(op.ID, func(t *testing.T) {
			w := *mine
			w.t = t
			switch op.Tenants {
			case "path":
				require.Equal(t, "not found", w.fails(http.StatusNotFound, op.method, op.of("other"), "")[""], "as if it were not there")
			case "filter":
				w.fails(http.StatusForbidden, op.method, op.path+"?tenant=other", "")
				require.NotContains(t, w.do(op.method, op.of("mine"), "").text, `"other`)
			case "body":
				w.body(op)
			case "handle":
				w.handle(op, all)
			case "token": // of an execution, as a call of a target has it; periodic tests which ones are right
				require.Equal(t, "unknown", w.do(op.method, op.of(""), "").body["reason"])
			case "none":
				w.ok(op.method, op.path, "")
			case "every":
				w.fails(http.StatusForbidden, op.method, op.of("other"), "")
			default:
				t.Fatalf("%s says %q of tenants: it needs a way, and a case here", op.ID, op.Tenants)
			}
		})
	}
	require.Equal(t, before, things(), "nobody has changed it")
	require.Equal(t, all.ok("GET", "/api/v1/tasks/count?tenant=mine", ""), mine.ok("GET", "/api/v1/tasks/count", ""))
}

// body tries operations whose body names tenants.
func (w *world) body(op operation) {
	w.t.Helper()
	const stranger, plan = `{"name": "n", "cron": "@daily", "type": "mail", "tenant": "other"}`, `{"station": "mail", "plan_type": "none", "messages": [1], "tenant": "other"}`
	for _, body := range map[string][]string{
		"create-periodic": {stranger}, "dry-run-periodic": {stranger}, "publish-plan": {plan}, "preview-definition-of-plan": {plan},
		"publish-plans": {`{"plans": [{"station": "mail", "plan_type": "none", "messages": [1]}, ` + plan + `]}`},
		"send-task":     {`{"type": "mail", "tenant": "other"}`, `{"type": "mail", "tenant": "-"}`},
		"send-tasks":    {`{"tasks": [{"type": "mail", "tenant": "mine"}, {"type": "mail", "tenant": "other"}]}`},
		"fetch":         {`{"worker_id": "w", "types": ["mail"], "tenants": ["mine", "other"]}`},
		"start-flow":    {`{"tenant": "other", "nodes": [{"id": "a", "type": "new"}]}`, `{"tenant": "-", "nodes": [{"id": "a", "type": "new"}]}`},
		"validate-flow": {`{"tenant": "other", "nodes": [{"id": "a", "type": "new"}]}`},
		"start-bulk":    {`{"action": "cancel", "filter": {"tenant": "other"}}`, `{"action": "cancel", "filter": {"tenant": "other"}, "dry_run": true}`, `{"action": "cancel", "filter": {"tenant": "-", "type": "mail"}}`},
	}[op.ID] {
		w.fails(http.StatusForbidden, op.method, op.path, body)
	}
	switch op.ID {
	case "send-task":
		require.Equal(w.t, "mine/new/k", w.ok("POST", op.path, `{"type": "new", "key": "k"}`)["id"], "the tenant of the token")
	case "send-tasks":
		require.Equal(w.t, "mine/new/l", at(w.ok("POST", op.path, `{"tasks": [{"type": "new", "key": "l"}]}`), "tasks.0.id"))
	case "start-flow", "validate-flow":
		require.Equal(w.t, "mine", w.ok("POST", op.path, `{"key": "new", "nodes": [{"id": "a", "type": "new"}]}`)["tenant"])
	case "start-bulk":
		require.Equal(w.t, "mine", at(w.ok("POST", op.path, `{"action": "cancel", "filter": {"type": "mail"}}`), "filter.tenant"), "the tenant of the token")
		require.Equal(w.t, w.ok("GET", "/api/v1/tasks/count?tenant=mine&type=mail&status=New,Executing", "")["count"],
			w.ok("POST", op.path, `{"action": "cancel", "filter": {"type": "mail", "status": ["New", "Executing"]}, "dry_run": true}`)["matched"])
		w.fails(http.StatusUnprocessableEntity, "POST", op.path, `{"action": "cancel", "filter": {}}`)
	case "fetch":
		for _, task := range w.ok("POST", op.path, `{"worker_id": "w", "types": ["mail"], "max": 10}`)["tasks"].([]any) {
			require.Equal(w.t, "mine", at(task, "tenant"))
		}
	case "create-periodic":
		require.Equal(w.t, "mine", w.ok("POST", op.path, `{"name": "new", "cron": "@daily", "type": "mail"}`)["tenant"], "the tenant of the token")
	case "dry-run-periodic": // it is compared with the rule of the token's tenant
		require.Equal(w.t, "unchanged", w.ok("POST", op.path, `{"name": "nightly", "cron": "@daily", "type": "mail"}`)["result"])
	case "publish-plan":
		require.Equal(w.t, "mine/new", w.ok("POST", op.path, `{"plan_id": "new", "station": "new", "plan_type": "none", "messages": [1]}`)["id"])
	case "publish-plans":
		require.Equal(w.t, "mine/many", at(w.ok("POST", op.path, `{"plans": [{"plan_id": "many", "station": "new", "plan_type": "none", "messages": [1]}]}`), "plans.0.plan.id"))
	case "preview-definition-of-plan":
		require.Equal(w.t, "mine", w.ok("POST", op.path, `{"station": "new", "plan_type": "none", "messages": [1]}`)["tenant"])
	default:
		w.t.Fatalf("no case for %s", op.ID)
	}
}

// handle tries operations on an execution of another tenant's task.
func (w *world) handle(op operation, all *world) {
	w.t.Helper()
	all.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "held", "key": %q, "tenant": "other"}`, op.ID))
	tasks := all.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["held"], "tenants": ["other"]}`)
	handle := at(tasks, "tasks.0.handle").(string)
	switch op.ID {
	case "end-many":
		require.Equal(w.t, true, at(w.ok("POST", op.path, fmt.Sprintf(`{"complete": [{"handle": %q}]}`, handle)), "complete.0.lost"))
	case "ping":
		require.Equal(w.t, true, at(w.ok("POST", op.path, fmt.Sprintf(`{"handles": [%q]}`, handle)), "executions.0.lost"))
	default:
		require.Equal(w.t, "not found", w.fails(http.StatusNotFound, op.method, op.path, fmt.Sprintf(`{"handle": %q}`, handle))[""])
	}
	all.ok("POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q}`, handle))
}

func TestAServerWithoutTokensAnswersToItsMachineOnly(t *testing.T) {
	w := newWorld(t)
	for host, status := range map[string]int{"localhost:80": 200, "127.0.0.1": 200, "[::1]:8080": 200, "evil.example.org": 403, "10.0.0.1": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/tasks", nil)
		require.NoError(t, err)
		r.Host = host
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, status, res.StatusCode, host)
	}
	require.Equal(t, http.StatusForbidden, w.as("Origin", "https://evil.example.org").do("POST", "/api/v1/tasks", `{"type": "mail"}`).status)
	require.Equal(t, http.StatusForbidden, w.as("Sec-Fetch-Site", "cross-site").do("POST", "/api/v1/tasks", `{"type": "mail"}`).status)
}

func TestTheFirstTokenClosesAServerThatWasOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("GET", "/api/v1/tasks", "")
	mine := w.with(access.Viewer)
	require.Eventually(t, func() bool { return w.do("GET", "/api/v1/tasks", "").status == http.StatusUnauthorized }, testdb.Patience, 10*time.Millisecond)
	mine.ok("GET", "/api/v1/tasks", "")
}

func TestEventsOfOtherTenantsAreNotTold(t *testing.T) {
	w := guarded(t)
	all := w.with(access.Admin)
	mine := w.with(access.Viewer, "mine").watch("", "")
	for _, body := range []string{`{"type": "mail", "key": "a", "tenant": "other"}`, `{"type": "mail", "key": "b"}`, `{"type": "mail", "key": "c", "tenant": "mine"}`} {
		all.ok("POST", "/api/v1/tasks", body)
	}
	require.Equal(t, "mine/mail/c", mine.next().data["task_id"])
}

func TestNobodySendsMschedulersOwnTasks(t *testing.T) {
	w := newWorld(t)
	const own = `{"type": "mscheduler.callback", "key": "k", "args": {"task_id": "other/mail/k", "generation": 1}}`
	for path, body := range map[string]string{
		"/tasks": own, "/tasks/batch": `{"tasks": [` + own + `]}`,
		"/flows":             `{"key": "f", "nodes": [{"id": "a", "type": "mscheduler.callback"}]}`,
		"/streams/s/g/nodes": `{"nodes": [{"type": "mscheduler.callback"}]}`,
		"/plans":             `{"station": "mscheduler.callback", "plan_type": "none", "messages": [1]}`,
		"/periodics":         `{"name": "r", "cron": "@hourly", "type": "mscheduler.callback"}`,
	} {
		a := w.do("POST", "/api/v1"+path, body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, path)
		require.Contains(t, a.text, "do the work of mscheduler itself", path)
	}
}

func TestAServerWithoutTokensAnswersNobodyBehindAProxy(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
		w.as(name, "203.0.113.1").fails(http.StatusForbidden, "GET", "/api/v1/tasks", "")
	}
}

func TestARevokedTokenHearsNoMoreEvents(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all := w.with(access.Admin)
	mine := w.with(access.Viewer)
	x := mine.watch("", "")
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(t, err)
	id, _, ok := access.Split(mine.token)
	require.True(t, ok)
	_, err = access.Revoke(t.Context(), st, id)
	require.NoError(t, err)
	require.Empty(t, x.next().name, "the stream ends")
	all.ok("GET", "/api/v1/tasks", "")
}
