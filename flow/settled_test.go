package flow

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// undone is a driven engine for which undo is called once, before the first read of a flow that only sees what a
// majority has.
func undone(t *testing.T, undo func(d *driven)) *driven {
	var d *driven
	var on atomic.Bool
	db := testdb.New(t)
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			coll, _ := e.Command.Lookup("find").StringValueOK()
			level, _ := e.Command.Lookup("readConcern", "level").StringValueOK()
			if coll == "flows" && level == "majority" && on.CompareAndSwap(true, false) {
				undo(d)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	d = drive(t, db, client.Database(db.Name()), clock.System())
	on.Store(true)
	return d
}

// becomes has a flow have a status, as if a failover had undone a decision, or somebody had decided.
func (d *driven) becomes(status graph.Status) {
	_, err := d.db.Collection("flows").UpdateByID(context.Background(), "-/f", bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: status}}}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
	if err != nil {
		d.t.Error(err)
	}
}

func TestAnEndThatAFailoverUndoesIsNotAwaited(t *testing.T) {
	t.Parallel()
	again := make(chan struct{})
	d := undone(t, func(d *driven) {
		d.becomes(graph.StatusRunning)
		close(again)
	})
	doc := d.start("f")
	d.becomes(graph.StatusFinish)
	go func() {
		<-again
		d.becomes(graph.StatusPending)
	}()
	now, err := d.f.Await(t.Context(), doc.ID)
	require.NoError(t, err)
	require.Equal(t, graph.StatusPending, now.Status)
}

func TestAnEndThatAFailoverUndoesEndsNoWatch(t *testing.T) {
	t.Parallel()
	again := make(chan struct{})
	d := undone(t, func(d *driven) {
		d.becomes(graph.StatusRunning)
		close(again)
	})
	doc := d.start("f")
	d.becomes(graph.StatusFinish)
	var told []graph.Status
	for e, err := range d.f.Watch(t.Context(), doc.ID) {
		require.NoError(t, err)
		if told = append(told, e.Flow); e.Node == "" && e.Flow == graph.StatusRunning {
			<-again
			d.becomes(graph.StatusFinish)
		}
	}
	require.Equal(t, []graph.Status{graph.StatusRunning, graph.StatusRunning, graph.StatusFinish}, told)
}

// After the failover another decision has the same rev, so nothing would tell it from the one that was undone.
func TestAWatchTellsNothingThatAFailoverUndoes(t *testing.T) {
	t.Parallel()
	decided := func(d *driven, status graph.Status, decision string) {
		set := bson.D{{Key: "status", Value: status}, {Key: "rev", Value: 5}, {Key: "decision", Value: decision}}
		if _, err := d.db.Collection("flows").UpdateByID(context.Background(), "-/f", bson.D{{Key: "$set", Value: set}}); err != nil {
			d.t.Error(err)
		}
	}
	d := undone(t, func(d *driven) { decided(d, graph.StatusFinish, "new") })
	doc := d.start("f")
	decided(d, graph.StatusPending, "undone")
	for e, err := range d.f.Watch(t.Context(), doc.ID) {
		require.NoError(t, err)
		require.Equal(t, graph.StatusFinish, e.Flow)
	}
}

func TestARefusalOfWhatAFailoverUndoesIsDecidedAgain(t *testing.T) {
	t.Parallel()
	d := undone(t, func(d *driven) {
		at := bson.D{{Key: "$set", Value: bson.D{{Key: "states.0.s", Value: graph.NodePending}, {Key: "states.0.own", Value: true}}}, {Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}}
		if _, err := d.db.Collection("flows").UpdateByID(context.Background(), "-/f", at); err != nil {
			d.t.Error(err)
		}
	})
	doc := d.start("f")
	now, err := d.f.Resolve(t.Context(), doc.ID, "a", graph.NodeSuccess, "")
	require.NoError(t, err)
	require.Equal(t, graph.NodeSuccess, now.States[0].Status)
	_, err = d.f.Resolve(t.Context(), doc.ID, "a", graph.NodeSuccess, "")
	var refused *model.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "node a: it is SUCCESS; only PENDING can be resolved", refused.Reason)
}
