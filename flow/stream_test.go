package flow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// link is a node of a stream that goes on whatever becomes of it.
func link(id string) graph.NodeSpec {
	return graph.NodeSpec{ID: id, Type: "add", Args: map[string]any{"text": id}, OnFailure: graph.Continue}
}

func (w *world) appends(scene, group string, nodes ...graph.NodeSpec) []string {
	w.t.Helper()
	ids, err := w.flows.Append(w.t.Context(), scene, group, nodes...)
	require.NoError(w.t, err)
	return ids
}

// started are the nodes of a stream whose tasks have begun, in order.
func (w *world) started(id string) (nodes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.ran {
		if node, is := strings.CutPrefix(key, "stream:"+id+":"); is {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// fails has a node of a stream fail, or not any more.
func (w *world) fails(id, node string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken["stream:"+id+":"+node] = yes
}

// record is the record of a node.
func (w *world) record(id string) (n graph.Node) {
	w.t.Helper()
	require.NoError(w.t, w.db.Collection("flow_nodes").FindOne(w.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&n))
	return n
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	testdb.Eventually(w.t, what, is)
}

func TestNodesOfAStreamRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for i := range 5 {
		var nodes []graph.NodeSpec
		for k := range 50 {
			nodes = append(nodes, link(fmt.Sprintf("n%d-%d", i, k)))
		}
		want = append(want, w.appends("orders", "7", nodes...)...)
	}
	w.eventually("all nodes run", func() bool { return len(w.started("orders/7")) == len(want) })
	require.Equal(t, want, w.started("orders/7"))
	w.eventually("the stream is idle", func() bool {
		f, err := w.flows.Get(t.Context(), "orders/7")
		require.NoError(t, err)
		return f.RunningAt.IsZero() && f.Status == graph.StatusRunning
	})
	// An idle stream goes on at once.
	w.appends("orders", "7", link("last"))
	w.eventually("the last node runs", func() bool { return len(w.started("orders/7")) == len(want)+1 })
}

func TestAKeyIsAppendedOnce(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		require.Equal(t, []string{"a", "b"}, w.appends("s", "g", link("a"), link("b")))
	}
	w.appends("s", "g", link("c"))
	w.eventually("the last node runs", func() bool { s := w.started("s/g"); return len(s) > 0 && s[len(s)-1] == "c" })
	require.Equal(t, []string{"a", "b", "c"}, w.started("s/g"))
}

func TestAnAppendThatIsWrongNamesTheField(t *testing.T) {
	w := newWorld(t)
	long := make([]byte, 101)
	for i := range long {
		long[i] = 'x'
	}
	for _, bad := range []struct {
		scene, group string
		node         graph.NodeSpec
		want         string
	}{
		{"", "g", link("a"), "scene has 0 characters"},
		{"a/b", "g", link("a"), `scene is "a/b"; a slash is not allowed`},
		{string(long[:31]), "g", link("a"), "scene has 31 characters; want 1 to 30"},
		{"s", string(long), link("a"), "group has 101 characters; want 1 to 100"},
		{"s", "g", graph.NodeSpec{ID: "N/A", Type: "t"}, `nodes[0].id (node "N/A") is "N/A"`},
		{"s", "g", graph.NodeSpec{ID: "a"}, "nodes[0].type (node a) is empty"},
		{"s", "g", graph.NodeSpec{ID: "a", Type: "t", OnFailure: "stop"}, "nodes[0].on_failure"},
		{"s", "g", graph.NodeSpec{ID: "a", Type: "t", After: []string{"b"}}, "nodes[0].after"},
	} {
		_, err := w.flows.Append(t.Context(), bad.scene, bad.group, bad.node)
		require.ErrorContains(t, err, bad.want)
	}
	_, err := w.flows.Append(t.Context(), "s", "g", link("a"), link("a"))
	require.ErrorContains(t, err, "nodes[1].id (node a) is that of nodes[0], too")
	_, err = w.flows.Get(t.Context(), "s/g")
	require.ErrorIs(t, err, model.ErrNotFound)
}

func TestAFailureSuspendsOrClosesAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	suspends, ends := link("b"), link("d")
	suspends.OnFailure, ends.OnFailure = "", graph.End
	for _, node := range []string{"a", "b", "d"} {
		w.fails("s/g", node, true)
	}
	w.appends("s", "g", link("a"), suspends, link("c"), ends, link("e"))
	f := w.becomes("s/g", graph.StatusPending)
	require.Equal(t, "node b: its task failed: it is broken", f.Reason)
	require.Equal(t, map[string]string{"a": "ERROR", "b": "PENDING", "c": "WAIT", "d": "WAIT", "e": "WAIT"}, w.nodes("s/g"))
	said, err := w.flows.Explain(t.Context(), "s/g", "c")
	require.NoError(t, err)
	require.Equal(t, []string{"It starts when b, the node before it, has ended.", "Resolve b to let it go on."}, said)
	w.appends("s", "g", link("f")) // a stream that stands still takes appends

	_, err = w.flows.Resolve(t.Context(), "s/g", "b", graph.NodeSuccess, "by hand")
	require.NoError(t, err)
	f = w.becomes("s/g", graph.StatusFinish)
	require.Equal(t, "node d failed and ends the stream", f.Reason)
	_, err = w.flows.Append(t.Context(), "s", "g", link("g"))
	require.ErrorAs(t, err, new(*model.RefusedError))
	require.Equal(t, []string{"a", "b", "c", "d"}, w.started("s/g"))

	_, err = w.flows.Open(t.Context(), "s", "g")
	require.NoError(t, err)
	w.appends("s", "g", link("g"))
	w.eventually("what was behind runs", func() bool { return len(w.started("s/g")) == 7 })
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g"}, w.started("s/g"))
}

