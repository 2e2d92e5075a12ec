package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/dashboard"
)

// answers is an API that says the same each time, by path.
type answers map[string]string

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := a[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write([]byte(text))
}

func TestNodesThatWaitHaveTheirActionsUnlessTheFlowIsLarge(t *testing.T) {
	d := dashboard.New(dashboard.Config{API: answers{
		"/api/v1/me":                  `{"name": "ann", "role": "operator"}`,
		"/api/v1/tasks":               `{"tasks": []}`,
		"/api/v1/flows":               `{"flows": [{"id": "-/small", "counts": {"PENDING": 2, "SUCCESS": 1}, "reason": ""}, {"id": "-/large", "counts": {"PENDING": 1, "INIT": 200}, "reason": "its node waits"}]}`,
		"/api/v1/flows/-/small/nodes": `{"nodes": [{"node": "approve", "status": "PENDING", "ask": {"title": "<b>Approve?</b>"}}, {"node": "pay", "status": "PENDING", "error_info": "no money"}, {"node": "done", "status": "SUCCESS"}]}`,
		"/api/v1/streams":             `{"streams": [{"stream": "orders/eu", "node": "n7", "node_status": "PENDING", "wait": 3}, {"stream": "orders/us", "node": "n8", "node_status": "READY"}]}`,
	}})
	r := httptest.NewRecorder()
	d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/waiting", nil))
	text := r.Body.String()
	require.Equal(t, http.StatusOK, r.Code, text)
	for _, wanted := range []string{
		`data-call="POST /flows/-/small/nodes/pay/retry"`, `data-call="POST /flows/-/small/nodes/pay/resolve"`, `data-call="POST /flows/-/small/nodes/approve/resolve"`,
		"&lt;b&gt;Approve?&lt;/b&gt;", "no money", "its node waits", `href="/ui/flows/-/large"`, `data-call="POST /streams/orders/eu/nodes/n7/retry"`,
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
