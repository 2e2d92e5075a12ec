package store_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// reserve asks for one number in the stream s/g, and returns it.
func (s *stepping) reserve(lookUntil time.Time) int64 {
	s.Helper()
	last, refused, err := s.Flows.Reserve(s.Context(), []store.Reservation{{ID: "s/g", Key: "s/g", Scene: "s", Group: "g", N: 1, Now: s.now, DueAt: s.now, LookUntil: lookUntil}})
	require.NoError(s, err)
	require.Empty(s, refused)
	return last[0]
}

func TestADecisionTakesNoReservedNumberBack(t *testing.T) {
	s := newStepping(t)
	s.reserve(s.now.Add(time.Second))
	before, err := s.Flows.Get(t.Context(), "s/g")
	require.NoError(t, err)
	s.reserve(s.now.Add(2 * time.Second))
	fresh, err := s.Flows.Appending(t.Context(), []string{"s/g"})
	require.NoError(t, err)
	s.reserve(s.now.Add(3 * time.Second))

	after := *before
	after.Rev, after.Decision, after.Appended, after.LookUntil = before.Rev+1, "d", fresh[0].Appended, fresh[0].LookUntil
	applied, refused, err := s.Flows.Write(t.Context(), []store.Decision[*graph.Flow]{{Before: before, After: &after}})
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, []bool{true}, applied)
	now, err := s.Flows.Get(t.Context(), "s/g")
	require.NoError(t, err)
	require.Equal(t, s.now.Add(3*time.Second), now.LookUntil)
	require.Equal(t, int64(4), s.reserve(s.now))
}

func TestADecisionAfterWhichNobodyLooksIsNotAppliedBesideAnAppend(t *testing.T) {
	s := newStepping(t)
	s.reserve(s.now)
	before, err := s.Flows.Get(t.Context(), "s/g")
	require.NoError(t, err)
	s.reserve(s.now)
	write := func(appended int64) bool {
		after := *before
		after.Rev, after.Decision, after.Appended, after.DueAt = before.Rev+1, "d", appended, time.Time{}
		applied, _, err := s.Flows.Write(t.Context(), []store.Decision[*graph.Flow]{{Before: before, After: &after}})
		require.NoError(t, err)
		return applied[0]
	}
	require.False(t, write(1), "the second was not read")
	require.True(t, write(2), "it was read after the document")
}

func TestOnlyFlowsWithANodeThatIsReadyForLongAreReadToFindWhatIsLost(t *testing.T) {
	s := newStepping(t)
	s.reserve(s.now) // an idle stream
	state := func(status graph.NodeStatus, at time.Time) graph.State { return graph.State{Status: status, At: at} }
	ready, later := state(graph.NodeReady, s.now), s.now.Add(time.Second)
	waits := ready
	waits.DueAt = later
	flows := []any{}
	for id, states := range map[string][]graph.State{
		"s/ready": {state(graph.NodeSuccess, s.now), ready}, "s/not-for-long": {state(graph.NodeSuccess, s.now), state(graph.NodeReady, later)},
		"-/ready": {ready}, "-/busy": {ready, state(graph.NodeReady, later)}, "-/waits": {waits}, "-/over": {state(graph.NodeError, s.now)},
	} {
		updated := s.now
		if id == "-/busy" {
			updated = later
		}
		flows = append(flows, bson.D{{Key: "_id", Value: id}, {Key: "status", Value: graph.StatusRunning}, {Key: "updated_at", Value: updated}, {Key: "states", Value: states}})
	}
	_, err := s.db.Collection("flows").InsertMany(t.Context(), flows)
	require.NoError(t, err)
	var found []string
	for after := (*graph.Flow)(nil); ; {
		docs, unread, err := s.Flows.LongReady(t.Context(), s.now, after, 1)
		require.NoError(t, err)
		require.Empty(t, unread)
		if len(docs) == 0 {
			break
		}
		after = docs[0]
		found = append(found, after.ID)
	}
	require.Equal(t, []string{"-/busy", "s/ready", "-/ready"}, found)
}

func TestNodesOfMegabytesAreReadAFewAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	s := newStepping(t)
	var nodes []*graph.Node
	for _, stream := range []string{"s/a", "s/b", "s/c"} {
		for i := range int64(4) {
			id := stream + "/" + string(rune('0'+i))
			kind, args, err := bson.MarshalValue(strings.Repeat("x", 1<<20))
			require.NoError(t, err)
			task := &model.Task{ID: id, Type: "t", Args: bson.RawValue{Type: kind, Value: args}}
			nodes = append(nodes, &graph.Node{ID: id, FlowID: stream, Node: id, No: i + 1, Status: graph.NodeInit, Task: task})
		}
	}
	require.NoError(t, s.Nodes.Append(t.Context(), nodes))
	linked := map[string]int{}
	for round := 0; len(linked) < 3; round++ {
		require.Less(t, round, 12, "each read gets on")
		upTo := map[string]int64{"s/a": 4, "s/b": 4, "s/c": 4}
		for id := range linked {
			delete(upTo, id)
		}
		found, err := s.Waiting(t.Context(), upTo, 100)
		require.NoError(t, err)
		n := 0
		for id, w := range found {
			n += len(w.Nodes)
			require.NotEmpty(t, w.Nodes, "a stream that was not read is not in the result")
			if len(w.Nodes) < 4 {
				require.True(t, w.More, "%s has others", id)
			} else {
				linked[id] = n
			}
		}
		require.Less(t, n, 12, "not everything at once")
	}
	found, err := s.Waiting(t.Context(), map[string]int64{"s/none": 4}, 100)
	require.NoError(t, err)
	require.Empty(t, found["s/none"].Nodes)
	require.NotNil(t, found["s/none"], "it was read")
}