// The numbers of nodes in a transaction are not part of it, so it holds nobody up; the nodes are there
// with its commit, and an append of the same key waits for it alone.
func TestNodesInATransactionHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session, err := w.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	require.NoError(t, session.StartTransaction())
	in := mongo.NewSessionContext(t.Context(), session)
	_, err = w.flows.Append(in, "s", "g", link("in"))
	require.NoError(t, err)
	same := make(chan error, 1)
	go func() {
		_, err := w.flows.Append(t.Context(), "s", "g", link("in"))
		same <- err
	}()
	w.appends("s", "g", link("out"))
	w.eventually("the other node runs", func() bool { return len(w.started("s/g")) == 1 })
	require.Equal(t, []string{"out"}, w.started("s/g"))
	require.NoError(t, session.CommitTransaction(t.Context()))
	require.NoError(t, testdb.Receive(t, same))
	w.eventually("the node runs", func() bool { return len(w.started("s/g")) == 2 })
	require.Equal(t, []string{"out", "in"}, w.started("s/g"))

	require.NoError(t, session.StartTransaction())
	_, err = w.flows.Append(mongo.NewSessionContext(t.Context(), session), "s", "g", link("never"))
	require.NoError(t, err)
	require.NoError(t, session.AbortTransaction(t.Context()))
	w.appends("s", "g", link("last"))
	w.eventually("the last node runs", func() bool { return len(w.started("s/g")) == 3 })
	require.Equal(t, []string{"out", "in", "last"}, w.started("s/g"))
}

func TestARetryLeavesTheOtherRecordsOfItsStreamTheirTime(t *testing.T) {
	w := newWorld(t)
	again := link("again")
	again.OnFailure = ""
	w.fails("s/g", "again", true)
	w.appends("s", "g", link("before"), again, link("after"))
	w.becomes("s/g", graph.StatusPending)
	w.eventually("the first has its time", func() bool { return !w.record("s/g/before").DeleteAt.IsZero() })
	kept := w.record("s/g/before").DeleteAt
	w.fails("s/g", "again", false)
	_, err := w.flows.RetryFrom(t.Context(), "s/g", "again")
	require.NoError(t, err)
	w.eventually("all have ended, and their records say so", func() bool { return w.record("s/g/after").Status == graph.NodeSuccess })
	require.Equal(t, kept, w.record("s/g/before").DeleteAt)
}

