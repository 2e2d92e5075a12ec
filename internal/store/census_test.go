package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func send(t *testing.T, s *store.Store, typ, key string, due time.Time) *model.Task {
	t.Helper()
	task := lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: key, Start: due}, s.Clock.Now())
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	return task
}

func TestACensusCountsTasksByTypeAndState(t *testing.T) {
	s, ctx := permitted(t), t.Context()
	now := s.Clock.Now()
	require.NoError(t, s.Types.Put(ctx, &model.TaskType{Code: "idle", MaxRunning: 4}))
	send(t, s, "a", "1", now.Add(-time.Minute))
	send(t, s, "a", "2", now.Add(-time.Hour))
	send(t, s, "a", "later", now.Add(time.Hour))
	running := send(t, s, "b", "running", now.Add(-time.Second))
	eff := lifecycle.EffectiveOf(running, model.Options{})
	claimed, no := lifecycle.Claim(running, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, eff, now)
	require.Empty(t, no)
	written, err := s.Tasks.Writes(ctx, []store.Write{{Before: running, After: claimed}}, store.Patience)
	require.NoError(t, err)
	require.True(t, written[0].Applied)
	got, err := s.Permits.Take(ctx, store.LimitOf{Type: "idle"}, store.Limit{Most: 4, Settled: true}, make([]lifecycle.Permit, 2))
	require.NoError(t, err)
	require.Len(t, got, 2)
	_, err = s.Flows.Insert(ctx, &graph.Flow{ID: "-/f", Key: "f", Status: graph.StatusPending, UpdatedAt: now})
	require.NoError(t, err)

	require.NoError(t, s.Workers.Heartbeat(ctx, store.Worker{ID: "w", Types: []string{"served"}, Concurrency: 9, Running: 2, Stream: "polling"}))
	require.NoError(t, s.Workers.Heartbeat(ctx, store.Worker{ID: "engine", Types: []string{"mscheduler.flow"}, Stream: "off"}))

	c, err := s.TakeCensus(ctx, store.Census{})
	require.NoError(t, err)
	require.True(t, c.Complete)
	require.Len(t, c.Types, 4)
	require.Equal(t, "served", c.Types[3].Type)
	require.Equal(t, []store.WorkerCensus{{Stream: "off", N: 1}, {Stream: "polling", N: 1, Slots: 9, Running: 2}}, c.Workers)
	a, b, idle := c.Types[0], c.Types[1], c.Types[2]
	require.EqualValues(t, 2, a.Due.N)
	require.WithinDuration(t, now.Add(-time.Hour), a.Due.Oldest, time.Millisecond)
	require.EqualValues(t, 1, a.Delayed)
	require.EqualValues(t, 1, b.Running)
	require.Zero(t, b.Due.N)
	require.Equal(t, "idle", idle.Type, "a type with a document is listed before its first task")
	require.EqualValues(t, 2, idle.Permits)
	require.Equal(t, 4, idle.MaxRunning)
	require.EqualValues(t, 1, c.FlowsPending.N)

	require.NoError(t, s.KeepCensus(ctx, c))
	kept, err := s.ReadCensus(ctx)
	require.NoError(t, err)
	require.Equal(t, c.Types[0].Due.N, kept.Types[0].Due.N)
	require.Equal(t, c.At, kept.At.UTC())
	older := c
	older.At, older.Seats = c.At.Add(-time.Second), 7
	require.NoError(t, s.KeepCensus(ctx, older))
	kept, err = s.ReadCensus(ctx)
	require.NoError(t, err)
	require.Zero(t, kept.Seats, "an older census does not replace a newer one")
}

func TestTypesKeepTheirPlaceAndTheRestIsOther(t *testing.T) {
	s, ctx := permitted(t), t.Context()
	now := s.Clock.Now()
	due := now.Add(-time.Second)
	for i := range measure.Most + 20 {
		send(t, s, fmt.Sprintf("t%03d", i), "k", due)
	}
	c, err := s.TakeCensus(ctx, store.Census{Types: []store.TypeCensus{{Type: "gone", SeenAt: now.Add(-time.Hour)}, {Type: "long gone", SeenAt: now.Add(-48 * time.Hour)}}})
	require.NoError(t, err)
	require.Len(t, c.Types, measure.Most+1)
	require.Equal(t, "gone", c.Types[0].Type)
	require.Equal(t, "t098", c.Types[measure.Most-1].Type)
	other := c.Types[measure.Most]
	require.Equal(t, measure.Other, other.Type)
	require.EqualValues(t, 21, other.Due.N)
	send(t, s, "aaa", "k", due)
	again, err := s.TakeCensus(ctx, c)
	require.NoError(t, err)
	for i, typ := range again.Types {
		require.Equal(t, c.Types[i].Type, typ.Type)
	}
	require.EqualValues(t, 22, again.Types[measure.Most].Due.N)
}
