package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
)

func TestAWorkerIsDrainedAndResumed(t *testing.T) {
	t.Parallel()
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
	heard, err := st.Workers.Beat(t.Context(), worker, false)
	require.NoError(t, err)
	require.True(t, heard.Drain.Stop)
	worker.Draining = true
	require.NoError(t, st.Workers.Heartbeat(t.Context(), worker))
	require.Equal(t, true, at(w.ok("GET", "/api/v1/workers", ""), "workers.1.drain.heard"))
	require.Equal(t, true, at(w.ok("GET", at7, ""), "drain.heard"))
	require.Contains(t, w.fails(http.StatusNotFound, "GET", "/api/v1/workers/nobody", "")[""], "no such worker: nobody")
	require.NotContains(t, w.ok("POST", at7+"/resume", ""), "drain")
	require.NotContains(t, w.ok("POST", at7+"/resume", ""), "drain", "a repetition changes nothing")

	require.Equal(t, true, at(w.ok("GET", "/api/v1/workers", ""), "workers.0.no_drain"))
	require.Contains(t, w.fails(http.StatusConflict, "POST", engine+"/drain", "")[""], "the worker engine does not accept drain requests")
	require.Contains(t, w.fails(http.StatusNotFound, "POST", "/api/v1/workers/nobody/drain", "")[""], "no such worker: nobody")
	require.Contains(t, w.fails(http.StatusNotFound, "POST", "/api/v1/workers/nobody/resume", "")[""], "no such worker: nobody")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", at7+"/drain", `{"note": 7}`), "body.note")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", at7+"/drain", `{"halt": true}`), "body.halt")

	entries := w.audit("?kind=worker&resource=host/7")
	require.Len(t, entries, 3)
	last := entries[len(entries)-1]
	require.Equal(t, "drain-worker", at(last, "operation"))
	require.Equal(t, "a new kernel", at(last, "request.note"))
	require.Equal(t, "a new kernel", at(last, "after.drain.note"))
}

// What workers hold is read from the index on leases, so nothing else that is stored matters.
func TestOpenExecutionsAreListedByWorkerAndType(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "a", "key": "due"}`)
	require.Equal(t, []any{}, w.ok("GET", "/api/v1/executions", "")["executions"])
	now := time.Now().UTC().Truncate(time.Millisecond)
	var docs []any
	for i := range 12 {
		typ, states := []string{"a", "b"}[i%2], bson.A{}
		for _, worker := range []string{"one", "two", "three"}[:1+i%3] {
			state := bson.D{{Key: "exec_id", Value: "x"}, {Key: "worker_id", Value: worker}, {Key: "claimed_at", Value: now}, {Key: "ping_expire_time", Value: now.Add(time.Minute)}, {Key: "attempt", Value: 1}}
			if worker == "two" {
				state = append(state, bson.E{Key: "fail_time", Value: now})
			}
			states = append(states, state)
		}
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("-/%s/%02d", typ, i)}, {Key: "type", Value: typ}, {Key: "status", Value: "Executing"}, {Key: "lapse_at", Value: now.Add(time.Duration(20-i) * time.Second)}, {Key: "worker_states", Value: states}})
	}
	_, err := w.db.Collection("tasks").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	found := func(query string) (out []string) {
		doc := w.ok("GET", "/api/v1/executions"+query, "")
		require.Equal(t, !strings.Contains(query, "limit"), doc["complete"])
		for _, e := range doc["executions"].([]any) {
			e := e.(map[string]any)
			out = append(out, fmt.Sprint(e["task_id"], " ", e["worker_id"]))
		}
		return out
	}
	require.Equal(t, []string{"-/a/08 three", "-/a/02 three", "-/b/11 three", "-/b/05 three"}, found("?worker=three"), "by type and end of the lease")
	require.Equal(t, []string{"-/b/11 three", "-/b/05 three"}, found("?worker=three&worker=two&type=b"))
	require.Len(t, found(""), 16)
	require.Len(t, found("?limit=5"), 5)
	require.Empty(t, found("?worker=two"))
	require.Empty(t, found("?type=c"))
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/executions?type=a%20b", "")
}
