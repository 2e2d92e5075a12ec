package metrics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/metrics"
	"github.com/mscheduler/mscheduler/model"
)

func TestStreamsAreCountedByStateWithTheirBacklog(t *testing.T) {
	db := testdb.New(t)
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	m := collector(t, metrics.Config{Database: db})
	stream := func(scene, group, typ string, policy graph.Policy) {
		_, err := flows.Append(t.Context(), scene, group, graph.NodeSpec{ID: "a", Type: "good"}, graph.NodeSpec{ID: "b", Type: typ, OnFailure: policy}, graph.NodeSpec{ID: "c", Type: "good"})
		require.NoError(t, err)
	}
	stream("bus", "flows", "good", graph.Suspend)
	stream("bus", "stops", "bad", graph.Suspend)
	stream("bus", "ends", "bad", graph.End)
	stream("train", "goes on", "bad", graph.Continue)
	var now map[string]float64
	testdb.Eventually(t, "all of both scenes waits, since nobody runs it", func() bool { // while a node is linked it may count twice, or not at all
		now = counted(t, db, m)
		return now["flow_stream_backlog{scene=bus}"] == 9 && now["flow_stream_backlog{scene=train}"] == 3
	})
	require.EqualValues(t, 3, now["flow_streams{scene=bus,state=open}"])

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, goodType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, nil
	}))
	require.NoError(t, consumer.Handle(c, badType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, consumer.Fatal(errors.New("no"))
	}))
	runs(t, c.Run)
	runs(t, flows.Run)
	becomes := func(id string, is func(*graph.Flow) bool) {
		require.Eventually(t, func() bool {
			f, err := flows.Get(t.Context(), id)
			return err == nil && is(f)
		}, testdb.Patience, 5*time.Millisecond, id)
	}
	idle := func(f *graph.Flow) bool { // nodes that have ended leave, all but the last
		last := len(f.States) - 1
		return last >= 0 && f.Nodes[last].ID == "c" && flowplan.Final(f.States[last].Status)
	}
	becomes("bus/flows", idle)
	becomes("bus/stops", func(f *graph.Flow) bool { return f.Status == graph.StatusPending })
	becomes("bus/ends", func(f *graph.Flow) bool { return f.Status == graph.StatusFinish })
	becomes("train/goes on", idle)
	now = counted(t, db, m)
	for series, n := range map[string]int{
		"flow_streams{scene=bus,state=open}": 1, "flow_streams{scene=bus,state=suspended}": 1, "flow_streams{scene=bus,state=closed}": 1,
		"flow_streams{scene=train,state=open}": 1, "flow_streams{scene=train,state=suspended}": 0, "flow_streams{scene=train,state=closed}": 0,
		"flow_stream_backlog{scene=bus}": 2 + 1, "flow_stream_backlog{scene=train}": 0,
	} {
		require.Contains(t, now, series)
		require.EqualValues(t, n, now[series], series)
	}
}

func TestOnlyNodesThatAPersonMustDecideAreCountedAsPending(t *testing.T) {
	db := testdb.New(t)
	flows, err := flow.New(flow.Config{Database: db})
	require.NoError(t, err)
	m := collector(t, metrics.Config{Database: db})
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, badType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, consumer.Fatal(errors.New("no"))
	}))
	runs(t, c.Run)
	runs(t, flows.Run)
	_, err = flows.Start(t.Context(), graph.Spec{Key: "claim", Nodes: []graph.NodeSpec{
		{ID: "check", Type: "bad", OnFailure: graph.Continue},
		{ID: "report", Type: "good", After: []string{"check"}}, // its join can no longer be met
		{ID: "review", Ask: &graph.Ask{Title: "blocked by whom?"}, After: []string{"check"}, Join: graph.Join{Strategy: graph.AllEnded}},
		{ID: "pay", Type: "good", After: []string{"review"}},
		{ID: "mail", Type: "good", After: []string{"pay", "report"}, Join: graph.Join{Strategy: graph.AllEnded}},
	}})
	require.NoError(t, err)
	testdb.Eventually(t, "two nodes wait for a person, and two for those nodes", func() bool {
		n, err := db.Collection("flow_nodes").CountDocuments(t.Context(), map[string]any{"status": graph.NodePending})
		return err == nil && n == 4
	})
	require.EqualValues(t, 2, counted(t, db, m)["flow_nodes_pending"])
}
