package periodic_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// pulled are rules of a fresh database, and a worker that pulls what they send.
func pulled(t *testing.T) (*periodic.Periodic, *pull.Puller) {
	t.Helper()
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	prod, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	return p, pull.New(prod)
}

// The engine reads which runs a worker has begun: a tick that comes while the newest run waits
// has the attempt that the failure before it means, and one that comes while it runs has not.
func TestATickIsJudgedByTheNewestRunThatAWorkerHasBegun(t *testing.T) {
	t.Parallel()
	p, puller := pulled(t)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "* * * * * *", Type: "tick", OnFailure: schedule.FailureRetry})
	require.NoError(t, err)
	enabled, err := p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	engine(t, p.Run)

	// claim has a worker begin waiting runs, the oldest first.
	claim := func(most int) (claimed []pull.Fetched) {
		require.Eventually(t, func() bool {
			claimed, err = puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"tick"}, Max: most, Lease: time.Hour})
			require.NoError(t, err)
			return len(claimed) > 0
		}, testdb.Patience, 20*time.Millisecond)
		return claimed
	}
	// tick waits for the run of a tick after those, and returns its attempt.
	tick := func(after time.Time) (attempt int) {
		require.Eventually(t, func() bool {
			rule, err := p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			for _, a := range rule.Active {
				if a.Nominal.After(after) {
					attempt = a.Attempt
					return true
				}
			}
			return false
		}, testdb.Patience, 20*time.Millisecond)
		return attempt
	}
	last := func() time.Time {
		rule, err := p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		return rule.Last.Nominal
	}

	first := claim(1)[0]
	_, err = puller.Fail(t.Context(), first.Handle, "the first run fails", producer.Failure{Fatal: true})
	require.NoError(t, err)
	tick(last()) // the engine may have looked at the runs before that one failed
	require.Equal(t, 2, tick(last()), "the newest run waits for a worker: the one that failed is judged")

	claim(1000)
	tick(last()) // as above
	require.Equal(t, 1, tick(last()), "the newest run that has begun has not failed")

	rule, err := p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Equal(t, enabled.UpdatedAt, rule.UpdatedAt, "ticks and ends are no edits")
	disabled, err := p.Disable(t.Context(), r.ID, 0, "")
	require.NoError(t, err)
	require.True(t, disabled.UpdatedAt.After(enabled.UpdatedAt))
}

// A task that waits for its retry has been begun, and its run is not over: a list shows what its filter selects.
func TestARunWhoseTaskWaitsForItsRetryIsRunning(t *testing.T) {
	t.Parallel()
	p, puller := pulled(t)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "@yearly", Type: "tick"})
	require.NoError(t, err)
	engine(t, p.Run)
	of := func(status schedule.RunStatus) (ids []string) {
		t.Helper()
		runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{Statuses: []schedule.RunStatus{status}}, nil, 10)
		require.NoError(t, err)
		for _, run := range runs {
			require.Equal(t, status, run.Status)
			ids = append(ids, run.ID)
		}
		return ids
	}

	run, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(of(schedule.RunScheduled)) == 1 }, testdb.Patience, 20*time.Millisecond, "no worker has begun it")
	got, err := puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"tick"}, Max: 1})
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = puller.Fail(t.Context(), got[0].Handle, "no paper", producer.Failure{RetryAfter: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []string{run}, of(schedule.RunRunning))
	require.Empty(t, of(schedule.RunScheduled))
	shown, err := p.GetRun(t.Context(), run)
	require.NoError(t, err)
	require.Equal(t, schedule.RunRunning, shown.Status)
	require.Contains(t, shown.Error, "no paper")
	require.False(t, shown.ExecutedAt.IsZero())
	require.True(t, shown.EndedAt.IsZero())
}

// No engine has looked while a worker ran the newest run: that it has failed once shows that it was begun.
func TestTheFailurePolicyJudgesARunWhoseTaskWaitsForItsRetry(t *testing.T) {
	t.Parallel()
	p, puller := pulled(t)
	r, err := p.Create(t.Context(), schedule.Spec{Name: "r", Cron: "* * * * * *", Type: "tick", OnFailure: schedule.FailureRetry})
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	// until runs an engine until the rule is as wanted.
	until := func(what string, wanted func(*schedule.Rule) bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		require.Eventually(t, func() bool {
			rule, err := p.Get(t.Context(), r.ID)
			require.NoError(t, err)
			return wanted(rule)
		}, testdb.Patience, 20*time.Millisecond, what)
		stop()
		require.NoError(t, <-ended)
	}

	until("two runs wait for a worker, and a third may", func(r *schedule.Rule) bool { return len(r.Active) > 2 })
	fetched, err := puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"tick"}, Max: 1000, Lease: time.Hour})
	require.NoError(t, err)
	rule, err := p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Greater(t, len(fetched), 1)
	first := rule.Active[0]
	for _, f := range fetched { // the first one has failed, the others are to be tried again
		how := producer.Failure{RetryAfter: time.Hour}
		if f.Task.Key == first.ID {
			how = producer.Failure{Fatal: true}
		}
		_, err = puller.Fail(t.Context(), f.Handle, "no paper", how)
		require.NoError(t, err)
	}
	newest := rule.Last.Nominal
	told := time.Time{} // the last tick when the rule knew of the failure
	until("a tick after the failure is known", func(r *schedule.Rule) bool {
		if told.IsZero() && !slices.ContainsFunc(r.Active, func(a schedule.RunRef) bool { return a.ID == first.ID }) {
			told = r.Last.Nominal
		}
		return !told.IsZero() && r.Last.Nominal.After(told) && r.Last.Nominal.After(newest)
	})
	rule, err = p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Equal(t, 1, rule.Last.Attempt, "the newest run that has begun has not failed for good")
}
