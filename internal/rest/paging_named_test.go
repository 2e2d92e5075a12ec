package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lists by the begin of a name are ranges of an index on tenant and name, with pages.
func TestRulesFlowsAndPlansAreFoundByTheBeginOfTheirNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tenant := range []string{"a", "b"} {
		for _, name := range []string{"order", "order-1", "order-2", "order/x.y", "ordeo", "ordes", "Order"} {
			plain := url.QueryEscape(name) // names of rules and plans have no slash
			w.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": %q, "tenant": %q, "nodes": [{"id": "a", "type": "t"}]}`, name, tenant))
			w.ok("POST", "/api/v1/periodics", fmt.Sprintf(`{"name": %q, "tenant": %q, "cron": "@yearly", "type": "t"}`, plain, tenant))
			w.ok("POST", "/api/v1/plans", fmt.Sprintf(`{"plan_id": %q, "tenant": %q, "station": "t", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`, plain, tenant))
		}
	}
	for _, limit := range []string{"1", "2", "3", "10"} {
		page := "&tenant=a&limit=" + limit
		require.Equal(t, []any{"order", "order-1", "order-2", "order/x.y"}, w.pages("/api/v1/flows?key=order"+page, "flows", "key"), limit)
		require.Equal(t, []any{"order", "order%2Fx.y", "order-1", "order-2"}, w.pages("/api/v1/periodics?name=order"+page, "rules", "name"), limit)
		require.Equal(t, []any{"order", "order%2Fx.y", "order-1", "order-2"}, w.pages("/api/v1/plans?plan_id=order"+page, "plans", "plan_id"), limit)
	}
	require.Equal(t, []any{"order/x.y"}, w.pages("/api/v1/flows?key=order/&tenant=b", "flows", "key"))
	require.Empty(t, w.ok("GET", "/api/v1/flows?key=order&tenant=a&status=FINISH", "")["flows"])
	require.Empty(t, w.ok("GET", "/api/v1/plans?plan_id=order&tenant=a&over=true", "")["plans"])
	require.Empty(t, w.ok("GET", "/api/v1/periodics?name=order&tenant=-", "")["rules"])
	for field, path := range map[string]string{"key": "/flows", "name": "/periodics", "plan_id": "/plans"} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1"+path+"?"+field+"=order", "")["query."+field], "requires tenant")
	}
}
