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
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// fanned is a, then a node with a task for each of the flow's terms, which adds the output of a,
// then after, which adds up what the first two have.
func fanned(key string, terms []int, each graph.Each, change ...func(n *graph.NodeSpec)) graph.Spec {
	n, after := node("each", "a"), node("after", "each")
	if each.Items == nil {
		each.Items = flow.Arg("terms")
	}
	n.Each, n.Args = &each, map[string]any{"terms": []any{flow.Item(""), flow.Output("a.sum")}}
	after.Args = map[string]any{"terms": []any{flow.Output("each.0.sum"), flow.Output("each.1.sum")}}
	for _, f := range change {
		f(&n)
	}
	a := node("a")
	a.Args = map[string]any{"terms": []int{100}}
	return graph.Spec{Key: key, Args: map[string]any{"terms": terms}, Nodes: []graph.NodeSpec{a, n, after}}
}

func (w *world) outputJSON(id, node string) string {
	w.t.Helper()
	views, err := w.flows.Nodes(w.t.Context(), id)
	require.NoError(w.t, err)
	for _, v := range views {
		if v.Node.Node == node {
			return string(codec.ValueJSON(v.Output))
		}
	}
	return ""
}

func TestANodeHasATaskForEachElementAndTheirOutputsInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, limit := range []int{0, 1, 2} {
		f := w.start(fanned(fmt.Sprint("f", limit), []int{1, 2, 3}, graph.Each{Limit: limit}))
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", "each": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
		require.JSONEq(t, `[{"sum":101,"text":""},{"sum":102,"text":""},{"sum":103,"text":""}]`, w.outputJSON(f.ID, "each"))
		require.Equal(t, 203, w.output(f.ID, "after").Sum)
	}
	f := w.start(fanned("none", []int{}, graph.Each{}))
	w.becomes(f.ID, graph.StatusFinish)
	require.JSONEq(t, `[]`, w.outputJSON(f.ID, "each"))
}

func TestNoMoreElementsRunThanAreAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.start(fanned("f", []int{1, 2, 3, 4, 5, 6}, graph.Each{Limit: 2}))
	for {
		doc, err := w.flows.Get(t.Context(), f.ID)
		require.NoError(t, err)
		n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{
			{Key: "key", Value: bson.Regex{Pattern: "^flow:f:each/"}}, {Key: "status", Value: bson.D{{Key: "$in", Value: bson.A{model.StatusNew, model.StatusExecuting}}}},
		})
		require.NoError(t, err)
		require.LessOrEqual(t, n, int64(2))
		if doc.Status == graph.StatusFinish {
			break
		}
		time.Sleep(time.Millisecond) // a moment that nobody chose
	}
}

func TestAnElementThatFailsFollowsThePolicyOfItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const why = "1 of its 3 elements failed, the first is element 1: it is broken"
	for policy, want := range map[graph.Policy]string{
		graph.Suspend:  "map[a:SUCCESS after:PENDING each:PENDING]",
		graph.Continue: "map[a:SUCCESS after:PENDING each:ERROR]",
		graph.End:      "map[a:SUCCESS after:SKIPPED each:ERROR]",
	} {
		key := string(policy)
		w.breaks(key, "each/1", true)
		f := w.start(fanned(key, []int{1, 2, 3}, graph.Each{}, func(n *graph.NodeSpec) { n.OnFailure = policy }))
		f = w.becomes(f.ID, map[bool]graph.Status{true: graph.StatusFinish, false: graph.StatusPending}[policy == graph.End])
		require.Equal(t, why, f.States[1].Reason)
		require.Equal(t, want, fmt.Sprint(w.nodes(f.ID)))
	}
	// A person resolves the node: the output of the element that failed is null.
	_, err := w.flows.Resolve(t.Context(), "-/suspend", "each", graph.NodeSuccess, "")
	require.NoError(t, err)
	w.becomes("-/suspend", graph.StatusFinish)
	require.Equal(t, 101, w.output("-/suspend", "after").Sum)
}

func TestAnElementThatAPersonRunsAgainRepairsItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f", "each/1", true)
	f := w.start(fanned("f", []int{1, 2, 3}, graph.Each{}))
	w.becomes(f.ID, graph.StatusPending)
	w.breaks("f", "each/1", false)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	_, err = prod.Retry(t.Context(), "-/add/flow:f:each/1", "")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.JSONEq(t, `[{"sum":101,"text":""},{"sum":102,"text":""},{"sum":103,"text":""}]`, w.outputJSON(f.ID, "each"))
	require.Equal(t, 203, w.output(f.ID, "after").Sum)
}

func TestANewLifeOfANodeHasElementsOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f", "each/1", true)
	f := w.start(fanned("f", []int{1, 2, 3}, graph.Each{}))
	w.becomes(f.ID, graph.StatusPending)
	_, err := w.flows.RetryFrom(t.Context(), f.ID, "a")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.JSONEq(t, `[{"sum":101,"text":""},{"sum":102,"text":""},{"sum":103,"text":""}]`, w.outputJSON(f.ID, "each"))
	n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "key", Value: bson.Regex{Pattern: "^flow:f:each/[0-9]*/1$"}}})
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
}

func TestACancelledFlowCancelsElements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := fanned("f", []int{1, 2, 3}, graph.Each{Limit: 2})
	s.Nodes = s.Nodes[1:]
	s.Nodes[0].After, s.Nodes[0].Args = nil, nil
	w.gate = make(chan struct{})
	f := w.start(s)
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ran) == 2
	}, testdb.Patience, 10*time.Millisecond)
	_, err := w.flows.Cancel(t.Context(), f.ID, "no longer wanted")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"each": "ERROR", "after": "SKIPPED"}, w.nodes(f.ID))
	n, err := w.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "key", Value: bson.Regex{Pattern: "^flow:"}}, {Key: "status", Value: bson.D{{Key: "$nin", Value: bson.A{model.StatusCancelled, model.StatusFailure}}}}})
	require.NoError(t, err)
	require.Zero(t, n, "no task stays behind")
}

func TestOutputsThatAreTooLargeTogetherAreAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := fanned("f", make([]int, 6), graph.Each{}, func(n *graph.NodeSpec) {
		n.Args = map[string]any{"text": flow.Output("a.text")}
	})
	long := make([]byte, 200_000)
	for i := range long {
		long[i] = 'x'
	}
	s.Nodes[0].Args = map[string]any{"text": string(long)}
	f := w.start(s)
	f = w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, "the outputs of its elements have more than 1048576 bytes together", f.States[1].Reason)
}
