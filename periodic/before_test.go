package periodic

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// driven is one rule of every second whose ticks the test decides, each at its time and
// with nobody else there who tells the rule of anything.
type driven struct {
	t    *testing.T
	p    *Periodic
	e    *decision.Engine
	prod *producer.Producer
	off  atomic.Int64 // by how much the engine's clocks are ahead
	id   string
	last time.Time // the tick that was decided last
}

func newDriven(t *testing.T, s schedule.Spec, change ...func(*Config)) *driven {
	db := testdb.New(t)
	d := &driven{t: t}
	cfg := Config{Database: db, Clock: ahead{clock.System(), &d.off}}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	require.NoError(t, err)
	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	s.Name, s.Cron, s.Type = "a", "* * * * * *", "tick"
	r, err := p.Create(t.Context(), s)
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	d.p, d.e, d.prod, d.id = p, p.engine(), prod, r.ID
	require.NoError(t, d.e.Start(t.Context()))
	return d
}

// ahead is a clock that is ahead.
type ahead struct {
	clock.Clock
	by *atomic.Int64
}

func (a ahead) Now() time.Time           { return a.Clock.Now().Add(time.Duration(a.by.Load())) }
func (a ahead) Monotonic() time.Duration { return a.Clock.Monotonic() + time.Duration(a.by.Load()) }

// tick decides the next tick and returns its record.
func (d *driven) tick() *schedule.Run {
	d.t.Helper()
	r, err := d.p.Get(d.t.Context(), d.id)
	require.NoError(d.t, err)
	d.last = r.NextFireAt
	d.off.Add(int64(max(d.last.Sub(d.p.store.Clock.Now())+time.Millisecond, 0)))
	d.e.Round(d.t.Context())
	d.e.Flush(d.t.Context())
	runs, err := d.p.Runs(d.t.Context(), d.id, RunFilter{From: d.last, To: d.last.Add(time.Second)}, nil, 1)
	require.NoError(d.t, err)
	require.Len(d.t, runs, 1)
	return runs[0]
}

// end ends the run of the last tick, as one that counts as failed.
func (d *driven) end() {
	d.t.Helper()
	_, err := d.prod.Cancel(d.t.Context(), model.TaskID("", "tick", tickplan.TickID(d.id, d.last)), "over")
	require.NoError(d.t, err)
}

// Rules are told of ends now and then: a tick looks for itself.
func TestARunThatEndedBeforeTheTickIsInNoTicksWay(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]schedule.Spec{
		"overlap SKIP":        {Overlap: schedule.OverlapSkip},
		"overlap CANCEL_PREV": {Overlap: schedule.OverlapCancelPrev},
		"concurrency QUEUE":   {MaxConcurrency: 1},
		"concurrency SKIP":    {MaxConcurrency: 1, Concurrency: schedule.ConcurrencySkip},
		"on_failure RETRY":    {OnFailure: schedule.FailureRetry},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriven(t, s)
			var before *schedule.Run
			for n := range 4 {
				run := d.tick()
				require.Equal(t, schedule.RunScheduled, run.Status, "tick %d: %s", n, run.Reason)
				attempt := 1
				if s.OnFailure == schedule.FailureRetry {
					attempt = n + 1
				}
				require.Equal(t, attempt, run.Attempt, "tick %d", n)
				if before != nil {
					runs, err := d.p.Runs(t.Context(), d.id, RunFilter{Statuses: []schedule.RunStatus{schedule.RunCanceled}}, nil, 1)
					require.NoError(t, err)
					require.Equal(t, before.ID, runs[0].ID, "its end is recorded with the tick")
					task, err := d.prod.Get(t.Context(), before.TaskID)
					require.NoError(t, err)
					require.Empty(t, task.Outbox, "nobody tells it once more")
				}
				before = run
				d.end()
			}
			r, err := d.p.Get(t.Context(), d.id)
			require.NoError(t, err)
			require.Len(t, r.Active, 1)
			require.Empty(t, r.Queued)
		})
	}
}

// What has not ended is in the way, as before.
func TestARunThatHasNotEndedIsInTheNextTicksWay(t *testing.T) {
	d := newDriven(t, schedule.Spec{Overlap: schedule.OverlapSkip})
	require.Equal(t, schedule.RunScheduled, d.tick().Status)
	run := d.tick()
	require.Equal(t, schedule.RunSkipped, run.Status)
	require.Equal(t, tickplan.SkipOverlap, run.Reason)
}

// Only rules whose ticks depend on it have their runs looked at.
func TestRulesThatAllowEverythingNeedNoLookAtTheirRuns(t *testing.T) {
	active := []schedule.RunRef{{ID: "r@1"}}
	for name, c := range map[string]struct {
		rule schedule.Rule
		want bool
	}{
		"allows all":              {schedule.Rule{Overlap: schedule.OverlapAllow, OnFailure: schedule.FailureRunNew, Active: active}, false},
		"parallel at the limit":   {schedule.Rule{MaxConcurrency: 1, Concurrency: schedule.ConcurrencyParallel, Active: active}, false},
		"nothing runs":            {schedule.Rule{Overlap: schedule.OverlapSkip}, false},
		"overlap":                 {schedule.Rule{Overlap: schedule.OverlapSkip, Active: active}, true},
		"cancels":                 {schedule.Rule{Overlap: schedule.OverlapCancelPrev, Active: active}, true},
		"a limit":                 {schedule.Rule{MaxConcurrency: 2, Concurrency: schedule.ConcurrencyQueue, Active: active}, true},
		"attempts":                {schedule.Rule{OnFailure: schedule.FailureRetry, Active: active}, true},
		"as many as a rule holds": {schedule.Rule{Active: make([]schedule.RunRef, tickplan.MaxActive)}, true},
	} {
		require.Equal(t, c.want, judgesRuns(&c.rule), name)
	}
}

// engine decides when the test tells it to.
func (p *Periodic) engine() *decision.Engine {
	return decision.NewEngine(p.id, tickplan.EngineType, p.decider)
}
