package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// A named worker that has reached max_errors_per_worker never runs the task again. Where too few others are
// named, the task ends.
func TestATaskEndsWhenTooFewNamedWorkersMayStillRunIt(t *testing.T) {
	failed, ok := Failed(failkind.Error, "x"), Outcome{}
	type run struct {
		worker string
		ends   Outcome
	}
	for _, tc := range []struct {
		name   string
		names  []string
		wanted int
		manual bool
		runs   []run
		want   model.Status
	}{
		{name: "one may still", names: []string{"w1", "w2"}, runs: []run{{"w1", failed}}, want: model.StatusError},
		{name: "none may", names: []string{"w1", "w2"}, runs: []run{{"w1", failed}, {"w2", failed}}, want: model.StatusFailure},
		{name: "one is named twice, as earlier releases allowed", names: []string{"w1", "w2", "w2"}, wanted: 2, runs: []run{{"w1", failed}}, want: model.StatusFailure},
		{name: "a person decides", names: []string{"w1"}, manual: true, runs: []run{{"w1", failed}}, want: model.StatusPending},
		{name: "both are wanted", names: []string{"w1", "w2"}, wanted: 2, runs: []run{{"w2", ok}, {"w1", failed}}, want: model.StatusFailure},
		{name: "two of three are wanted", names: []string{"w1", "w2", "w3"}, wanted: 2, runs: []run{{"w2", ok}, {"w1", failed}}, want: model.StatusError},
		{name: "nobody is named", runs: []run{{"w1", failed}, {"w2", failed}}, want: model.StatusError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.UnixMilli(1_000_000)
			o := model.Options{
				SpecificWorkerIDs: tc.names, ConcurrentWorkerCount: tc.wanted, MaxErrorsPerWorker: 1, NeedManual: &tc.manual,
				Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond},
			}
			task, eff := NewTask(Draft{Type: "t", Key: "k", Options: o}, now), ResolveOptions(o)
			for _, r := range tc.runs {
				now = now.Add(time.Second)
				claimed, no := Claim(task, Claimant{WorkerID: r.worker, ExecID: r.worker}, eff, now)
				require.Empty(t, no)
				var err error
				task, err = Finish(claimed, r.worker, r.ends, eff, now, 0)
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, task.Status)
			require.Equal(t, tc.want.Ended() || tc.want == model.StatusPending, task.DueAt.IsZero())
		})
	}
}

// While the second worker runs, its end decides.
func TestATaskDoesNotEndWhileANamedWorkerStillRunsIt(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	o := model.Options{SpecificWorkerIDs: []string{"w1", "w2"}, ConcurrentWorkerCount: 2, MaxErrorsPerWorker: 1}
	task, eff := NewTask(Draft{Type: "t", Key: "k", Options: o}, now), ResolveOptions(o)
	for _, w := range []string{"w1", "w2"} {
		claimed, no := Claim(task, Claimant{WorkerID: w, ExecID: w}, eff, now)
		require.Empty(t, no)
		task = claimed
	}
	task, err := Finish(task, "w1", Failed(failkind.Error, "x"), eff, now, 0)
	require.NoError(t, err)
	require.Equal(t, model.StatusExecuting, task.Status)
	require.True(t, task.DueAt.IsZero(), "no other worker may take its place")
	task, err = Finish(task, "w2", Outcome{}, eff, now, 0)
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, task.Status)
}

// A release that did not end such tasks left them due.
func TestATaskThatNobodyMayRunAnyMoreIsRepaired(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	o := model.Options{SpecificWorkerIDs: []string{"w1"}, MaxErrorsPerWorker: 1}
	task, eff := NewTask(Draft{Type: "t", Key: "k", Options: o}, now), ResolveOptions(o)
	claimed, _ := Claim(task, Claimant{WorkerID: "w1", ExecID: "e"}, eff, now)
	failed, err := Finish(claimed, "e", Failed(failkind.Error, "x"), eff, now, 0)
	require.NoError(t, err)
	stuck := *failed
	stuck.Status, stuck.DueAt, stuck.FinishedAt, stuck.ArchiveAt = model.StatusError, now, time.Time{}, time.Time{}
	no := Claimable(&stuck, "w1", eff, now.Add(time.Hour))
	require.Equal(t, RefusedSpent, no)
	require.True(t, no.Stale())
	repaired := Repair(&stuck, eff, now.Add(time.Hour))
	require.NotNil(t, repaired)
	require.Equal(t, model.StatusFailure, repaired.Status)
}
