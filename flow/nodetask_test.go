package flow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// frees has the task of a node that no worker runs become New, as a person's command does.
func (w *world) frees(key string, command func(t *model.Task, eff lifecycle.Effective, now time.Time) (*model.Task, error)) {
	w.t.Helper()
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(w.t, err)
	_, after, err := st.Tasks.Change(w.t.Context(), "-/mscheduler.node/"+key, func(t *model.Task) (*model.Task, error) {
		return command(t, lifecycle.EffectiveOf(t, model.Options{}), time.Now())
	})
	require.NoError(w.t, err)
	require.Equal(w.t, model.StatusNew, after.Status)
}

func retried(t *model.Task, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
	return lifecycle.RetryNow(t, "", eff, now)
}

// leavesNothing requires that all tasks have ended.
func (w *world) leavesNothing() {
	w.t.Helper()
	n, err := w.db.Collection("tasks").CountDocuments(w.t.Context(), bson.D{{Key: "status", Value: bson.D{{Key: "$in", Value: bson.A{model.StatusWait, model.StatusNew, model.StatusError, model.StatusExecuting}}}}})
	require.NoError(w.t, err)
	require.Zero(w.t, n)
}

func TestANodeWhoseTaskAPersonReleasedEndsWithItsFlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate = make(chan struct{})
	f := w.startsChild()
	w.frees("flow:f:in", lifecycle.Release)
	close(w.gate)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"in": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
	require.Equal(t, 103, w.output(f.ID, "after").Sum)
	w.leavesNothing()
}

func TestANodeWhoseTaskAPersonReleasedEndsWhenItsFlowIsCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := within("f")
	s.Nodes[1].Flow.Nodes[0].Type, s.Nodes[1].Flow.Nodes[0].Args = "", nil
	s.Nodes[1].Flow.Nodes[0].Wait = &graph.Wait{For: time.Hour}
	f := w.start(s)
	require.Eventually(t, func() bool { _, err := w.flows.Get(t.Context(), "-/f.in"); return err == nil }, testdb.Patience, 10*time.Millisecond)
	w.frees("flow:f:in", lifecycle.Release)
	_, err := w.flows.Cancel(t.Context(), f.ID, "no longer wanted")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "ERROR", "after": "SKIPPED"}, w.nodes(f.ID))
	w.leavesNothing()
	_, err = w.flows.RetryFrom(t.Context(), f.ID, "in")
	require.NoError(t, err)
	w.frees("flow:f:in", lifecycle.Release)
	require.Eventually(t, func() bool { _, err := w.flows.Get(t.Context(), "-/f.in+1"); return err == nil }, testdb.Patience, 10*time.Millisecond)
	_, err = w.flows.Cancel(t.Context(), "-/f.in+1", "no longer wanted")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusPending)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "PENDING", "after": "PENDING"}, w.nodes(f.ID))
}

func TestANodeWhoseTaskAPersonRetriedEndsWithItsFlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("f.in", "x", true)
	f := w.start(within("f"))
	w.becomes(f.ID, graph.StatusPending)
	w.frees("flow:f:in", retried)
	_, err := w.flows.Resolve(t.Context(), "-/f.in", "x", graph.NodeSuccess, "by hand")
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	require.Equal(t, map[string]string{"a": "SUCCESS", "in": "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
	w.leavesNothing()
}

func TestAFlowGoesOnFromANodeWhoseTaskAPersonRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breaks("child.in", "x", true)
	w.breaks("each", "each/1", true)
	for node, f := range map[string]*graph.Flow{"in": w.start(within("child")), "each": w.start(fanned("each", []int{1, 2, 3}, graph.Each{}))} {
		w.becomes(f.ID, graph.StatusPending)
		w.frees("flow:"+f.Key+":"+node, retried)
		_, err := w.flows.RetryFrom(t.Context(), f.ID, node)
		require.NoError(t, err)
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, map[string]string{"a": "SUCCESS", node: "SUCCESS", "after": "SUCCESS"}, w.nodes(f.ID))
	}
	w.leavesNothing()
}

func TestANodeWhoseTaskAPersonReleasedEndsWithItsElements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, cancel := range []bool{false, true} {
		gate := make(chan struct{})
		w.mu.Lock()
		w.gate = gate
		w.mu.Unlock()
		s := fanned(map[bool]string{false: "runs", true: "cancelled"}[cancel], []int{1, 2, 3}, graph.Each{})
		s.Nodes = s.Nodes[1:]
		s.Nodes[0].After, s.Nodes[0].Args = nil, map[string]any{"terms": []int{1}}
		f := w.start(s)
		require.Eventually(t, func() bool { return w.count("^flow:"+f.Key+":each/") == 3 }, testdb.Patience, 10*time.Millisecond)
		w.frees("flow:"+f.Key+":each", lifecycle.Release)
		want := map[string]string{"each": "SUCCESS", "after": "SUCCESS"}
		if cancel {
			want = map[string]string{"each": "ERROR", "after": "SKIPPED"}
			_, err := w.flows.Cancel(t.Context(), f.ID, "no longer wanted")
			require.NoError(t, err)
		} else {
			close(gate)
		}
		w.becomes(f.ID, graph.StatusFinish)
		require.Equal(t, want, w.nodes(f.ID))
		w.leavesNothing()
	}
}

// count is the number of tasks with such keys.
func (w *world) count(keys string) int64 {
	w.t.Helper()
	n, err := w.db.Collection("tasks").CountDocuments(w.t.Context(), bson.D{{Key: "key", Value: bson.Regex{Pattern: keys}}})
	require.NoError(w.t, err)
	return n
}
