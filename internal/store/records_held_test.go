package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// requirePut stores records that nobody holds.
func requirePut[T any](t *testing.T, put func(context.Context, []*T) (held []*T, err error), records []*T) {
	t.Helper()
	held, err := put(t.Context(), records)
	require.NoError(t, err)
	require.Empty(t, held)
}

// later stores the records of a later decision while somebody's transaction holds one of them.
func later[T any](s *stepping, collection, hold string, put func(context.Context, []*T) (held []*T, err error), records []*T, id func(*T) string) {
	s.Helper()
	release := s.hold(collection, hold)
	stored := func() (n int64) {
		n, err := s.db.Collection(collection).CountDocuments(s.Context(), bson.D{{Key: "rev", Value: 2}})
		require.NoError(s, err)
		return n
	}
	require.Eventually(s, func() bool { // a short time limit may find the machine slow
		held, err := put(s.Context(), records)
		require.NoError(s, err)
		return len(held) == 1 && id(held[0]) == hold
	}, testdb.Patience, time.Millisecond)
	require.EqualValues(s, len(records)-1, stored())
	release()
	require.Eventually(s, func() bool {
		held, err := put(s.Context(), records)
		require.NoError(s, err)
		return len(held) == 0
	}, testdb.Patience, time.Millisecond)
	require.EqualValues(s, len(records), stored())
}

func TestAHeldRecordOfARunDelaysNoOthers(t *testing.T) {
	for name, status := range map[string]schedule.RunStatus{"as new ones": schedule.RunScheduled, "one by one": schedule.RunSuccess} {
		t.Run(name, func(t *testing.T) {
			s := newStepping(t)
			runs := func(rev int64) (runs []*schedule.Run) {
				for i := range 20 {
					runs = append(runs, &schedule.Run{ID: fmt.Sprint("r@", i), RuleID: "r", Status: status, Rev: rev, At: s.now})
				}
				return runs
			}
			requirePut(t, s.Runs.Put, runs(1))
			later(s, "periodic_runs", "r@3", s.Runs.Put, runs(2), func(r *schedule.Run) string { return r.ID })
		})
	}
}

func TestAHeldRecordOfANodeDelaysNoOthers(t *testing.T) {
	for name, reason := range map[string]func(i int) string{
		"equal ones": func(int) string { return "" },
		"different":  func(i int) string { return fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStepping(t)
			nodes := func(rev int64) (nodes []*graph.Node) {
				for i := range 20 {
					nodes = append(nodes, &graph.Node{ID: fmt.Sprint("-/f/", i), FlowID: "-/f", Node: fmt.Sprint(i), Status: graph.NodeReady, Reason: reason(i), Rev: rev, At: s.now, CreatedAt: s.now})
				}
				return nodes
			}
			requirePut(t, s.Nodes.Put, nodes(1))
			later(s, "flow_nodes", "-/f/3", s.Nodes.Put, nodes(2), func(n *graph.Node) string { return n.ID })
		})
	}
}

func TestRecordsOfAFlowAreKeptWhenNobodyHoldsOneAnyMore(t *testing.T) {
	t.Parallel() // it waits for the time limit
	s := newStepping(t)
	var nodes []*graph.Node
	for i := range 20 {
		nodes = append(nodes, &graph.Node{ID: fmt.Sprint("-/f/", i), FlowID: "-/f", Node: fmt.Sprint(i), Status: graph.NodeSuccess, Rev: 1, At: s.now, CreatedAt: s.now})
	}
	requirePut(t, s.Nodes.Put, nodes)
	release, at := s.hold("flow_nodes", "-/f/3"), s.now.Add(time.Hour)
	require.ErrorIs(t, s.Nodes.KeepUntil(t.Context(), "-/f", at, 1), store.ErrHeld)
	release()
	require.Eventually(t, func() bool { return s.Nodes.KeepUntil(t.Context(), "-/f", at, 1) == nil }, testdb.Patience, time.Millisecond)
	kept, err := s.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{{Key: "delete_at", Value: at}})
	require.NoError(t, err)
	require.EqualValues(t, len(nodes), kept)
}

func TestAHeldPlanKeepsNoOthersFromTheHistory(t *testing.T) {
	s := newStepping(t)
	var plans []*repeat.Plan
	for i := range 20 {
		plans = append(plans, &repeat.Plan{ID: fmt.Sprint("-/", i), Status: repeat.StatusFinish, EndedAt: s.now, CreatedAt: s.now, UpdatedAt: s.now})
	}
	_, held, err := s.Plans.Insert(t.Context(), plans)
	require.NoError(t, err)
	require.Empty(t, held)
	count := func(collection string) int64 {
		n, err := s.db.Collection(collection).CountDocuments(t.Context(), bson.D{{Key: "delete_at", Value: bson.D{{Key: "$exists", Value: true}}}})
		require.NoError(t, err)
		return n
	}
	leave := func() []string {
		held, err := s.Plans.Leave(t.Context(), plans, s.now.Add(time.Hour), time.Hour)
		require.NoError(t, err)
		return held
	}
	release := s.hold("plans", "-/3")
	require.Eventually(t, func() bool { return len(leave()) == 1 }, testdb.Patience, time.Millisecond) // a short time limit may find the machine slow
	require.Equal(t, []string{"-/3"}, leave())
	require.EqualValues(t, 19, count("plans"))
	release()
	require.Eventually(t, func() bool { return len(leave()) == 0 }, testdb.Patience, time.Millisecond)
	require.EqualValues(t, 20, count("plans"))
	require.EqualValues(t, 20, count("plan_history"))
}
