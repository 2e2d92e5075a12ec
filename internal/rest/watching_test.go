package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

const everything = "?of=tasks,runs,flows,workers"

// until is the next event of that name whose field has that value.
func (x *watching) until(name, field string, value any) told {
	x.w.t.Helper()
	for {
		e := x.next()
		require.NotEmpty(x.w.t, e.name, "the stream has ended before %s %s=%v", name, field, value)
		if e.name == name && e.data[field] == value {
			return e
		}
	}
}

func (w *world) store() *store.Store {
	w.t.Helper()
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(w.t, err)
	return st
}

// change changes one thing of each kind, of a tenant.
func (w *world) change(tenant string) {
	w.t.Helper()
	w.ok("POST", "/api/v1/periodics", fmt.Sprintf(`{"name": "nightly", "tenant": %q, "cron": "@yearly", "type": "mail"}`, tenant))
	w.ok("POST", "/api/v1/periodics/"+tenant+"/nightly/trigger", "")
	w.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": "f", "tenant": %q, "nodes": [{"id": "a", "type": "mail"}]}`, tenant))
}

func TestRunsFlowsAndWorkersAreToldNextToTasksAndInOneOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.watch(everything, "")
	st := w.store()
	require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: "w1", Types: []string{"mail"}, Concurrency: 3}))
	first := x.until("worker", "id", "w1")
	require.EqualValues(t, 3, first.data["concurrency"])
	require.Equal(t, true, first.data["alive"])
	require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: "w1", Types: []string{"mail"}, Concurrency: 3}))
	w.change("acme")
	run := x.until("run", "tenant", "acme")
	require.Equal(t, "nightly", run.data["rule"])
	require.Len(t, x.until("flow", "id", "acme/f").data["counts"], 1, "the flow as the list shows it")
	require.NoError(t, st.Workers.Remove(t.Context(), store.Worker{ID: "w1"}))
	x.until("worker_gone", "id", "w1")

	one := w.watch("?of=flows&tenant=acme&key=g", "")
	for _, key := range []string{"other", "g"} {
		w.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": %q, "tenant": "acme", "nodes": [{"id": "a", "type": "mail"}]}`, key))
	}
	require.Equal(t, "acme/g", one.next().data["id"], "of one flow")

	again := w.watch(everything, first.id)
	require.NotEqual(t, "worker", again.next().name, "a heartbeat with nothing new is no event")
	only := w.watch("?of=flows", first.id)
	require.Equal(t, "flow", only.next().name)
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/events?of=plans", "")
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/events?of=workers&tenant=acme", "")
}

// insertResults stores results of plans as an engine does: those of a tenant, of plans with a description.
func (w *world) insertResults(tenant, description string, results map[string]any) {
	w.t.Helper()
	for id, result := range results {
		_, err := w.db.Collection("plan_results").InsertOne(w.t.Context(), bson.D{
			{Key: "_id", Value: tenant + "/" + id + "/1/x"}, {Key: "plan", Value: tenant + "/" + id}, {Key: "plan_id", Value: id}, {Key: "tenant", Value: tenant}, {Key: "description", Value: description},
			{Key: "station", Value: "report"}, {Key: "step", Value: int64(1)}, {Key: "state", Value: "OK"}, {Key: "plan_time", Value: bson.DateTime(1000)}, {Key: "at", Value: bson.DateTime(2000)}, {Key: "result", Value: result},
		})
		require.NoError(w.t, err)
	}
}