func TestAStreamAndAGraphOfOneNameDoNotMeet(t *testing.T) {
	w := newWorld(t)
	w.appends("acme", "order-7", link("a"))
	spec := graph.Spec{Tenant: "acme", Key: "order-7", Nodes: []graph.NodeSpec{node("a")}}
	_, err := w.flows.Start(t.Context(), spec)
	require.ErrorContains(t, err, "acme/order-7 is a stream, not a graph")

	spec.Key = "order-8"
	w.start(spec)
	_, err = w.flows.Append(t.Context(), "acme", "order-8", link("a"))
	require.ErrorContains(t, err, "acme/order-8 is a flow, not a stream")
	require.NotErrorIs(t, err, model.ErrNotFound)
	require.Equal(t, failure.Refused, failure.Of(err))

	// Their tasks have keys of their own.
	w.eventually("the node of the stream runs", func() bool { return len(w.started("acme/order-7")) == 1 })
	w.start(graph.Spec{Key: "acme/order-7", Nodes: []graph.NodeSpec{node("a")}})
	w.becomes("-/acme/order-7", graph.StatusFinish)
	require.Equal(t, "SUCCESS", w.nodes("-/acme/order-7")["a"])
}

func TestARecordThatCannotBeReadHoldsItsOwnStreamAlone(t *testing.T) {
	t.Parallel()
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}}
	var err error
	w.flows, err = flow.New(flow.Config{Database: w.db})
	require.NoError(t, err)
	past := time.Now().Add(-time.Minute)
	for i, group := range []string{"bad", "good"} { // their links were decided, and not seen to be carried out
		w.appends("s", group, link("a"))
		require.NoError(t, w.flows.Flush(t.Context()))
		_, err = w.db.Collection("flows").UpdateByID(t.Context(), "s/"+group, bson.D{{Key: "$set", Value: bson.D{
			{Key: "planned", Value: []graph.Planned{{ID: "link-2", Do: flowplan.DoLink, N: 1}}}, {Key: "planned_at", Value: past.Add(time.Duration(i) * time.Second)},
		}}})
		require.NoError(t, err)
	}
	created := func(at any) {
		_, err := w.db.Collection("flow_nodes").UpdateByID(t.Context(), "s/bad/a", bson.D{{Key: "$set", Value: bson.D{{Key: "created_at", Value: at}}}})
		require.NoError(t, err)
	}
	created("yesterday")
	w.run(w.flows.Run)
	planned := func(id string) []graph.Planned {
		f, err := w.flows.Get(t.Context(), id)
		require.NoError(t, err)
		return f.Planned
	}
	w.eventually("the good one goes on", func() bool { return len(planned("s/good")) == 0 })
	require.NotEmpty(t, planned("s/bad"))
	created(past)
	w.eventually("the other one goes on when it is mended", func() bool { return len(planned("s/bad")) == 0 })
}

func TestExplainTellsHowANodeThatLeftTheWindowOfItsStreamEnded(t *testing.T) {
	w := newWorld(t)
	w.appends("s", "g", link("a"), link("b"))
	w.eventually("both have ended", func() bool { return w.record("s/g/b").Status == graph.NodeSuccess })
	w.appends("s", "g", link("c"), link("d"))
	w.eventually("a has left", func() bool {
		doc, err := w.flows.Get(t.Context(), "s/g")
		return err == nil && doc.Trimmed > 0
	})
	said, err := w.flows.Explain(t.Context(), "s/g", "a")
	require.NoError(t, err)
	require.Equal(t, []string{"It ended as SUCCESS at " + w.record("s/g/a").At.UTC().Format(time.RFC3339Nano) + "."}, said)
	_, err = w.flows.Explain(t.Context(), "s/g", "nobody")
	require.ErrorContains(t, err, "no such node")
}
