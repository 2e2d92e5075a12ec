package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/dashboard"
	"github.com/mscheduler/mscheduler/server"
)

// answers is an API that says the same each time, by path, or by path and query.
type answers map[string]string

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := a[r.URL.RequestURI()]
	if !ok {
		text, ok = a[r.URL.Path]
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write([]byte(text))
}

const ann = `{"name": "ann", "role": "admin"}`

func (a answers) page(t *testing.T, path string) (int, string) {
	t.Helper()
	if a["/api/v1/me"] == "" {
		a["/api/v1/me"] = ann
	}
	r := httptest.NewRecorder()
	dashboard.New(dashboard.Config{API: a}).ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui"+path, nil))
	return r.Code, r.Body.String()
}

func (a answers) shown(t *testing.T, path string) string {
	t.Helper()
	status, text := a.page(t, path)
	require.Equal(t, http.StatusOK, status, text)
	return text
}

func TestNodesThatWaitHaveTheirActionsUnlessTheFlowIsLarge(t *testing.T) {
	d := dashboard.New(dashboard.Config{API: answers{
		"/api/v1/me":                  `{"name": "ann", "role": "operator"}`,
		"/api/v1/tasks":               `{"tasks": []}`,
		"/api/v1/flows":               `{"flows": [{"id": "-/small", "counts": {"PENDING": 2, "SUCCESS": 1}, "reason": ""}, {"id": "-/large", "counts": {"PENDING": 1, "INIT": 200}, "reason": "its node waits"}]}`,
		"/api/v1/flows/-/small/nodes": `{"nodes": [{"node": "approve", "status": "PENDING", "ask": {"title": "<b>Approve?</b>"}}, {"node": "pay", "status": "PENDING", "error_info": "no money"}, {"node": "done", "status": "SUCCESS"}]}`,
		"/api/v1/streams?limit=100&status=PENDING": `{"streams": [{"stream": "orders/eu", "node": "n7", "node_status": "PENDING", "wait": 3}], "next": "more"}`,
		"/api/v1/streams":                          `{"streams": [{"stream": "orders/us", "node": "n8", "node_status": "READY"}]}`,
	}})
	r := httptest.NewRecorder()
	d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/waiting", nil))
	text := r.Body.String()
	require.Equal(t, http.StatusOK, r.Code, text)
	for _, wanted := range []string{
		`data-call="POST /flows/-/small/nodes/pay/retry"`, `data-call="POST /flows/-/small/nodes/pay/resolve"`, `data-call="POST /flows/-/small/nodes/approve/resolve"`,
		"&lt;b&gt;Approve?&lt;/b&gt;", "no money", "its node waits", `href="/ui/streams?status=PENDING"`, `href="/ui/flows/-/large"`, `data-call="POST /streams/orders/eu/nodes/n7/retry"`,
	} {
		require.Contains(t, text, wanted)
	}
	for _, unwanted := range []string{"nodes/approve/retry", "nodes/done/", "orders/us", "<b>Approve"} {
		require.NotContains(t, text, unwanted)
	}
}

func TestRulesFlowsAndPlansAreFoundByTheBeginOfTheirNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"order-1", "other"} {
		w.call(http.MethodPost, "/flows", map[string]any{"key": name, "nodes": []any{node("a", "report")}})
		w.call(http.MethodPost, "/periodics", map[string]any{"name": name, "cron": "@yearly", "type": "report"})
		w.call(http.MethodPost, "/plans", map[string]any{"plan_id": name, "station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": []any{1}})
	}
	for _, path := range []string{"/flows?key=ord", "/periodics?name=ord", "/plans?plan_id=ord"} {
		status, text := w.page(path)
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, "order-1</a>", path)
		require.NotContains(t, text, "other</a>", path)
		_, text = w.page(path + "&tenant=acme")
		require.NotContains(t, text, "order-1</a>", path)
	}
}

func TestAnotherPlanBeginsAsThisOneIs(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/plans", map[string]any{
		"plan_id": "monthly", "station": "report", "plan_type": "month", "plan_value": -2, "plan_repet": 7, "plan_time": "2100-01-01T05:00:00Z", "timezone": "Europe/Berlin", "no_keep": true,
		"messages": []any{map[string]any{"of": 12345678901234567}}, "plan_exec_timeout": "90s", "options": map[string]any{"retry": map[string]any{"strategy": "fixed", "interval": "5s"}},
	})
	_, text := w.page("/plans/-/monthly")
	require.Contains(t, text, `href="/ui/plans/new?like=-%2Fmonthly"`)
	status, text := w.page("/plans/new?like=-/monthly")
	require.Equal(t, http.StatusOK, status, text)
	for _, line := range []string{"station: report", "plan_type: month", "plan_value: -2", "plan_repet: 7", "no_keep: true", "timezone: Europe/Berlin", "12345678901234567", "plan_exec_timeout: 1m30s", "interval: 5s"} {
		require.Contains(t, text, line)
	}
	require.NotContains(t, text, "plan_id: monthly", "it is another one")
	for _, nobody := range []string{"x", "-/none"} {
		status, _ = w.page("/plans/new?like=" + nobody)
		require.Equal(t, http.StatusNotFound, status)
	}
}

