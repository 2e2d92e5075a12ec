package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// counted is the first census that is complete: on a busy machine a count may take too long.
func counted(t *testing.T, s *store.Store, last store.Census) store.Census {
	t.Helper()
	for began := time.Now(); ; {
		c, err := s.TakeCensus(t.Context(), last)
		require.NoError(t, err)
		if c.Complete {
			return c
		}
		require.Less(t, time.Since(began), testdb.Patience, "no census is complete")
	}
}

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

	c := counted(t, s, store.Census{})
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

func TestACensusCountsWhatWaitsForUpkeepAndPlanners(t *testing.T) {
	s, ctx := permittedBy(t, stopped{}), t.Context() // the task whose lease has just lapsed has no more than some seconds
	now := s.Clock.Now()
	before := func(d time.Duration) time.Time { return now.Add(-d).Truncate(time.Millisecond) }
	task := func(key string, change func(*model.Task)) *model.Task {
		t := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key}, now)
		t.DueAt, t.Status = time.Time{}, model.StatusSuccess
		change(t)
		return t
	}
	_, err := s.Tasks.Insert(ctx, []*model.Task{
		task("outbox", func(t *model.Task) { t.OutboxAt = before(time.Minute) }),
		task("older", func(t *model.Task) { t.OutboxAt = before(time.Hour) }),
		task("archive", func(t *model.Task) { t.ArchiveAt = before(2 * time.Hour) }),
		task("not yet", func(t *model.Task) { t.ArchiveAt = now.Add(time.Hour) }),
		task("lapsed", func(t *model.Task) { t.Status, t.LapseAt = model.StatusExecuting, before(time.Minute) }),
		task("lapsed now", func(t *model.Task) { t.Status, t.LapseAt = model.StatusExecuting, before(time.Second) }),
	})
	require.NoError(t, err)
	require.NoError(t, s.Rules.Insert(ctx, &schedule.Rule{ID: "late", Name: "late", Living: "-/late", NextFireAt: before(3 * time.Minute), PlannedAt: before(time.Minute)}))
	require.NoError(t, s.Rules.Insert(ctx, &schedule.Rule{ID: "offline", Name: "offline", Living: "-/offline"}))
	_, _, err = s.Plans.Insert(ctx, []*repeat.Plan{{ID: "-/a", Status: repeat.StatusError}, {ID: "-/b", Status: repeat.StatusRunning}})
	require.NoError(t, err)
	seat, err := s.Seats.Acquire(ctx, []string{"t"}, "holder")
	require.NoError(t, err)
	require.NotNil(t, seat)
	require.NoError(t, s.Control.Pause(ctx, true, nil, "", ""))

	c := counted(t, s, store.Census{})
	require.EqualValues(t, 2, c.Outbox.N)
	require.Equal(t, before(time.Hour), c.Outbox.Oldest.UTC())
	require.EqualValues(t, 1, c.Archive.N)
	require.Equal(t, before(2*time.Hour), c.Archive.Oldest.UTC())
	require.EqualValues(t, 1, c.Lapsed.N, "a worker has some seconds")
	require.EqualValues(t, 1, c.Rules.N)
	require.Equal(t, before(3*time.Minute), c.Rules.Oldest.UTC())
	require.EqualValues(t, 1, c.PlansError.N)
	require.EqualValues(t, 1, c.PlansRunning.N)
	require.EqualValues(t, 1, c.Planned[0].Backlog.N)
	require.Equal(t, "periodic", c.Planned[0].Kind)
	require.Equal(t, 1, c.Seats)
	require.True(t, c.PausedAll)
}

func TestACountThatTakesTooLongHasTheNumberOfTheCensusBefore(t *testing.T) {
	a := newAnswered(t)
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	send(t, a.Store, "t", "k", a.Clock.Now().Add(-time.Second))
	first := counted(t, a.Store, store.Census{})
	first.Outbox = store.Backlog{N: 5, Oldest: first.At.Add(-time.Hour)}
	first.Planned[1].Backlog = store.Backlog{N: 6, Oldest: first.At.Add(-time.Minute)}
	send(t, a.Store, "t", "another", a.Clock.Now().Add(-time.Second))
	for _, index := range []string{store.IndexDue, store.IndexOutbox, "planned"} {
		t.Run(index, func(t *testing.T) {
			hint := "hint\x00" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(index)+1))) + index + "\x00"
			slow := a.proxy.Set(proxy.Rule{Command: "aggregate", Contains: hint, Times: -1, Do: proxy.Refuse, Code: 50}) // it exceeded its time limit
			var second store.Census
			testdb.Eventually(t, "what may be counted is counted", func() bool { // a census takes five seconds at most
				var err error
				second, err = a.TakeCensus(t.Context(), first)
				require.NoError(t, err)
				return index == store.IndexDue || second.Types[0].Due.N == 2
			})
			require.False(t, second.Complete)
			require.EqualValues(t, map[bool]int{true: 1, false: 2}[index == store.IndexDue], second.Types[0].Due.N)
			require.Equal(t, map[bool]store.Backlog{true: first.Outbox}[index == store.IndexOutbox], second.Outbox)
			require.Equal(t, map[bool]store.Backlog{true: first.Planned[1].Backlog}[index == "planned"], second.Planned[1].Backlog)
			slow.Release()
			third := counted(t, a.Store, second)
			require.EqualValues(t, 2, third.Types[0].Due.N)
			require.Zero(t, third.Outbox)
		})
	}
}