func TestResultsOfPlansAreWatchedByDescriptionAndPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all, topic := w.watch("?of=results,tasks", ""), w.watch("?of=results&description=sales", "")
	one := w.watch("?of=results&tenant=acme&plan_id=p2", "")
	w.insertResults("acme", "stock", map[string]any{"p1": 1})
	_, err := w.db.Collection("plan_results").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "-/broken/1/x"}, {Key: "step", Value: "no number"}})
	require.NoError(t, err)
	w.insertResults("other", "sales", map[string]any{"p2": 2})
	w.insertResults("acme", "sales", map[string]any{"p2": 3})
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "a"}`)
	first := all.next()
	require.Equal(t, "result", first.name)
	require.Equal(t, []any{"acme/p1/1/x", "p1", "stock", "OK", 1.0}, []any{first.data["id"], first.data["plan_id"], first.data["description"], first.data["state"], first.data["result"]})
	require.Equal(t, 2.0, topic.next().data["result"])
	require.Equal(t, 3.0, topic.next().data["result"])
	require.Equal(t, 3.0, one.next().data["result"])

	again := w.watch("?of=results,tasks", first.id)
	require.Equal(t, []any{2.0, 3.0, "a"}, []any{again.next().data["result"], again.next().data["result"], again.next().data["key"]})
}

// A server remembers the last events for clients that come back, and a result may have a megabyte.
func TestALongResultIsWatchedWithoutWhatWasReturned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.watch("?of=results", "")
	w.insertResults("acme", "sales", map[string]any{"p": strings.Repeat("x", 20<<10)})
	e := x.next()
	require.Equal(t, "OK", e.data["state"])
	require.NotContains(t, e.data, "result")
	require.Equal(t, true, e.data["result_omitted"])
}

func TestATokenOfATenantWatchesOnlyItsRunsAndFlows(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Viewer, "mine")
	everyone := all.watch("?of=flows", "")
	mine.fails(http.StatusForbidden, "GET", "/api/v1/events?of=workers", "")
	mine.fails(http.StatusForbidden, "GET", "/api/v1/events?of=results&tenant=other", "")
	x := mine.watch("?of=tasks,runs,flows,results", "")
	all.change("other")
	all.ok("POST", "/api/v1/streams/mine/g/nodes", `{"nodes": [{"type": "mail"}]}`)
	for _, tenant := range []string{"other", "mine"} {
		all.insertResults(tenant, "sales", map[string]any{"p": 1})
	}
	all.change("mine")
	all.ok("POST", "/api/v1/tasks", `{"type": "last", "key": "k", "tenant": "mine"}`)
	for seen := map[string]bool{}; ; {
		e := x.next()
		require.NotEmpty(t, e.name)
		require.Equal(t, "mine", e.data["tenant"], e)
		require.NotEqual(t, "stream", e.data["kind"], "streams belong to no tenant")
		seen[e.name] = true
		if e.data["type"] == "last" {
			require.True(t, seen["run"] && seen["flow"] && seen["result"])
			everyone.until("flow", "kind", "stream")
			return
		}
	}
}

func TestWithoutChangeStreamsRunsFlowsAndWorkersArePolled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Poll(10 * time.Millisecond)
	w.fails(http.StatusServiceUnavailable, "GET", "/api/v1/events", "")
	w.fails(http.StatusServiceUnavailable, "GET", "/api/v1/events?of=flows,results", "")
	w.change("before")
	x := w.watch("?of=runs,flows,workers", "")
	st := w.store()
	require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: "w1", Types: []string{"mail"}}))
	first := x.next()
	require.Equal(t, "w1", first.data["id"], "what was there before is no event")
	w.change("acme")
	x.until("run", "tenant", "acme")
	x.until("flow", "id", "acme/f")
	require.NoError(t, st.Workers.Remove(t.Context(), store.Worker{ID: "w1"}))
	x.until("worker_gone", "id", "w1")
	again := w.watch("?of=runs,flows", first.id) // the worker may have been told of once more: its first heartbeat is two writes
	require.Equal(t, "acme", again.next().data["tenant"])
}

func TestAPolledWorkerWithNothingNewIsNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Poll(10 * time.Millisecond)
	st := w.store()
	beat := func() {
		worker := store.Worker{ID: "w1", Types: []string{"mail"}, Only: &lifecycle.Conditions{Tenants: []string{"acme"}}}
		require.NoError(t, st.Workers.Heartbeat(t.Context(), worker))
	}
	set := func(field string, value any) {
		_, err := w.db.Collection("workers").UpdateByID(t.Context(), "w1", bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
		require.NoError(t, err)
	}
	beat()
	set("drain", store.Drain{Note: "why", At: time.UnixMilli(0)})
	x := w.watch("?of=flows,workers", "")
	for i, key := range []string{"f", "g", "h"} { // a poll compares flows before workers
		beat()
		set("clock_error_ms", i)
		w.ok("POST", "/api/v1/flows", fmt.Sprintf(`{"key": %q, "nodes": [{"id": "a", "type": "mail"}]}`, key))
		require.Equal(t, key, x.next().data["key"], "a heartbeat with nothing new is no event")
	}
	set("drain.note", "because")
	require.Equal(t, "w1", x.next().data["id"])
}

// However many watch everything, the process has one change stream, and reads what has changed once.
func TestManyListenersOfEverythingShareOneStreamAndItsReads(t *testing.T) {
	t.Parallel()
	var streams, reads atomic.Int64
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			switch {
			case e.CommandName == "aggregate" && strings.Contains(e.Command.Lookup("pipeline").String(), "$changeStream"):
				streams.Add(1)
			case e.CommandName == "find" && e.Command.Lookup("find").StringValue() == "workers":
				reads.Add(1)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	w := newWorld(t, func(c *rest.Config) { c.Database = client.Database(c.Database.Name()) })
	listeners := make([]*watching, 300)
	for i := range listeners {
		listeners[i] = w.watch(everything, "")
	}
	st := w.store()
	const changes = 5
	for i := range changes {
		require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: fmt.Sprint("w", i), Types: []string{"mail"}}))
	}
	for _, l := range listeners {
		l.until("worker", "id", fmt.Sprint("w", changes-1))
	}
	require.EqualValues(t, 1, streams.Load())
	require.LessOrEqual(t, reads.Load(), int64(2*changes), "a heartbeat of a new worker is two writes")
}
