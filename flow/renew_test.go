package flow

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// slow calls do with an engine each of whose commands takes that long.
func slow(t *testing.T, each time.Duration, do func(t *testing.T, d *driven, slow func())) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := engine.Virtual(embedded.Options{}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		px, err := proxy.Start(server.URI)
		require.NoError(t, err)
		t.Cleanup(px.Close)
		db := engine.Fresh(t, engine.Connect(t, server.URI))
		do(t, drive(t, db, engine.Connect(t, px.URI()).Database(db.Name()), clock.System()), func() { px.Delay(each) })
	})
}

// carried carries out decisions until nothing is left, and returns what was left after each try.
func (d *driven) carried(docs ...*graph.Flow) (left []int) {
	d.t.Helper()
	for {
		stuck, err := d.f.decider.CarryOut(d.t.Context(), docs)
		require.False(d.t, store.Outage(err), "%v", err)
		if left = append(left, stuck); stuck == 0 {
			return left
		}
		require.Less(d.t, len(left), 20, "it makes no progress")
	}
}

// fan is a before n others.
func fan(n int, change func(*graph.NodeSpec)) graph.Spec {
	s := graph.Spec{Key: "large", Nodes: []graph.NodeSpec{{ID: "a", Type: "t", OnFailure: graph.Continue}}}
	last := graph.NodeSpec{ID: "z", Type: "t", Join: graph.Join{Strategy: graph.AllEnded}}
	for i := range n {
		v := graph.NodeSpec{ID: fmt.Sprint("n", i), Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, OnFailure: graph.Continue}
		change(&v)
		s.Nodes, last.After = append(s.Nodes, v), append(last.After, v.ID)
	}
	s.Nodes = append(s.Nodes, last)
	return s
}

// retried is a flow of a node before n others that have all ended, as it was decided about when somebody retries the first.
func (d *driven) retried(n int) *graph.Flow {
	d.t.Helper()
	large, err := d.f.Start(d.t.Context(), fan(n, func(*graph.NodeSpec) {}))
	require.NoError(d.t, err)
	before := d.cancels(large, 0)
	ended, err := flowplan.Cancel(before, "", &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(d.t, err)
	var ends []flowplan.End
	for i := range n {
		ends = append(ends, flowplan.End{Node: i + 1, Status: model.StatusFailure})
	}
	d.write(before, ended)
	require.Len(d.t, d.carried(ended), 1)
	before = d.get(large)
	ended, err = flowplan.Ended(before, ends, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(d.t, err)
	d.write(before, ended)
	require.Len(d.t, d.carried(ended), 1)
	before = d.get(large)
	again, err := flowplan.RetryFrom(before, 0, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(d.t, err)
	d.write(before, again)
	return again
}

// One after the other, the new lives of all tasks would take minutes, and a call may take seconds.
func TestARetryOfALargeFlowIsCarriedOutOnASlowDatabaseAndKeepsNoOtherFlowWaiting(t *testing.T) {
	slow(t, 200*time.Millisecond, func(t *testing.T, d *driven, slow func()) {
		const n = 600
		other := d.start("other")
		again := d.retried(n)
		next, err := flowplan.Ended(d.get(other), []flowplan.End{{Status: model.StatusFailure}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(d.get(other), next)

		slow()
		left := d.carried(again, next)
		require.Greater(t, len(left), 1, "it is large enough")
		require.Equal(t, model.StatusNew, d.task(other, 1).Status)
		for i := range n {
			require.EqualValues(t, 1, d.task(again, i+1).Origin.Generation)
		}
	})
}

func TestFlowsOfManyNodesStartAndEndOnASlowDatabaseAndKeepNoOtherFlowWaiting(t *testing.T) {
	slow(t, 200*time.Millisecond, func(t *testing.T, d *driven, slow func()) {
		const n = 1000
		inner := &graph.Spec{Nodes: []graph.NodeSpec{{ID: "x", Type: "t"}}}
		large, err := d.f.Start(t.Context(), fan(n, func(v *graph.NodeSpec) { v.Type, v.Flow = "", inner }))
		require.NoError(t, err)
		before := d.get(large)
		started, err := flowplan.Ended(before, []flowplan.End{{Status: model.StatusFailure}}, &flowplan.Inputs{}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(before, started)
		slow()
		require.Greater(t, len(d.carried(started)), 1, "it is large enough")

		before = d.get(large)
		over, err := flowplan.Cancel(before, "", &flowplan.Inputs{}, d.f.store.Clock.Now())
		require.NoError(t, err)
		d.write(before, over)
		require.Greater(t, len(d.carried(over)), 1, "it is large enough")
		for i := range n {
			child, err := d.f.store.Flows.Get(context.Background(), flowspec.ChildID(large, i+1, 0))
			require.NoError(t, err)
			require.True(t, child.Closed)
		}
	})
}
