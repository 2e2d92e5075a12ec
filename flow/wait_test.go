package flow

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
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
	return drive(t, db, db, ahead{clock.System(), off})
}

// rounds has the engine look for fifteen seconds. It goes on while a decision is not carried out: on a slow machine the
// engine may have read the database's time meanwhile, which takes back what was skipped.
func (d *driven) rounds(off *atomic.Int64) {
	d.t.Helper()
	testdb.Eventually(d.t, "all decisions are carried out", func() bool {
		for range 15 {
			off.Add(int64(time.Second))
			d.e.Round(d.t.Context())
		}
		d.e.Flush(d.t.Context())
		plans, err := d.db.Collection("flows").CountDocuments(d.t.Context(), bson.D{{Key: "planned.0", Value: bson.D{{Key: "$exists", Value: true}}}})
		require.NoError(d.t, err)
		return plans == 0
	})
}

// until moves the clock of a driven engine to that long before a time.
func (d *driven) until(c *testdb.Clock, at time.Time, left time.Duration) {
	c.Move(at.Sub(d.f.store.Clock.Now()) - left)
}

// The engine that heard of the end of a dies. Another one sleeps until the time, which it reads.
func TestAWaitSurvivesItsEngineAndEndsAtItsTime(t *testing.T) {
	db := testdb.New(t)
	d := drive(t, db, db, clock.System())
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "w", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, Wait: &graph.Wait{For: time.Hour}},
		{ID: "b", Type: "t", After: []string{"w"}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	now := d.cancels(doc, 0)
	require.Equal(t, graph.NodeReady, now.States[1].Status)
	require.Equal(t, now.States[1].At.Add(time.Hour), now.DueAt)

	c := testdb.NewClock()
	other := drive(t, db, db, c)
	other.until(c, now.DueAt, 2*time.Second)
	require.Equal(t, 2*time.Second, other.e.Round(t.Context()))
	require.Equal(t, graph.NodeReady, other.get(doc).States[1].Status, "not a moment early")
	late := time.Duration(0)
	testdb.Eventually(t, "the node has waited", func() bool { // it may be the dead engine's turn first
		other.until(c, now.DueAt, -late)
		other.e.Round(t.Context())
		late += 200 * time.Millisecond
		return other.get(doc).States[1].Status == graph.NodeSuccess
	})
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
	db, c := testdb.New(t), testdb.NewClock()
	d := drive(t, db, db, c)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "w", Wait: &graph.Wait{For: time.Hour}}, {ID: "b", Type: "t", After: []string{"w"}}}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	for _, left := range []time.Duration{3 * time.Second, time.Second, 100 * time.Millisecond} {
		d.until(c, doc.DueAt, left)
		require.Equal(t, left, d.e.Round(t.Context()), "no look but the one at that time")
		require.Equal(t, graph.NodeReady, d.get(doc).States[0].Status)
	}
	d.until(c, doc.DueAt, 0)
	d.e.Round(t.Context())
	require.Equal(t, graph.NodeSuccess, d.get(doc).States[0].Status)
}
