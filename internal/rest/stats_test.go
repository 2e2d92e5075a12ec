package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
)

func TestStatsSayWhatWaitsAndWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Viewer, "mine")
	all.as("If-None-Match", "*").ok("PUT", "/api/v1/types/short", `{"retention": "1h"}`)
	for i, task := range []string{`"type": "mail", "tenant": "mine"`, `"type": "short", "tenant": "mine"`, `"type": "mail", "tenant": "other"`, `"type": "mail", "tenant": "mine", "start_time": "1h"`} {
		all.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"key": "%d", %s}`, i, task))
	}
	for range 3 {
		handle := at(all.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["mail", "short"]}`), "tasks.0.handle")
		all.ok("POST", "/api/v1/pull/complete", fmt.Sprintf(`{"handle": %q}`, handle))
	}
	fleet := all.ok("GET", "/api/v1/stats", "")
	require.EqualValues(t, 3, at(fleet, "ended.count"))
	require.EqualValues(t, 1, at(fleet, "ended.types.short.statuses.Success"), "whatever the retention of its type")
	require.Equal(t, true, at(fleet, "ended.complete"))
	require.Positive(t, at(fleet, "ended.per_second"))
	require.Equal(t, "mail", at(fleet, "queue.types.0.type"))
	require.EqualValues(t, 1, at(fleet, "queue.types.0.delayed"))
	require.Nil(t, fleet["tasks"])

	tenant := mine.ok("GET", "/api/v1/stats", "")
	require.EqualValues(t, 2, at(tenant, "ended.count"))
	require.EqualValues(t, 1, at(tenant, "tasks.types.mail.New"))
	require.EqualValues(t, 1, at(tenant, "tasks.types.mail.Success"))
	require.Nil(t, tenant["queue"])
	require.EqualValues(t, 1, at(all.ok("GET", "/api/v1/stats?tenant=other&type=mail", ""), "ended.count"))
	mine.fails(http.StatusForbidden, "GET", "/api/v1/stats?tenant=other", "")
	all.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/stats?window_ms=1", "")
}
