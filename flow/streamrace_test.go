package flow_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// monitored is the database by a client whose commands are seen before they are sent.
func monitored(t *testing.T, db *mongo.Database, seen func(bson.Raw)) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { seen(e.Command) },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client.Database(db.Name())
}

// noLook has no engine look for nodes of the stream that were appended until now.
func (w *world) noLook(id string) {
	w.t.Helper()
	_, err := w.db.Collection("flows").UpdateByID(w.t.Context(), id, bson.D{{Key: "$unset", Value: bson.D{{Key: "due_at", Value: ""}, {Key: "look_until", Value: ""}}}})
	require.NoError(w.t, err)
}

// decidesThatNothingRuns says whether the command stores a decision after which no node runs.
func decidesThatNothingRuns(command bson.Raw) bool {
	if coll, _ := command.Lookup("update").StringValueOK(); coll != "flows" {
		return false
	}
	_, err := command.LookupErr("updates", "0", "u", "$unset", "running_at")
	return err == nil
}

func TestANodeIsLinkedThatIsStoredWhileTheEndOfTheLastOneIs(t *testing.T) {
	t.Parallel()
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}, gate: make(chan struct{})}
	other, err := flow.New(flow.Config{Database: w.db})
	require.NoError(t, err)
	nodes := []string{"b", "c", "d"}
	var appended atomic.Int32
	w.flows, err = flow.New(flow.Config{Database: monitored(t, w.db, func(command bson.Raw) {
		if !decidesThatNothingRuns(command) {
			return
		}
		n := int(appended.Add(1))
		if n > len(nodes) {
			return
		}
		_, err := other.Append(context.Background(), "s", "g", link(nodes[n-1]))
		if err == nil {
			err = other.Flush(context.Background()) // it has seen that the stream runs
		}
		if err != nil {
			t.Error(err)
		}
		w.noLook("s/g")
	})})
	require.NoError(t, err)
	w.work()
	w.run(w.flows.Run)
	_, err = other.Append(t.Context(), "s", "g", link("a"))
	require.NoError(t, err)
	w.eventually("the first node runs", func() bool { return len(w.started("s/g")) == 1 })
	w.noLook("s/g")
	close(w.gate)
	w.eventually("all nodes run", func() bool { return len(w.started("s/g")) == 1+len(nodes) })
	require.Equal(t, append([]string{"a"}, nodes...), w.started("s/g"))
}

func TestANodeIsLinkedThatWasStoredLongAfterItsNumberWasReserved(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.gate = make(chan struct{})
	w.mu.Unlock()
	w.appends("s", "g", link("a"))
	w.eventually("the first node runs", func() bool { return len(w.started("s/g")) == 1 })
	slow, err := flow.New(flow.Config{Database: monitored(t, w.db, func(command bson.Raw) {
		if coll, _ := command.Lookup("insert").StringValueOK(); coll == "flow_nodes" {
			w.noLook("s/g")
		}
	})})
	require.NoError(t, err)
	_, err = slow.Append(t.Context(), "s", "g", link("late"))
	require.NoError(t, err)
	require.NoError(t, slow.Flush(t.Context()))
	close(w.gate)
	w.eventually("the late node runs", func() bool { return len(w.started("s/g")) == 2 })
}

// The worker has another client, so the engine learns of the end of the node by its looks. It has
// just looked, and found nothing to wait for. An engine that does not know is late each time; one that
// knows is late only when the machine is.
func TestAnEngineKnowsAtOnceThatItsProcessHasLetAStreamRun(t *testing.T) {
	const half = 2500 * time.Millisecond // of the time between two looks of an idle engine
	var late []time.Duration
	for range 5 {
		if !t.Run("", func(t *testing.T) { late = append(late, endsLate(t)) }) || slices.Min(late) < half {
			return
		}
	}
	require.Less(t, slices.Min(late), half, "the time from the end of a task to the decision about it: %v", late)
}

// endsLate is how long after its end the first node of a stream is over, in the process that let it run.
func endsLate(t *testing.T) time.Duration {
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}}
	looks := make(chan struct{}, 1000)
	var err error
	w.flows, err = flow.New(flow.Config{Database: monitored(t, w.db, func(command bson.Raw) {
		if coll, _ := command.Lookup("aggregate").StringValueOK(); coll == "control" {
			looks <- struct{}{}
		}
	})})
	require.NoError(t, err)
	w.work()
	w.run(w.flows.Run)
	testdb.Receive(t, looks)
	w.appends("s", "g", link("a"))
	require.NoError(t, w.flows.Flush(t.Context()))
	w.eventually("the node is over", func() bool { return w.record("s/g/a").Status == graph.NodeSuccess })
	var task model.Task
	require.NoError(t, w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "type", Value: "add"}}).Decode(&task))
	return w.record("s/g/a").At.Sub(task.FinishedAt)
}