// A secret that is not shown is not published either: the person gives it again.
func TestAnotherPlanAsksForTheSecretsOfThisOne(t *testing.T) {
	w := newWorld(t, func(c *server.Config) { c.SecretKey = strings.Repeat("ab", 32) })
	signed := func(path string) map[string]any {
		return map[string]any{
			"success":  map[string]any{"url": "https://example.org/" + path + "?token=hush"},
			"security": map[string]any{"type": "aksk", "ak": path, "sk": "hush"},
		}
	}
	plan := map[string]any{
		"plan_id": "told", "station": "report", "plan_type": "none", "messages": []any{1}, "callback": signed("plan"), "options": map[string]any{"callback": signed("steps")},
	}
	w.call(http.MethodPost, "/plans", plan)
	_, text := w.page("/plans/new?like=-/told")
	require.NotContains(t, text, "hush")
	require.NotContains(t, text, "mss1.")
	for _, line := range []string{"ak: plan", "ak: steps", "https://example.org/plan?token=***", "https://example.org/steps?token=***"} {
		require.Contains(t, text, line)
	}
	shown := w.call(http.MethodGet, "/plans/-/told", nil)
	plan["plan_id"], plan["callback"], plan["options"] = "again", shown["callback"], map[string]any{"callback": signed("steps")}
	body, err := json.Marshal(plan)
	require.NoError(t, err)
	status, refused := w.raw(http.MethodPost, "/api/v1/plans", string(body))
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, fmt.Sprint(refused), "body.callback.security.keys[0].sk")
	require.Contains(t, fmt.Sprint(refused), "body.callback.success.url")
}

// A viewer of one tenant, or of several, finds things of it by the beginning of their names without naming it.
func TestAViewerOfATenantFindsItsThingsByName(t *testing.T) {
	w := newWorld(t)
	for _, tenant := range []string{"acme", "blue"} {
		w.call(http.MethodPost, "/flows", map[string]any{"key": "order-" + tenant, "tenant": tenant, "nodes": []any{node("a", "report")}})
		w.call(http.MethodPost, "/periodics", map[string]any{"name": "order-" + tenant, "tenant": tenant, "cron": "@yearly", "type": "report"})
		w.call(http.MethodPost, "/tasks", map[string]any{"type": "report", "key": "order-" + tenant, "tenant": tenant})
	}
	one, two := w.token("viewer", "blue"), w.token("viewer", "acme", "blue")
	w = w.closed()
	for query, token := range map[string]string{"": one, "&tenant=blue": two} {
		v := w.visitor()
		v.signIn(token, "/ui/")
		for _, path := range []string{"/flows?key=ord", "/periodics?name=ord", "/tasks?key=ord", "/find?q=ord"} {
			res, text := v.send(http.MethodGet, path+query, "")
			require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", path, text)
			require.Contains(t, text, "order-blue</a>", path)
			require.NotContains(t, text, "order-acme", path)
		}
		res, _ := v.send(http.MethodGet, "/find?q=report%2Forder-blue"+query, "")
		require.Equal(t, "/ui/tasks/blue/report/order-blue", res.At.Path)
	}
}

func TestWhatIsTypedIsFound(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "order/17", "tenant": "acme"})
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "report", "key": "order/18"})
	w.call(http.MethodPost, "/flows", map[string]any{"key": "order/18/flow", "tenant": "acme", "nodes": []any{node("a", "report")}})
	v := w.visitor()
	for q, want := range map[string]string{
		"acme/mail/order/17": "/ui/tasks/acme/mail/order/17", "report/order/18": "/ui/tasks/-/report/order/18", "mail": "/ui/tasks",
		"order/17": "/ui/tasks/acme/mail/order/17", "acme/order": "/ui/flows/acme/order/18/flow",
	} {
		res, text := v.send(http.MethodGet, "/find?q="+url.QueryEscape(q), "")
		require.Equal(t, http.StatusOK, res.StatusCode, text)
		require.Equal(t, want, res.At.Path, q)
	}
	_, text := w.page("/find?q=order")
	require.Contains(t, text, `href="/ui/tasks/acme/mail/order%2F17">acme/mail/order/17</a>`)
	require.Contains(t, text, `href="/ui/tasks/-/report/order%2F18">-/report/order/18</a>`)
	for _, nothing := range []string{"nobody", "no/bo/dy", "%", "a b/c", ""} {
		status, text := w.page("/find?q=" + url.QueryEscape(nothing))
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, "Nothing begins with")
	}
	_, text = w.page("/tasks?key=order")
	require.Contains(t, text, "acme/mail/order/17</a>")
	require.NotContains(t, text, "Choose a filter first", "a bulk job may have this filter")
}

