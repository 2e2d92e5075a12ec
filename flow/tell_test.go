package flow

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// The engine that decided died before it had told anybody. Another one does, once, however often
// the decision is carried out.
func TestACallbackIsSentOnceAlthoughTheEngineThatDecidedDied(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	db := testdb.New(t)
	d := skipping(t, db, &off)
	url := &model.CallbackTarget{URL: "http://127.0.0.1:9/"}
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Callback: &model.Callback{Success: url, Error: url}, Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}}})
	require.NoError(t, err)
	doc = d.get(doc)
	after, err := flowplan.Ended(doc, []flowplan.End{{Node: 0, Status: model.StatusFailure, ErrorInfo: "no"}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	applied, _, err := d.f.store.Flows.Write(t.Context(), []store.Decision[*graph.Flow]{{Before: doc, After: after}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, applied)
	deliveries := func() []model.Task {
		cur, err := db.Collection("tasks").Find(t.Context(), bson.D{{Key: "type", Value: input.CallbackType}})
		require.NoError(t, err)
		var out []model.Task
		require.NoError(t, cur.All(t.Context(), &out))
		return out
	}
	require.Empty(t, deliveries())

	other := skipping(t, db, &off)
	for range 30 {
		off.Add(int64(time.Second))
		other.e.Round(t.Context())
	}
	require.Len(t, deliveries(), 1)
	first := deliveries()[0]
	_, err = d.f.decider.CarryOut(t.Context(), []*graph.Flow{after}) // the dead one was only frozen
	require.NoError(t, err)
	require.Equal(t, []model.Task{first}, deliveries())

	_, err = other.f.Resolve(t.Context(), doc.ID, "a", graph.NodeSuccess, "")
	require.NoError(t, err)
	require.Len(t, deliveries(), 2, "the end of the flow, too")
}
