package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// changes changes a task, as a worker or a person would, and lets nobody know.
func (d *driven) changes(id string, how func(t *model.Task) (*model.Task, error)) {
	d.t.Helper()
	_, _, err := d.f.store.Tasks.Change(d.t.Context(), id, how)
	require.NoError(d.t, err)
}

// runsAgain has a person retry a task, and a worker claim it.
func (d *driven) runsAgain(id string) {
	d.t.Helper()
	now := d.f.store.Clock.Now()
	d.changes(id, func(t *model.Task) (*model.Task, error) {
		return lifecycle.RetryNow(t, "", lifecycle.EffectiveOf(t, model.Options{}), now)
	})
	d.changes(id, func(t *model.Task) (*model.Task, error) {
		claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w", ExecID: "w"}, lifecycle.EffectiveOf(t, model.Options{}), now)
		require.Empty(d.t, no)
		return claimed, nil
	})
}

// ends has the handler of a worker return.
func (d *driven) ends(id string) {
	d.t.Helper()
	now := d.f.store.Clock.Now()
	d.changes(id, func(t *model.Task) (*model.Task, error) {
		require.False(d.t, t.CancelRequestedAt.IsZero(), "its handler hears of it")
		return lifecycle.Finish(t, "w", lifecycle.Success(bson.RawValue{}), lifecycle.EffectiveOf(t, model.Options{}), now, 0)
	})
}

// A person has had the failed task of a PENDING node run again when the flow is cancelled, or when another node ends it.
func TestAFlowThatEndsEarlyWaitsForTasksThatAPersonRetried(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]func(d *driven, doc *graph.Flow){
		"cancel": func(d *driven, doc *graph.Flow) {
			_, err := d.f.Cancel(t.Context(), doc.ID, "not needed")
			require.NoError(t, err)
		},
		"another node": func(d *driven, doc *graph.Flow) { d.cancels(doc, 2) },
	} {
		d := newDriven(t)
		doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
			{ID: "a", Type: "t"}, {ID: "again", Type: "t", After: []string{"a"}}, {ID: "ends", Type: "t", After: []string{"a"}, OnFailure: graph.End}, {ID: "failed", Type: "t", After: []string{"a"}},
			{ID: "z", Type: "t", After: []string{"again", "ends", "failed"}},
		}})
		require.NoError(t, err)
		d.succeeds(taskID(doc, 0), 1)
		d.told(doc, 0)
		now := d.cancels(doc, 1, 3)
		require.Equal(t, []graph.NodeStatus{graph.NodePending, graph.NodeReady, graph.NodePending}, []graph.NodeStatus{now.States[1].Status, now.States[2].Status, now.States[3].Status})
		d.runsAgain(taskID(doc, 1))
		early(d, doc)
		if name == "cancel" {
			d.told(doc, 2)
		}
		now = d.get(doc)
		require.Equal(t, []graph.NodeStatus{graph.NodeReady, graph.NodeError, graph.NodeError}, []graph.NodeStatus{now.States[1].Status, now.States[2].Status, now.States[3].Status}, name)
		require.Equal(t, graph.StatusRunning, now.Status)
		d.ends(taskID(doc, 1))
		d.told(doc, 1)
		now = d.get(doc)
		require.Equal(t, graph.StatusFinish, now.Status)
		require.Equal(t, graph.NodeSuccess, now.States[1].Status, "it succeeded all the same")
	}
}

func TestACancelledFlowWaitsForElementsThatAPersonRetried(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "x", Type: "t", Each: &graph.Each{Items: []int{1, 2}}}}})
	require.NoError(t, err)
	for k := range 2 {
		d.changes(flowspec.ElementID(doc, 0, k, 0), func(t *model.Task) (*model.Task, error) {
			return lifecycle.Conclude(t, model.StatusPending, bson.RawValue{}, "look", lifecycle.EffectiveOf(t, model.Options{}), d.f.store.Clock.Now()), nil
		})
	}
	works := func(is graph.Status) {
		t.Helper()
		for range 1000 {
			if d.get(doc).Status == is {
				return
			}
			d.e.Round(t.Context())
			d.e.Flush(t.Context())
		}
		require.Equal(t, is, d.get(doc).Status)
	}
	works(graph.StatusPending)
	again := flowspec.ElementID(doc, 0, 1, 0)
	d.runsAgain(again)
	now, err := d.f.Cancel(t.Context(), doc.ID, "not needed")
	require.NoError(t, err)
	require.Equal(t, graph.StatusRunning, now.Status)
	d.told(doc, 0)
	require.Equal(t, graph.StatusRunning, d.get(doc).Status)
	d.ends(again)
	works(graph.StatusFinish)
	require.Equal(t, graph.NodeError, d.get(doc).States[0].Status)
}

func TestACancelledFlowWaitsForTheFlowOfANodeThatGoesOn(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), nested("f"))
	require.NoError(t, err)
	d.cancels(doc, 0)
	child := d.get(&graph.Flow{ID: "-/f.in"})
	d.cancels(child, 0)
	d.told(doc, 1)
	require.Equal(t, graph.StatusPending, d.get(doc).Status)
	d.runsAgain(taskID(child, 0))
	now, err := d.f.Cancel(t.Context(), doc.ID, "not needed")
	require.NoError(t, err)
	require.Equal(t, graph.StatusRunning, now.Status)
	require.Equal(t, graph.StatusRunning, d.get(child).Status)
	d.ends(taskID(child, 0))
	d.told(child, 0)
	d.told(doc, 1)
	require.Equal(t, graph.StatusFinish, d.get(child).Status)
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)
	require.Equal(t, graph.NodeError, d.get(doc).States[1].Status)
}

// The task ran when the flow was read, and ended, for a second time, before the cancel was written: the flow knew nothing
// to do with that end.
func TestACancelledFlowIsToldOfAnEndThatItDidNotWaitFor(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}}})
	require.NoError(t, err)
	before := d.cancels(doc, 0)
	require.Equal(t, graph.StatusPending, before.Status)
	after, err := flowplan.Cancel(before, "not needed", &flowplan.Inputs{Working: map[flowplan.Life]bool{{}: true}}, d.f.store.Clock.Now())
	require.NoError(t, err)
	require.Equal(t, graph.StatusRunning, after.Status)
	d.write(before, after)
	for range 2 {
		d.finish(after)
	}
	require.Len(t, d.task(doc, 0).Outbox, 1)
	d.told(doc, 0)
	require.Equal(t, graph.StatusFinish, d.get(doc).Status)
}
