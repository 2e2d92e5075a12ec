package flow

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// failsAlways is a flow with a join function that fails behind a, and how often that was called.
func (d *driven) failsAlways() (doc *graph.Flow, calls *int) {
	d.t.Helper()
	calls = new(int)
	d.f.joins["bad"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		*calls++
		return "", bson.RawValue{}, errors.New("no such order")
	}
	s := chain("f")
	s.Nodes[1].Join = graph.Join{Strategy: graph.Custom, Custom: "bad"}
	doc, err := d.f.Start(d.t.Context(), s)
	require.NoError(d.t, err)
	return doc, calls
}

// No engine was there for longer than a function may fail. What counts is how long it has failed since.
func TestANodeWhoseJoinFailsForAMinuteIsPending(t *testing.T) {
	off := &atomic.Int64{}
	d := skipping(t, testdb.New(t), off)
	doc, calls := d.failsAlways()
	_, err := d.prod.Cancel(t.Context(), taskID(doc, 0), "over")
	require.NoError(t, err)
	pause := func(n time.Duration) {
		off.Add(int64(n))
		d.e.Round(t.Context())
	}
	pause(joinPause)
	require.Equal(t, 1, *calls)
	pause(joinPause)
	require.Equal(t, 2, *calls)
	require.Equal(t, graph.NodeReady, d.get(doc).States[0].Status, "this process stood still")
	pause(joinPatience / 2)
	require.Equal(t, 3, *calls)
	require.Equal(t, graph.NodeReady, d.get(doc).States[0].Status, "the join is asked again")
	pause(joinPatience / 2)
	require.Equal(t, graph.NodePending, d.get(doc).States[1].Status)
	require.Equal(t, `join function "bad" fails: no such order`, d.get(doc).States[1].Reason)
	require.False(t, d.f.failing.over(d.get(doc), d.f.store.Local().Monotonic()), "other joins have a minute of their own")
}

// Else nobody would ever decide about it.
func TestALostEndIsFoundThoughTheJoinBehindItFails(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc, calls := d.failsAlways()
	d.deletes(taskID(doc, 0))
	d.ago(doc, "0")
	require.NoError(t, planner{d.f}.Sweep(t.Context()))
	require.Equal(t, 2, *calls, "an error may pass")
	require.Equal(t, `join function "bad" fails: no such order`, d.get(doc).States[1].Reason)
}

// Else nobody could resolve what is before such a node: engines call the join again for a minute, but a person
// decides once.
func TestAJoinThatFailsDoesNotKeepAPersonFromResolvingItsParent(t *testing.T) {
	d := newDriven(t)
	calls := 0
	d.f.joins["bad"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		calls++
		return "", bson.RawValue{}, errors.New("no such order")
	}
	s := chain("f")
	s.Nodes[0].OnFailure = graph.Suspend
	s.Nodes[1].Join = graph.Join{Strategy: graph.Custom, Custom: "bad"}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, graph.NodePending, d.cancels(doc, 0).States[0].Status)
	_, err = d.f.Resolve(t.Context(), doc.ID, doc.Nodes[0].ID, graph.NodeSuccess, "done by hand")
	require.NoError(t, err)
	require.Equal(t, 2, calls, "an error may pass")
	now := d.get(doc)
	require.Equal(t, graph.NodeSuccess, now.States[0].Status)
	require.Equal(t, graph.NodePending, now.States[1].Status)
	require.Equal(t, `join function "bad" fails: no such order`, now.States[1].Reason)
}

// The command line and the REST API have no joins.
func TestAPersonMayDecideInAProcessWithoutTheJoin(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	d.f.joins["yes"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		return graph.NodeReady, bson.RawValue{}, nil
	}
	s := chain("f")
	s.Nodes[1].OnFailure = graph.Suspend
	s.Nodes[2].Join = graph.Join{Strategy: graph.Custom, Custom: "yes"}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, graph.NodePending, d.cancels(doc, 0, 1).States[1].Status)

	other := drive(t, d.db, d.db, clock.System())
	after, err := other.f.Resolve(t.Context(), doc.ID, "b", graph.NodeSuccess, "done by hand")
	require.NoError(t, err)
	require.Equal(t, graph.StatusRunning, after.Status)
	other.e.Round(t.Context())
	require.Equal(t, graph.NodeWait, d.get(doc).States[2].Status)
	require.Eventually(t, func() bool {
		d.e.Round(t.Context())
		return d.get(doc).States[2].Status == graph.NodeReady
	}, testdb.Patience, time.Millisecond)
	require.Equal(t, model.StatusNew, d.task(doc, 2).Status)
}

// a is before b, and before c, whose join function is registered nowhere at first.
func TestAJoinThatNoEngineHasStopsNoOtherNode(t *testing.T) {
	off, log := &atomic.Int64{}, &strings.Builder{}
	d := skipping(t, testdb.New(t), off)
	d.f.log = zerolog.New(log)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t", OnFailure: graph.Continue},
		{ID: "b", Type: "t", After: []string{"a"}, OnFailure: graph.Continue, Join: graph.Join{Strategy: graph.AllEnded}},
		{ID: "c", Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.Custom, Custom: "nobody"}},
		{ID: "d", Type: "t", After: []string{"b", "c"}, Join: graph.Join{Strategy: graph.AllEnded}},
	}}
	doc, err := d.f.Start(t.Context(), s)
	require.NoError(t, err)
	is := func() (out []graph.NodeStatus) {
		for _, st := range d.get(doc).States {
			out = append(out, st.Status)
		}
		return out
	}
	d.cancels(doc, 0)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeReady, graph.NodeWait, graph.NodeWait}, is())
	d.cancels(doc, 1)
	require.Equal(t, graph.NodeError, is()[1])
	require.Empty(t, log.String(), "another engine may have it")
	left := d.get(doc)
	off.Add(int64(decision.Slow))
	for range 3 {
		d.e.Round(t.Context())
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), `"flow_id":"-/f","node":"c","join":"nobody","message":"no engine has called the join function of this node`)
	require.Equal(t, left.Rev, d.get(doc).Rev)
	off.Add(int64(time.Hour))
	d.e.Round(t.Context())
	rare := d.get(doc).DueAt
	require.True(t, rare.After(d.f.store.Clock.Now()), "it is looked at again later")

	d.f.joins["nobody"] = func([]flowplan.Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		return graph.NodeReady, bson.RawValue{}, nil
	}
	off.Add(int64(rare.Sub(d.f.store.Clock.Now())))
	d.e.Round(t.Context())
	require.Equal(t, graph.NodeReady, is()[2])
	require.Equal(t, model.StatusNew, d.task(doc, 2).Status)
}