// distant is a store for which each question takes so long by its clock.
func distant(t *testing.T, question time.Duration) (*store.Store, *testdb.Clock) {
	t.Helper()
	c := testdb.NewClock()
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "aggregate" || e.CommandName == "find" {
				c.Move(question)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	s, err := store.Open(store.Config{Database: client.Database(testdb.New(t).Name()), Clock: c})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return s, c
}

// rounds takes one census after the other until it is as it should be, and no more than so many.
func rounds(t *testing.T, s *store.Store, clock *testdb.Clock, most int, good func(store.Census) bool) {
	t.Helper()
	for range most {
		last, err := s.ReadCensus(t.Context()) // as any process does
		require.NoError(t, err)
		began := clock.Now()
		c, err := s.TakeCensus(t.Context(), last)
		require.NoError(t, err)
		require.Less(t, clock.Now().Sub(began), 8*time.Second, "a scrape gives up")
		require.NoError(t, s.KeepCensus(t.Context(), c))
		if good(c) {
			return
		}
		require.False(t, c.Complete)
	}
	require.Fail(t, "something is never counted")
}

func TestACensusThatHasTooLittleTimeGoesOnWhereTheLastOneEnded(t *testing.T) {
	const types, scenes = 30, 10
	s, clock := distant(t, 150*time.Millisecond)
	streams := streamFleet{t, s}
	more := func(key string) {
		for i := range types {
			send(t, s, fmt.Sprintf("t%02d", i), key, s.Clock.Now().Add(-time.Second))
		}
		for i := range scenes {
			streams.stream(fmt.Sprint("s", i), key, nil, 0)
		}
	}
	more("a")
	counted := func(c store.Census, n int64) bool {
		all := len(c.Types) == types && len(c.Scenes) == scenes
		for _, typ := range c.Types {
			require.True(t, len(typ.Uncounted) > 0 || typ.Due.N > 0, "%s is not counted, and has no task", typ.Type)
			all = all && len(typ.Uncounted) == 0 && typ.Due.N == n
		}
		for _, scene := range c.Scenes {
			require.True(t, scene.Uncounted || scene.Open > 0, "%s is not counted, and has no stream", scene.Scene)
			all = all && !scene.Uncounted && scene.Open == n
		}
		return all
	}
	rounds(t, s, clock, 40, func(c store.Census) bool { return counted(c, 1) })
	more("b")
	rounds(t, s, clock, 40, func(c store.Census) bool { return counted(c, 2) })
}

func TestATypeWhoseTasksTakeTooLongToCountDelaysNoOtherForEver(t *testing.T) {
	a := newAnswered(t)
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	send(t, a.Store, "slow", "k", a.Clock.Now().Add(-time.Second))
	name := "type\x00" + string(binary.LittleEndian.AppendUint32(nil, 5)) + "slow\x00"
	a.proxy.Set(proxy.Rule{Command: "aggregate", Contains: name, Times: -1, Do: proxy.Refuse, Code: 50})
	first, err := a.TakeCensus(t.Context(), store.Census{})
	require.NoError(t, err)
	require.Equal(t, []string{"due", "delayed", "running"}, first.Types[0].Uncounted)
	require.Equal(t, first.Round, first.Types[0].Round, "it had its turn")
}

func TestATypeAndASceneNamedAsTheRestAreCountedWithIt(t *testing.T) {
	s := permitted(t)
	due := s.Clock.Now().Add(-time.Second)
	send(t, s, measure.Other, "k", due)
	require.Len(t, counted(t, s, store.Census{}).Types, 1)
	for i := range measure.Most + 20 {
		send(t, s, fmt.Sprintf("t%03d", i), "k", due)
	}
	c := counted(t, s, store.Census{})
	require.Len(t, c.Types, measure.Most)
	require.Equal(t, measure.Other, c.Types[measure.Most-1].Type)
	require.EqualValues(t, 22, c.Types[measure.Most-1].Due.N)
	require.Equal(t, "t098", c.Types[measure.Most-2].Type)
}

func TestTypesKeepTheirPlaceAndTheRestIsOther(t *testing.T) {
	s := permitted(t)
	now := s.Clock.Now()
	due := now.Add(-time.Second)
	for i := range measure.Most + 20 {
		send(t, s, fmt.Sprintf("t%03d", i), "k", due)
	}
	c := counted(t, s, store.Census{Types: []store.TypeCensus{{Type: "gone", SeenAt: now.Add(-time.Hour)}, {Type: "long gone", SeenAt: now.Add(-48 * time.Hour)}}})
	require.Len(t, c.Types, measure.Most+1)
	require.Equal(t, "gone", c.Types[0].Type)
	require.Equal(t, "t098", c.Types[measure.Most-1].Type)
	other := c.Types[measure.Most]
	require.Equal(t, measure.Other, other.Type)
	require.EqualValues(t, 21, other.Due.N)
	send(t, s, "aaa", "k", due)
	again := counted(t, s, c)
	for i, typ := range again.Types {
		require.Equal(t, c.Types[i].Type, typ.Type)
	}
	require.EqualValues(t, 22, again.Types[measure.Most].Due.N)
}
