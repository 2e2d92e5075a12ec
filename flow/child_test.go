package flow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// within is a flow whose node in starts a flow: x, then y, which adds the argument and the output
// of x. The node after takes the output of y.
func within(key string, change ...func(in *graph.NodeSpec, x, y *graph.NodeSpec)) graph.Spec {
	a, x, y, after := node("a"), node("x"), node("y", "x"), node("after", "in")
	x.Args = map[string]any{"terms": []any{flow.Arg("n"), 1}}
	y.Args = map[string]any{"terms": []any{flow.Output("x.sum"), flow.Arg("n")}}
	after.Args = map[string]any{"terms": []any{flow.Output("in.sum"), 100}}
	in := graph.NodeSpec{ID: "in", After: []string{"a"}, Args: map[string]any{"n": flow.Output("a.sum")}}
	for _, f := range change {
		f(&in, &x, &y)
	}
	in.Flow = &graph.Spec{Nodes: []graph.NodeSpec{x, y}}
	return graph.Spec{Key: key, Nodes: []graph.NodeSpec{a, in, after}}
}

func TestANodeStartsAFlowAndItsOutputIsThatOfTheLastNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := within("f")
	s.Nodes[0].Args = map[string]any{"terms": []int{5}}
	f := w.start(s)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
	require.Equal(t, 111, w.output(f.ID, "after").Sum)
	child, err := w.flows.Get(t.Context(), "-/f.in")
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, child.Status)
	require.Equal(t, &model.Origin{Kind: "flow", ID: "-/f", Node: "in"}, child.Parent)
}

// startsChild starts a flow whose first node starts another one, and waits until that runs.
func (w *world) startsChild() *graph.Flow {
	w.t.Helper()
	s := within("f")
	s.Nodes = s.Nodes[1:]
	s.Nodes[0].After, s.Nodes[0].Args = nil, map[string]any{"n": 1}
	f := w.start(s)
	w.eventually("x is RUNNING", func() bool { return w.nodes("-/f.in")["x"] == "RUNNING" })
	return f
}

func TestANodeWhoseFlowRunsHoldsNoWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate = make(chan struct{})
	f := w.startsChild()
	require.Equal(t, map[string]string{"in": "RUNNING", "after": "WAIT"}, w.nodes(f.ID))
	why, err := w.flows.Explain(t.Context(), f.ID, "in")
	require.NoError(t, err)
	require.Equal(t, []string{"Its flow f.in runs; flow show says more."}, why)
	var own model.Task
	require.NoError(t, w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "key", Value: "flow:f:in"}}).Decode(&own))
	require.Equal(t, model.StatusWait, own.Status)
	close(w.gate)
	w.becomes(f.ID, graph.StatusFinish)
}

func TestAFlowThatWaitsForAPersonMakesItsNodePENDINGUntilItHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f.in", "x", true)
	f := w.start(within("f"))
	f = w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, "node in: its flow f.in is PENDING: node x: its task failed: it is broken", f.Reason)
	_, err := w.flows.Resolve(t.Context(), "-/f.in", "x", graph.NodeSuccess, "by hand")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
	require.Equal(t, 101, w.output(f.ID, "after").Sum)
}

func TestAFlowThatFailsIsAFailureOfItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct {
		policy graph.Policy
		inner  graph.Policy
		status graph.Status
		reason string
	}{
		{graph.Suspend, graph.End, graph.StatusPending, "its flow %s.in ended early: node y failed and ends the flow"},
		{graph.Continue, graph.Continue, graph.StatusPending, "its flow %s.in ended with an error of node y: it is broken"},
		{graph.End, graph.End, graph.StatusFinish, "its flow %s.in ended early: node y failed and ends the flow"},
	} {
		key := fmt.Sprint("f", i)
		w.breaks(key+".in", "y", true)
		f := w.start(within(key, func(in, _, y *graph.NodeSpec) { in.OnFailure, y.OnFailure = c.policy, c.inner }))
		f = w.becomes(f.ID, c.status)
		require.Equal(t, fmt.Sprintf(c.reason, key), f.States[1].Reason)
		if c.policy == graph.Continue {
			require.Equal(t, graph.NodeError, f.States[1].Status)
		}
	}
	// What a person repairs in the flow repairs the node that started it.
	w.breaks("f0.in", "y", false)
	_, err := w.flows.RetryFrom(t.Context(), "-/f0.in", "y")
	require.NoError(t, err)
	w.becomes("-/f0", graph.StatusFinish)
}

