package flow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
)

// Each command takes so long that the outputs of all elements cannot be read in the time of one call.
func TestOutputsOfElementsAreGatheredOnASlowDatabaseAndKeepNoOtherFlowWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, perCall = 6000, 20 * time.Second
		server, err := engine.Virtual(embedded.Options{}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		px, err := proxy.Start(server.URI)
		require.NoError(t, err)
		t.Cleanup(px.Close)
		db := engine.Fresh(t, engine.Connect(t, server.URI))
		d := drive(t, db, engine.Connect(t, px.URI()).Database(db.Name()), clock.System())

		doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
			{ID: "each", Type: "t", Each: &graph.Each{Items: make([]int, n), Max: n}, OnFailure: graph.Continue},
		}})
		require.NoError(t, err)
		other := d.start("other")
		var ends []flowplan.End
		var writes []mongo.WriteModel
		for k := range n {
			ends = append(ends, flowplan.End{Element: k + 1, Status: model.StatusSuccess})
			set := bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusSuccess}, {Key: "result", Value: k}}}}
			writes = append(writes, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: flowspec.ElementID(doc, 0, k, 0)}}).SetUpdate(set))
		}
		_, err = db.Collection("tasks").BulkWrite(t.Context(), writes)
		require.NoError(t, err)
		decide := func(f *graph.Flow, ends ...flowplan.End) *graph.Flow {
			before := d.get(f)
			before.Planned = nil // it is carried out
			after, err := flowplan.Ended(before, ends, &flowplan.Inputs{}, d.f.store.Clock.Now())
			require.NoError(t, err)
			return after
		}
		docs := []*graph.Flow{decide(doc, ends...), decide(other, flowplan.End{Status: model.StatusFailure})}

		px.Delay(1500 * time.Millisecond)
		finish := func() map[string]error {
			ctx, cancel := context.WithTimeout(t.Context(), perCall)
			defer cancel()
			held, err := planner{d.f}.Finish(ctx, docs, nil)
			require.NoError(t, err)
			return held
		}
		held := finish()
		require.Len(t, held, 1)
		require.ErrorContains(t, held[doc.ID], "the outputs of the elements of node each")
		require.Equal(t, model.StatusNew, d.task(other, 1).Status)
		require.Empty(t, finish(), "it goes on with the rest")

		task := d.task(doc, 0)
		require.Equal(t, model.StatusSuccess, task.Status)
		outputs, err := task.Result.Array().Values()
		require.NoError(t, err)
		require.Len(t, outputs, n)
		for k, v := range outputs {
			require.EqualValues(t, k, v.AsInt64())
		}
		require.Empty(t, d.f.gathered.of, "nothing is remembered that nobody needs")
	})
}
