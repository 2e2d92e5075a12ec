package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

func TestAWorkerIsDrainedAndResumed(t *testing.T) {
	w := newWorld(t)
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	worker := store.Worker{ID: "host/7", Types: []string{"mail"}}
	for _, some := range []store.Worker{worker, worker, {ID: "engine", Types: []string{"mscheduler.flow"}, NoDrain: true}} {
		require.NoError(t, st.Workers.Heartbeat(t.Context(), some))
	}
	const at7, engine = "/api/v1/workers/host%2F7", "/api/v1/workers/engine"
	got := w.ok("POST", at7+"/drain", `{"stop": true, "note": "a new kernel"}`)
	require.Equal(t, "host/7", got["id"])
	require.Equal(t, "a new kernel", at(got, "drain.note"))
	require.Equal(t, "anybody", at(got, "drain.by"))
	require.Equal(t, true, at(got, "drain.stop"))
	require.Equal(t, false, at(got, "drain.heard"))
	require.IsType(t, 0., got["clock_error_ms"])
	asks, err := st.Workers.Beat(t.Context(), worker, false)
	require.NoError(t, err)
	require.True(t, asks.Stop)
	worker.Draining = true
	require.NoError(t, st.Workers.Heartbeat(t.Context(), worker))
	require.Equal(t, true, at(w.ok("GET", "/api/v1/workers", ""), "workers.1.drain.heard"))
	require.Equal(t, true, at(w.ok("GET", at7, ""), "drain.heard"))
	require.Contains(t, w.fails(http.StatusNotFound, "GET", "/api/v1/workers/nobody", "")[""], "no such worker: nobody")
	require.NotContains(t, w.ok("POST", at7+"/resume", ""), "drain")
	require.NotContains(t, w.ok("POST", at7+"/resume", ""), "drain", "a repetition changes nothing")

	require.Equal(t, true, at(w.ok("GET", "/api/v1/workers", ""), "workers.0.no_drain"))
	require.Contains(t, w.fails(http.StatusConflict, "POST", engine+"/drain", "")[""], "the worker engine is not drained or stopped by operators")
	require.Contains(t, w.fails(http.StatusNotFound, "POST", "/api/v1/workers/nobody/drain", "")[""], "no such worker: nobody")
	require.Contains(t, w.fails(http.StatusNotFound, "POST", "/api/v1/workers/nobody/resume", "")[""], "no such worker: nobody")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", at7+"/drain", `{"note": 7}`), "body.note")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", at7+"/drain", `{"halt": true}`), "body.halt")

	entries := w.ok("GET", "/api/v1/audit?kind=worker&resource=host/7", "")["entries"].([]any)
	require.Len(t, entries, 3)
	last := entries[len(entries)-1]
	for _, e := range entries {
		if at(e, "operation") == "drain-worker" && at(e, "outcome") == "ok" {
			last = e
		}
	}
	require.Equal(t, "a new kernel", at(last, "request.note"))
	require.Equal(t, "a new kernel", at(last, "after.drain.note"))
}