func TestACancelledFlowCancelsTheFlowsOfItsNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := within("f")
	s.Nodes[1].Flow.Nodes[0].Type, s.Nodes[1].Flow.Nodes[0].Args = "", nil
	s.Nodes[1].Flow.Nodes[0].Wait = &graph.Wait{For: time.Hour}
	f := w.start(s)
	w.eventually("in is RUNNING", func() bool { return w.nodes(f.ID)["in"] == "RUNNING" })
	require.Eventually(t, func() bool { _, err := w.flows.Get(t.Context(), "-/f.in"); return err == nil }, testdb.Patience, 10*time.Millisecond)
	_, err := w.flows.Cancel(t.Context(), f.ID, "no longer wanted")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	child := w.becomes("-/f.in", graph.StatusFinish)
	require.Equal(t, "cancelled by the flow -/f", child.Reason)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "ERROR", "after": "SKIPPED"}, w.nodes(f.ID))
	n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "status", Value: model.StatusWait}})
	require.NoError(t, err)
	require.Zero(t, n, "no task stays behind")
}

// A person cancels the task of a node whose flow runs.
func TestACancelledTaskOfANodeCancelsItsFlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for policy, want := range map[graph.Policy]string{
		graph.Suspend:  "map[a:SUCCESS after:PENDING in:PENDING]",
		graph.Continue: "map[a:SUCCESS after:PENDING in:ERROR]",
		graph.End:      "map[a:SUCCESS after:SKIPPED in:ERROR]",
	} {
		key := string(policy)
		f := w.start(within(key, func(in, x, _ *graph.NodeSpec) {
			in.OnFailure, x.Type, x.Args, x.Wait = policy, "", nil, &graph.Wait{For: time.Hour}
		}))
		child := "-/" + key + ".in"
		w.eventually("its flow runs", func() bool { _, err := w.flows.Get(t.Context(), child); return err == nil })
		prod, err := producer.New(producer.Config{Database: w.db})
		require.NoError(t, err)
		_, err = prod.Cancel(t.Context(), "-/mscheduler.node/flow:"+key+":in", "no longer wanted")
		require.NoError(t, err)
		require.NoError(t, prod.Close(context.Background()))
		w.becomes(f.ID, map[bool]graph.Status{true: graph.StatusFinish, false: graph.StatusPending}[policy == graph.End])
		require.Equal(t, want, fmt.Sprint(w.nodes(f.ID)))
		require.Equal(t, "cancelled by the flow "+f.ID, w.becomes(child, graph.StatusFinish).Reason)
	}
}

func TestARetryGivesANodeAFlowOfItsNewLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f.in", "x", true)
	f := w.start(within("f"))
	w.becomes(f.ID, graph.StatusPending)
	_, err := w.flows.RetryFrom(t.Context(), f.ID, "in")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	old, err := w.flows.Get(t.Context(), "-/f.in")
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, old.Status, "the flow of the old life does not wait for ever")
	require.True(t, old.Closed)
	again, err := w.flows.Get(t.Context(), "-/f.in+1")
	require.NoError(t, err)
	require.EqualValues(t, 1, again.Parent.Generation)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
}

func TestAFlowOfAnotherIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(diamond("f.in"))
	f := w.start(within("f"))
	f = w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, "its flow f.in exists, and this node has not started it", f.States[1].Reason)
	_, err := w.flows.Cancel(t.Context(), f.ID, "")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	other := w.becomes("-/f.in", graph.StatusFinish)
	require.False(t, other.Closed, "it is left alone")
}

func TestFlowsNestAtMostEightDeep(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	deep := func(n int) graph.Spec {
		s := graph.Spec{Nodes: []graph.NodeSpec{node("z")}}
		for range n {
			inner := s
			s = graph.Spec{Nodes: []graph.NodeSpec{{ID: "in", Flow: &inner}}}
		}
		s.Key = "f"
		return s
	}
	err := flow.Validate(deep(9))
	require.ErrorContains(t, err, "flow.nodes[0].flow (node in) (node in) (node in)")
	require.ErrorContains(t, err, "nests flows more than 8 deep")
	f := w.start(deep(8))
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"in": "SUCCESS"}, w.nodes(f.ID))
	_, err = w.flows.Get(t.Context(), "-/f.in.in.in.in.in.in.in.in")
	require.NoError(t, err)
}