// The page of a task offers what the table of commands allows in its status, see docs/reference.md.
func TestATaskOffersWhatItsStatusAllows(t *testing.T) {
	const retry, resolve, release, edit, cancel, again = `/retry"`, `data-opens="resolve"`, `/release"`, `data-opens="edit"`, `data-opens="cancel"`, `?again=`
	all := []string{retry, resolve, release, edit, cancel, again}
	for _, x := range []struct {
		task   string // JSON besides its id
		offers []string
	}{
		{`"status": "Wait"`, []string{release, edit, cancel}},
		{`"status": "New"`, []string{edit, cancel}},
		{`"status": "Executing"`, []string{edit, cancel}},
		{`"status": "Executing", "worker_states": [{"retry_at": "2100-01-01T00:00:00Z"}]`, []string{retry, edit, cancel}},
		{`"status": "Executing", "cancel_requested_at": "2026-01-01T00:00:00Z"`, []string{edit}},
		{`"status": "Error"`, []string{retry, edit, cancel, again}},
		{`"status": "Success"`, []string{again}},
		{`"status": "Completed"`, []string{again}},
		{`"status": "Failure"`, []string{retry, again}},
		{`"status": "Failure", "origin": {"kind": "flow", "id": "-/f", "node": "a"}`, []string{retry}},
		{`"status": "Pending"`, []string{retry, resolve, again}},
		{`"status": "ManuallyProcessed"`, []string{again}},
		{`"status": "Cancelled"`, []string{retry, again}},
		{`"status": "of a later release"`, nil},
	} {
		d := dashboard.New(dashboard.Config{API: answers{
			"/api/v1/me":                   `{"name": "ann", "role": "operator"}`,
			"/api/v1/tasks/-/mail/k":       `{"id": "-/mail/k", "type": "mail", "key": "k", "generation": 1, "options": {}, ` + x.task + `}`,
			"/api/v1/tasks/-/mail/k/lives": `{"tasks": []}`,
		}})
		r := httptest.NewRecorder()
		d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/tasks/-/mail/k", nil))
		text := r.Body.String()
		require.Equal(t, http.StatusOK, r.Code, text)
		for _, what := range all {
			require.Equal(t, slices.Contains(x.offers, what), strings.Contains(text, what), "%s: %s", x.task, what)
		}
	}
}

// The id of a trace leads to the tracing backend, if the server knows where that is.
func TestATaskLinksToItsTrace(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	shown := func(address, traceparent string) string {
		d := dashboard.New(dashboard.Config{TraceURL: address, API: answers{
			"/api/v1/me":                   `{"name": "ann", "role": "viewer"}`,
			"/api/v1/tasks/-/mail/k":       `{"id": "-/mail/k", "type": "mail", "key": "k", "generation": 1, "status": "New", "trace": {"traceparent": "` + traceparent + `", "at": "2026-01-02T03:04:05Z"}}`,
			"/api/v1/tasks/-/mail/k/lives": `{"tasks": []}`,
		}})
		r := httptest.NewRecorder()
		d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/tasks/-/mail/k", nil))
		require.Equal(t, http.StatusOK, r.Code, r.Body)
		return r.Body.String()
	}
	const parent = "00-" + id + "-b7ad6b7169203331-01"
	require.Contains(t, shown("https://jaeger.example.org/trace/{trace_id}?tab=1&x", parent), `<a href="https://jaeger.example.org/trace/`+id+`?tab=1&amp;x" rel="noreferrer">`+id+`</a>`)
	require.Contains(t, shown("", parent), `<dd class="mono">`+id+`</dd>`)
	for _, broken := range []string{"", "00-0-0-01", "00-" + strings.Repeat("/", 32) + "-b7ad6b7169203331-01"} {
		require.NotContains(t, shown("https://jaeger.example.org/trace/{trace_id}", broken), "Trace</dt>", broken)
	}
}

func TestTheAuditIsFilteredByEveryKindOfThing(t *testing.T) {
	w := newWorld(t)
	_, text := w.page("/audit")
	for _, kind := range audit.Kinds {
		require.Contains(t, text, "<option>"+kind+"</option>")
		status, chosen := w.page("/audit?kind=" + kind)
		require.Equal(t, http.StatusOK, status, kind)
		require.Contains(t, chosen, "<option selected>"+kind+"</option>")
	}
}
