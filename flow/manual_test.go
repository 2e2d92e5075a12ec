package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// manual has the tasks of a node wait for a person when they fail.
func manual(policy graph.Policy) func(n *graph.NodeSpec) {
	return func(n *graph.NodeSpec) {
		yes := true
		n.Options.NeedManual, n.OnFailure = &yes, policy
	}
}

func (w *world) producer() *producer.Producer {
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, prod.Close(context.Background())) })
	return prod
}

// Whatever the policy of its node, a Pending task waits for a person, who resolves it, has it run again or
// gives it up.
func TestAPendingTaskKeepsItsNodePendingUntilAPersonDecidesAboutIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.producer()
	for _, policy := range []graph.Policy{graph.Suspend, graph.Continue, graph.End} {
		begin := func(what string) (id, task string) {
			key := string(policy) + what
			w.breaks(key, "a", true)
			a, b := node("a"), node("b", "a")
			manual(policy)(&a)
			b.Join.Strategy = graph.AllEnded
			f := w.start(graph.Spec{Key: key, Nodes: []graph.NodeSpec{a, b}})
			require.Equal(t, "node a: its task is Pending: it is broken", w.becomes(f.ID, graph.StatusPending).Reason)
			require.Equal(t, map[string]string{"a": "PENDING", "b": "PENDING"}, w.nodes(f.ID))
			w.breaks(key, "a", false)
			return f.ID, "-/add/flow:" + key + ":a"
		}
		id, task := begin("resolved")
		_, err := prod.Resolve(t.Context(), task, "by hand")
		require.NoError(t, err)
		w.becomes(id, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS"}, w.nodes(id))

		id, task = begin("retried")
		_, err = prod.Retry(t.Context(), task, "")
		require.NoError(t, err)
		w.becomes(id, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", "b": "SUCCESS"}, w.nodes(id))
	}
}

func TestAPendingElementKeepsItsNodePendingUntilAPersonDecidesAboutIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.producer()
	for _, policy := range []graph.Policy{graph.Suspend, graph.Continue, graph.End} {
		key := string(policy)
		w.breaks(key, "each/1", true)
		f := w.start(fanned(key, []int{1, 2, 3}, graph.Each{Limit: 1}, manual(policy)))
		require.Equal(t, "node each: 1 of its 3 elements are Pending, the first is element 1", w.becomes(f.ID, graph.StatusPending).Reason)
		w.breaks(key, "each/1", false)
		_, err := prod.Retry(t.Context(), model.TaskID("", "add", "flow:"+key+":each/1"), "")
		require.NoError(t, err)
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", "each": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
		require.JSONEq(t, `[{"sum":101,"text":""},{"sum":102,"text":""},{"sum":103,"text":""}]`, w.outputJSON(f.ID, "each"))
	}
}

// ends waits until a task has the status, and returns its remark. It can move to the history then, and
// nobody is asked any more.
func (w *world) ends(prod *producer.Producer, id string, want model.Status) string {
	w.t.Helper()
	var task *model.Task
	require.Eventually(w.t, func() bool {
		var err error
		task, err = prod.Get(w.t.Context(), id)
		return err == nil && task.Status == want
	}, testdb.Patience, 10*time.Millisecond, "the task %s does not become %s", id, want)
	require.NotZero(w.t, task.ArchiveAt)
	return task.Remark
}

func TestThePendingTasksOfANodeEndWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.producer()
	for key, c := range map[string]struct {
		decide func(id, node string) (*graph.Flow, error)
		task   model.Status
		remark string
		nodes  map[string]string
	}{
		"success": {func(id, node string) (*graph.Flow, error) {
			return w.flows.Resolve(t.Context(), id, node, graph.NodeSuccess, "by hand")
		}, model.StatusManuallyProcessed, "by hand", map[string]string{"a": "SUCCESS", "b": "SUCCESS"}},
		"error": {func(id, node string) (*graph.Flow, error) {
			return w.flows.Resolve(t.Context(), id, node, graph.NodeError, "")
		}, model.StatusManuallyProcessed, "its node was resolved", map[string]string{"a": "ERROR", "b": "SUCCESS"}},
		"cancel": {func(id, _ string) (*graph.Flow, error) {
			return w.flows.Cancel(t.Context(), id, "no longer wanted")
		}, model.StatusCancelled, "cancelled by its flow", map[string]string{"a": "ERROR", "b": "SKIPPED"}},
	} {
		w.breaks(key, "a", true)
		a, b := node("a"), node("b", "a")
		manual(graph.Continue)(&a)
		b.Join.Strategy = graph.AllEnded
		f := w.start(graph.Spec{Key: key, Nodes: []graph.NodeSpec{a, b}})
		w.becomes(f.ID, graph.StatusPending)
		_, err := c.decide(f.ID, "a")
		require.NoError(t, err)
		require.Equal(t, c.remark, w.ends(prod, "-/add/flow:"+key+":a", c.task))
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, c.nodes, w.nodes(f.ID))

		key = "each-" + key
		w.breaks(key, "each/1", true)
		f = w.start(fanned(key, []int{1, 2, 3}, graph.Each{}, manual(graph.Continue)))
		w.becomes(f.ID, graph.StatusPending)
		_, err = c.decide(f.ID, "each")
		require.NoError(t, err)
		require.Equal(t, c.remark, w.ends(prod, "-/add/flow:"+key+":each/1", c.task))
		w.ends(prod, "-/mscheduler.node/flow:"+key+":each", model.StatusCancelled)
	}
}

// Nobody need decide about the elements of a life that is over, also where the node hangs on another in its new life.
func TestThePendingElementsOfALifeEndWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.producer()
	for key, from := range map[string]string{"itself": "each", "before": "a"} {
		w.breaks(key, "each/1", true)
		f := w.start(fanned(key, []int{1, 2, 3}, graph.Each{}, manual(graph.Suspend)))
		w.becomes(f.ID, graph.StatusPending)
		if w.breaks(key, "each/1", false); from == "a" {
			w.breaks(key, "a", true)
		}
		_, err := w.flows.RetryFrom(t.Context(), f.ID, from)
		require.NoError(t, err)
		require.Equal(t, "cancelled by its flow", w.ends(prod, "-/add/flow:"+key+":each/1", model.StatusCancelled))
		w.becomes(f.ID, map[string]graph.Status{"each": graph.StatusFinish, "a": graph.StatusPending}[from])
	}
}

func TestAPendingNodeOfAFlowThatIsOverIsResolvedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.producer()
	for _, status := range []graph.NodeStatus{graph.NodeSuccess, graph.NodeError} {
		key := string(status)
		w.breaks(key, "b", true)
		a, b, c, behind, d := node("a"), node("b", "a"), node("c", "a"), node("behind", "b"), node("d", "behind", "c")
		manual(graph.Continue)(&b)
		d.Join = graph.Join{Strategy: graph.AtLeast, N: 1}
		f := w.start(graph.Spec{Key: key, Nodes: []graph.NodeSpec{a, b, c, behind, d}})
		over := w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", "b": "PENDING", "c": "SUCCESS", "behind": "PENDING", "d": "SUCCESS"}, w.nodes(f.ID))
		task, err := prod.Get(t.Context(), "-/add/flow:"+key+":b")
		require.NoError(t, err)
		require.Equal(t, model.StatusPending, task.Status, "a person decides also when the flow is over")
		after, err := w.flows.Resolve(t.Context(), f.ID, "b", status, "by hand")
		require.NoError(t, err)
		require.Equal(t, graph.StatusFinish, after.Status)
		require.Equal(t, over.EndedAt, after.EndedAt)
		require.Equal(t, "by hand", w.ends(prod, "-/add/flow:"+key+":b", model.StatusManuallyProcessed))
		require.Equal(t, map[string]string{"a": "SUCCESS", "b": key, "c": "SUCCESS", "behind": "PENDING", "d": "SUCCESS"}, w.nodes(f.ID))

		// The flow goes on from another node, and knows what was resolved.
		_, err = w.flows.RetryFrom(t.Context(), f.ID, "c")
		require.NoError(t, err)
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, map[graph.NodeStatus]string{graph.NodeSuccess: "SUCCESS", graph.NodeError: "PENDING"}[status], w.nodes(f.ID)["behind"])
	}
}
