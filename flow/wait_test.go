package flow

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// ahead is a clock that is ahead.
type ahead struct {
	clock.Clock
	by *atomic.Int64
}

func (a ahead) Now() time.Time           { return a.Clock.Now().Add(time.Duration(a.by.Load())) }
func (a ahead) Monotonic() time.Duration { return a.Clock.Monotonic() + time.Duration(a.by.Load()) }

// skipping is a driven engine whose time the test moves.
func skipping(t *testing.T, db *mongo.Database, off *atomic.Int64) *driven {
	d := &driven{t: t, db: db}
	var err error
	d.f, err = New(Config{Database: db, Clock: ahead{clock.System(), off}})
	require.NoError(t, err)
	d.prod, err = producer.New(producer.Config{Database: db, Clock: ahead{clock.System(), off}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.prod.Close(context.Background())) })
	d.e = decision.NewEngine(d.f.id, flowplan.EngineType, d.f.decider)
	require.NoError(t, d.e.Start(t.Context()))
	return d
}

// The engine that heard of the end of a dies. Another one sleeps until the time, which it reads.
func TestAWaitSurvivesItsEngineAndEndsAtItsTime(t *testing.T) {
	var off atomic.Int64
	db := testdb.New(t)
	d := skipping(t, db, &off)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "w", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Wait: &graph.Wait{For: 3 * time.Second}},
		{ID: "b", Type: "t", After: []string{"w"}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	now := d.cancels(doc, 0)
	require.Equal(t, graph.NodeReady, now.States[1].Status)
	require.Equal(t, now.States[1].At.Add(3*time.Second), now.DueAt)

	other := skipping(t, db, &off)
	off.Add(int64(time.Second))
	left := now.DueAt.Sub(other.f.store.Clock.Now()) // before the round, which takes its time
	pause := other.e.Round(t.Context())
	require.LessOrEqual(t, pause, left+100*time.Millisecond)
	require.Equal(t, graph.NodeReady, other.get(doc).States[1].Status, "not a moment early")
	off.Add(int64(max(now.DueAt.Sub(other.f.store.Clock.Now()), 0)))
	for range 10 { // it may be the dead engine's turn first
		other.e.Round(t.Context())
		off.Add(int64(200 * time.Millisecond))
	}
	after := other.get(doc)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeSuccess, graph.NodeReady}, []graph.NodeStatus{after.States[0].Status, after.States[1].Status, after.States[2].Status})
	require.Equal(t, model.StatusNew, other.task(doc, 2).Status)
	nodes, err := other.f.Nodes(t.Context(), doc.ID)
	require.NoError(t, err)
	require.Equal(t, graph.NodeSuccess, nodes[1].Status)
	require.Empty(t, nodes[1].TaskID)
	var record graph.Node
	require.NoError(t, db.Collection("flow_nodes").FindOne(t.Context(), bson.D{{Key: "_id", Value: doc.ID + "/w"}}).Decode(&record))
	require.Equal(t, graph.NodeSuccess, record.Status)
}

func TestAnEngineSleepsUntilANodeHasWaited(t *testing.T) {
	var off atomic.Int64
	d := skipping(t, testdb.New(t), &off)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "w", Wait: &graph.Wait{For: time.Hour}}, {ID: "b", Type: "t", After: []string{"w"}}}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	for _, left := range []time.Duration{3 * time.Second, time.Second, 100 * time.Millisecond} {
		off.Add(int64(doc.DueAt.Sub(d.f.store.Clock.Now()) - left))
		began := clock.System().Monotonic()
		pause := d.e.Round(t.Context())
		took := clock.System().Monotonic() - began
		require.LessOrEqual(t, pause, left)
		require.Greater(t, pause, left-took-5*time.Millisecond, "no look but the one at that time")
		require.Equal(t, graph.NodeReady, d.get(doc).States[0].Status)
	}
	off.Add(int64(max(doc.DueAt.Sub(d.f.store.Clock.Now()), 0)))
	d.e.Round(t.Context())
	require.Equal(t, graph.NodeSuccess, d.get(doc).States[0].Status)
}