// The flow went on since, and a process that stood still stores once more that it is over.
func TestALateProcessDoesNotHaveTheRecordsOfAFlowDeletedThatGoesOn(t *testing.T) {
	s := newStepping(t)
	over := func(rev int64) {
		var nodes []*graph.Node
		for _, id := range []string{"a", "b"} {
			nodes = append(nodes, &graph.Node{ID: "-/f/" + id, FlowID: "-/f", Node: id, Status: graph.NodeSuccess, Rev: rev, At: s.now, CreatedAt: s.now, DeleteAt: s.now.Add(time.Hour)})
		}
		requirePut(t, s.Nodes.Put, nodes)
		require.NoError(t, s.Nodes.KeepUntil(t.Context(), "-/f", s.now.Add(time.Hour), rev))
	}
	deleted := func() (n int64) {
		n, err := s.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{{Key: "delete_at", Value: s.now.Add(time.Hour)}})
		require.NoError(t, err)
		return n
	}
	over(3)
	require.EqualValues(t, 2, deleted())
	requirePut(t, s.Nodes.Put, []*graph.Node{{ID: "-/f/b", FlowID: "-/f", Node: "b", Status: graph.NodeReady, Rev: 4, At: s.now, CreatedAt: s.now}})
	require.NoError(t, s.Nodes.KeepUntil(t.Context(), "-/f", time.Time{}, 4))
	require.Zero(t, deleted())
	over(3)
	require.Zero(t, deleted(), "it is late")
	over(5)
	require.EqualValues(t, 2, deleted())
	require.NoError(t, s.Nodes.KeepUntil(t.Context(), "-/f", time.Time{}, 4))
	require.EqualValues(t, 2, deleted(), "it is late, too")
}

func appended(ids ...string) (nodes []*graph.Node) {
	for i, id := range ids {
		nodes = append(nodes, &graph.Node{ID: "s/g/" + id, FlowID: "s/g", Node: id, No: int64(i + 1), Status: graph.NodeInit})
	}
	return nodes
}

// An append of many nodes is several commands. An engine that looks in between links what it sees.
func TestTheCommandsOfAnAppendGoOutOneAfterTheOther(t *testing.T) {
	db := testdb.New(t)
	var mu sync.Mutex
	var once sync.Once
	open, most := map[int64]bool{}, 0
	both := make(chan struct{}) // closed when two are on their way
	answered := func(request int64) {
		mu.Lock()
		defer mu.Unlock()
		delete(open, request)
	}
	inserts := func(name string, command bson.Raw) bool {
		coll, _ := command.Lookup(name).StringValueOK()
		return name == "insert" && coll == "flow_nodes"
	}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if !inserts(e.CommandName, e.Command) {
				return
			}
			mu.Lock()
			open[e.RequestID] = true
			if most = max(most, len(open)); most == 2 {
				once.Do(func() { close(both) })
			}
			mu.Unlock()
			select { // the other one has its chance
			case <-both:
			case <-time.After(100 * time.Millisecond):
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { answered(e.RequestID) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { answered(e.RequestID) },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	s, err := store.Open(store.Config{Database: client.Database(db.Name())})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	ids := make([]string, 5_001)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	require.NoError(t, store.WhileHeld(t.Context(), func() error { return s.Nodes.Append(t.Context(), appended(ids...)) }))
	n, err := db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, len(ids), n)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 1, most)
}

func TestNoNodeIsStoredBeforeOneThatIsHeld(t *testing.T) {
	t.Parallel()
	s := newStepping(t)
	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = s.db.Collection("flow_nodes").InsertOne(mongo.NewSessionContext(t.Context(), session), bson.D{{Key: "_id", Value: "s/g/20"}})
	require.NoError(t, err)
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	stored := func() int64 {
		n, err := s.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		last, err := s.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{{Key: "no", Value: bson.D{{Key: "$lte", Value: n}}}})
		require.NoError(t, err)
		require.Equal(t, n, last, "those that are stored are the first")
		return n
	}
	for range 2 {
		require.ErrorIs(t, s.Nodes.Append(t.Context(), appended(ids...)), store.ErrHeld)
		require.LessOrEqual(t, stored(), int64(20))
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.NoError(t, store.WhileHeld(t.Context(), func() error { return s.Nodes.Append(t.Context(), appended(ids...)) }))
	require.EqualValues(t, 40, stored())
}
