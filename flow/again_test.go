package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Somebody deleted the flow, and not its tasks. A flow with the same key does not take their ends.
func TestAFlowDoesNotTakeTheEndsOfAnEarlierOneWithItsKey(t *testing.T) {
	d := newDriven(t)
	doc := d.start("f")
	for i := range 3 { // no engine runs, so none learns of these ends
		_, err := d.prod.Cancel(t.Context(), taskID(doc, i), "over")
		require.NoError(t, err)
	}
	ctx, long := t.Context(), bson.D{{Key: "created_at", Value: time.Now().Add(-time.Hour)}}
	_, err := d.db.Collection("tasks").UpdateMany(ctx, bson.D{{Key: "type", Value: "t"}}, bson.D{{Key: "$set", Value: long}})
	require.NoError(t, err)
	_, err = d.db.Collection("flows").DeleteOne(ctx, bson.D{{Key: "_id", Value: doc.ID}})
	require.NoError(t, err)
	_, err = d.db.Collection("flow_nodes").DeleteMany(ctx, bson.D{{Key: "flow_id", Value: doc.ID}})
	require.NoError(t, err)

	doc = d.start("f")
	d.told(doc, 0)
	require.Equal(t, graph.NodeReady, d.get(doc).States[0].Status)
	ago := time.Now().Add(-2 * lostAfter)
	_, err = d.db.Collection("flows").UpdateByID(ctx, doc.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "updated_at", Value: ago}, {Key: "states.0.at", Value: ago}}}})
	require.NoError(t, err)
	require.NoError(t, planner{d.f}.Sweep(ctx))
	now := d.get(doc)
	require.Equal(t, graph.NodeError, now.States[0].Status)
	require.Equal(t, "its task exists already: it is that of an earlier flow with this key", now.States[0].Reason)
	d.told(doc, 1)
	require.Equal(t, graph.NodeReady, d.get(doc).States[1].Status, "nor does the next node")
}

func TestAnEngineThatRemembersAFlowLearnsWhatAPersonDecided(t *testing.T) {
	d := newDriven(t)
	doc := d.start("f")
	require.Equal(t, graph.NodeReady, d.cancels(doc, 0).States[1].Status) // the engine remembers it from now on
	_, err := d.f.Cancel(t.Context(), doc.ID, "not needed")
	require.NoError(t, err)
	d.told(doc, 1)
	now := d.get(doc)
	require.Equal(t, graph.StatusFinish, now.Status)
	require.Equal(t, graph.NodeSkipped, now.States[2].Status)
}

// An engine beside the workers decides about a large flow faster than another process reads it.
func TestACommandGetsThroughThoughOthersDecideAllTheTime(t *testing.T) {
	t.Parallel()
	c := testdb.NewClock()
	db := testdb.New(t)
	d := drive(t, db, db, c)
	doc := d.start("f")
	busy := 80
	_, err := d.f.change(t.Context(), "cancelling", doc.ID, "", func(doc *graph.Flow, _ int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		if busy--; busy >= 0 {
			d.becomes(graph.StatusRunning)
		}
		return flowplan.Cancel(doc, "", in, now)
	})
	require.NoError(t, err)
	require.True(t, d.get(doc).Closed)

	doc = d.start("g") // about which others always decide
	_, err = d.f.change(t.Context(), "cancelling", doc.ID, "", func(doc *graph.Flow, _ int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		c.Move(changePatience)
		_, err := d.db.Collection("flows").UpdateByID(t.Context(), doc.ID, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
		require.NoError(t, err)
		return flowplan.Cancel(doc, "", in, now)
	})
	require.ErrorContains(t, err, "others changed it in between for 10s")
}

func TestARefusedCommandOnAFlowIsARefusedError(t *testing.T) {
	d := newDriven(t)
	doc := d.start("f")
	commands := map[string]func() error{
		"resolve": func() error { _, err := d.f.Resolve(t.Context(), doc.ID, "a", graph.NodeSuccess, ""); return err },
		"answer":  func() error { _, err := d.f.Answer(t.Context(), doc.ID, "a", map[string]any{}, ""); return err },
		"retry":   func() error { _, err := d.f.RetryFrom(t.Context(), doc.ID, "a"); return err },
	}
	for name, command := range commands {
		var refused *model.RefusedError
		require.ErrorAs(t, command(), &refused, name)
		require.Equal(t, doc.ID, refused.ID)
		require.Empty(t, refused.Status)
		require.Regexp(t, "^-/f: node a: it ", refused.Error())
	}
}
