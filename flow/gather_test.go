package flow

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// elements is how many have so many outputs that they cannot be read in the time of one call, if a command takes slowly.
const (
	elements = 10_000
	slowly   = 1500 * time.Millisecond
)

// gathers is a flow, as it was decided about, whose one node has elements that have all ended.
func (d *driven) gathers() *graph.Flow {
	d.t.Helper()
	doc, err := d.f.Start(d.t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "each", Type: "t", Each: &graph.Each{Items: make([]int, elements), Max: elements}, OnFailure: graph.Continue},
	}})
	require.NoError(d.t, err)
	var ends []flowplan.End
	var writes []mongo.WriteModel
	for k := range elements {
		ends = append(ends, flowplan.End{Element: k + 1, Status: model.StatusSuccess})
		set := bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusSuccess}, {Key: "result", Value: k}}}}
		writes = append(writes, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: flowspec.ElementID(doc, 0, k, 0)}}).SetUpdate(set))
	}
	_, err = d.db.Collection("tasks").BulkWrite(d.t.Context(), writes)
	require.NoError(d.t, err)
	return d.decided(doc, ends...)
}

// decided is a flow, what it planned carried out, after these ends.
func (d *driven) decided(f *graph.Flow, ends ...flowplan.End) *graph.Flow {
	d.t.Helper()
	before := d.get(f)
	before.Planned = nil
	after, err := flowplan.Ended(before, ends, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(d.t, err)
	return after
}

// perCall is what an engine gives a call.
const perCall = 20 * time.Second

// inOneCall carries decisions out.
func (d *driven) inOneCall(docs ...*graph.Flow) map[string]error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), perCall)
	defer cancel()
	held, err := planner{d.f}.Finish(ctx, docs, nil)
	require.NoError(d.t, err)
	return held
}

func TestOutputsOfElementsAreGatheredOnASlowDatabaseAndKeepNoOtherFlowWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	slow(t, slowly, func(t *testing.T, d *driven, slow func()) {
		doc, other := d.gathers(), d.start("other")
		docs := []*graph.Flow{doc, d.decided(other, flowplan.End{Status: model.StatusFailure})}
		slow()
		held := d.inOneCall(docs...)
		require.Len(t, held, 1)
		require.ErrorContains(t, held[doc.ID], "the outputs of the elements of node each")
		require.Equal(t, model.StatusNew, d.task(other, 1).Status)
		for tries := 1; len(d.inOneCall(docs...)) > 0; tries++ {
			require.Less(t, tries, 5, "it goes on with the rest")
		}

		task := d.task(doc, 0)
		require.Equal(t, model.StatusSuccess, task.Status)
		outputs, err := task.Result.Array().Values()
		require.NoError(t, err)
		require.Len(t, outputs, elements)
		for k, v := range outputs {
			require.EqualValues(t, k, v.AsInt64())
		}
		require.Empty(t, d.f.gathered.of, "nothing is remembered that nobody needs")
	})
}

// Either of them alone takes longer than a call may.
func TestNewLivesOfTasksAndOutputsOfElementsTogetherTakeNoLongerThanACallMay(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	slow(t, slowly, func(t *testing.T, d *driven, slow func()) {
		again, doc := d.retried(200), d.gathers()
		over, err := d.f.Start(t.Context(), graph.Spec{Key: "over", Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}}})
		require.NoError(t, err)
		over = d.decided(over, flowplan.End{Status: model.StatusSuccess})
		slow()
		require.Len(t, d.inOneCall(doc, again, over), 2, "what is left is for the next call")
	})
}
