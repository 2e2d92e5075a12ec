package flow

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// nested is a, then a node that starts a flow of one node.
func nested(key string) graph.Spec {
	return graph.Spec{Key: key, Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "in", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Flow: &graph.Spec{Nodes: []graph.NodeSpec{{ID: "x", Type: "t"}}}},
	}}
}

// write writes a decision and does nothing of what it plans, as an engine that dies then.
func (d *driven) write(before, after *graph.Flow) {
	d.t.Helper()
	applied, _, err := d.f.store.Flows.Write(d.t.Context(), []store.Decision[*graph.Flow]{{Before: before, After: after}})
	require.NoError(d.t, err)
	require.Equal(d.t, []bool{true}, applied)
}

func (d *driven) count(coll string) int64 {
	d.t.Helper()
	n, err := d.db.Collection(coll).CountDocuments(d.t.Context(), bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "~"}}}})
	require.NoError(d.t, err)
	return n
}

// An engine dies after each of the decisions between the end of a node and the end of the flow that
// the next one starts, and an older one wakes up and carries each out once more.
func TestAFlowOfANodeStartsAndEndsOnceWhereverTheEngineDies(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	db := testdb.Patient(t) // on a slow machine nothing seems to be held
	d := skipping(t, db, &off)
	doc, err := d.f.Start(t.Context(), nested("f"))
	require.NoError(t, err)
	sweeps := func() { d.rounds(&off) }
	sweeps()
	doc = d.get(doc)
	started, err := flowplan.Ended(doc, []flowplan.End{{Node: 0, Status: model.StatusFailure}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	d.write(doc, started)
	sweeps()
	child := d.get(&graph.Flow{ID: "-/f.in"})
	require.Equal(t, graph.StatusRunning, child.Status)
	tasks := d.count("tasks")
	d.finish(started)
	require.Equal(t, child.Rev, d.get(child).Rev)
	require.Equal(t, tasks, d.count("tasks"))

	for _, c := range []struct {
		status model.Status
		task   model.Status
		node   graph.NodeStatus
	}{{model.StatusFailure, model.StatusPending, graph.NodePending}, {model.StatusSuccess, model.StatusSuccess, graph.NodeSuccess}} {
		child = d.get(child)
		require.Empty(t, child.Planned)
		ended, err := flowplan.Ended(child, []flowplan.End{{Node: 0, Status: c.status}}, &flowplan.Inputs{Outputs: map[flowplan.Life]bson.RawValue{{}: {}}}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(child, ended)
		sweeps()
		require.Equal(t, c.task, d.task(doc, 1).Status)
		require.Equal(t, c.node, d.get(doc).States[1].Status)
		before := d.task(doc, 1).Rev
		d.finish(ended)
		require.Equal(t, before, d.task(doc, 1).Rev, "it was told")
	}
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)
}

// The task's life is younger than the flow that it waits for, as one of a later flow with the key of its
// own would be.
func TestATaskThatAPersonRetriedLaterEndsWithTheFlowThatItWaitsFor(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), nested("f"))
	require.NoError(t, err)
	d.cancels(doc, 0)
	child := d.get(&graph.Flow{ID: "-/f.in"})
	d.cancels(child, 0)
	d.told(doc, 1)
	require.Equal(t, graph.NodePending, d.get(doc).States[1].Status)
	later := time.Now().Add(time.Hour)
	_, _, err = d.f.store.Tasks.Change(t.Context(), taskID(doc, 1), func(t *model.Task) (*model.Task, error) {
		return lifecycle.RetryNow(t, "", lifecycle.EffectiveOf(t, model.Options{}), later)
	})
	require.NoError(t, err)
	require.Equal(t, model.StatusNew, d.task(doc, 1).Status)
	_, err = d.f.Resolve(t.Context(), child.ID, "x", graph.NodeSuccess, "by hand")
	require.NoError(t, err)
	require.Equal(t, model.StatusSuccess, d.task(doc, 1).Status)
	d.told(doc, 1)
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)

	// What an earlier flow with the key started does not end the task of a later one.
	_, err = d.db.Collection("flows").UpdateByID(t.Context(), doc.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "created_at", Value: later}}}})
	require.NoError(t, err)
	_, _, err = d.f.store.Tasks.Change(t.Context(), taskID(doc, 1), func(t *model.Task) (*model.Task, error) {
		c := *t
		c.Status, c.Rev = model.StatusWait, t.Rev+1
		return &c, nil
	})
	require.NoError(t, err)
	require.NoError(t, planner{d.f}.report(t.Context(), t.Context(), []*graph.Flow{d.get(child)}, map[string]error{}, true))
	require.Equal(t, model.StatusWait, d.task(doc, 1).Status)
}

// An engine has decided that a node starts a flow, or elements, and stands still. Meanwhile somebody cancels the task of
// the node, or has the node begin a new life.
func TestASlowEngineStartsNothingForANodeThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]graph.NodeSpec{
		"a flow":   {Flow: &graph.Spec{Nodes: []graph.NodeSpec{{ID: "x", Type: "t"}}}},
		"elements": {Type: "t", Each: &graph.Each{Items: []int{1, 2}}},
	} {
		for _, again := range []bool{false, true} {
			d := newDriven(t)
			node.ID, node.After, node.Join = "in", []string{"a"}, graph.Join{Strategy: graph.AllEnded}
			doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "a", Type: "t", OnFailure: graph.Continue}, node}})
			require.NoError(t, err)
			before := d.get(doc)
			slow, err := flowplan.Ended(before, []flowplan.End{{Node: 0, Status: model.StatusFailure}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
			require.NoError(t, err)
			d.write(before, slow)
			_, err = d.prod.Cancel(t.Context(), taskID(doc, 1), "not needed")
			require.NoError(t, err)
			d.told(doc, 1)
			require.Equal(t, graph.NodePending, d.get(doc).States[1].Status)
			if again {
				d.retry(doc, "in")
			}
			tasks, flows := d.count("tasks"), d.count("flows")
			require.Empty(t, d.finish(slow))
			require.Equal(t, []int64{tasks, flows}, []int64{d.count("tasks"), d.count("flows")}, name)
		}
	}
}
