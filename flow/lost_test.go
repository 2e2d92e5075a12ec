package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
)

// ago has a node have its status for longer than the end of its task may take.
func (d *driven) ago(doc *graph.Flow, i string) {
	d.t.Helper()
	at := bson.D{{Key: "states." + i + ".at", Value: time.Now().Add(-2 * lostAfter)}}
	_, err := d.db.Collection("flows").UpdateByID(d.t.Context(), doc.ID, bson.D{{Key: "$set", Value: at}})
	require.NoError(d.t, err)
}

func TestAStreamGoesOnAfterALostEndAlthoughNodesAreAppended(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	_, err := d.f.Append(t.Context(), "s", "g", graph.NodeSpec{ID: "a", Type: "t", OnFailure: graph.Continue})
	require.NoError(t, err)
	require.NoError(t, d.f.Flush(t.Context()))
	doc := d.get(&graph.Flow{ID: "s/g"})
	d.deletes(taskID(doc, 0))
	d.ago(doc, "0")
	_, err = d.f.Append(t.Context(), "s", "g", graph.NodeSpec{ID: "b", Type: "t"})
	require.NoError(t, err)
	_, err = d.f.linkOnce(t.Context(), []string{doc.ID}, everything, anyStream)
	require.NoError(t, err)
	require.NoError(t, planner{d.f}.Sweep(t.Context()))
	now := d.get(doc)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeReady}, []graph.NodeStatus{now.States[0].Status, now.States[1].Status})
	require.Equal(t, "its task is gone", now.States[0].Reason)
}

// What is planned about a node is no reason to leave out the others, but its own task may not be stored yet.
func TestALostEndIsFoundWhileAnotherBranchIsBusy(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	n := func(id string, after ...string) graph.NodeSpec {
		return graph.NodeSpec{ID: id, Type: "t", After: after, OnFailure: graph.Continue, Join: graph.Join{Strategy: graph.AllEnded}}
	}
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "a", Type: "t", OnFailure: graph.Continue}, n("lost", "a"), n("busy", "a"), n("next", "busy"), n("z", "lost", "next")}})
	require.NoError(t, err)
	require.Equal(t, graph.NodeReady, d.cancels(doc, 0).States[1].Status)
	d.deletes(taskID(doc, 1))
	d.deletes(taskID(doc, 3))
	d.ago(doc, "1")
	before := d.get(doc)
	after, err := flowplan.Ended(before, []flowplan.End{{Node: 2}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	d.write(before, after)
	d.ago(doc, "3")
	require.NoError(t, planner{d.f}.Sweep(t.Context()))
	now := d.get(doc)
	require.Equal(t, graph.NodeError, now.States[1].Status, "nobody tells its end")
	require.Equal(t, graph.NodeReady, now.States[3].Status, "its release is planned")
}
