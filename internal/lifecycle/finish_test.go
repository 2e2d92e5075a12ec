package lifecycle

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// The claim's time may be that at which another process sent the task, whose estimate lagged less.
func TestAnExecutionDoesNotEndBeforeItBegan(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	claimedAt := now.Add(2 * time.Millisecond)
	ends := func(out Outcome) *model.Task {
		task := NewTask(Draft{Type: "t", Key: "k"}, now)
		eff := ResolveOptions(task.Options)
		claimed, no := Claim(task, Claimant{WorkerID: "w", ExecID: "e"}, eff, claimedAt)
		require.Empty(t, no)
		ended, err := Finish(claimed, "e", out, eff, now.Add(time.Millisecond), 0)
		require.NoError(t, err)
		return ended
	}
	succeeded := ends(Success(bson.RawValue{}))
	require.Equal(t, claimedAt, succeeded.FinishedAt)
	require.Equal(t, claimedAt, succeeded.WorkerStates[0].SuccessTime)
	require.Equal(t, claimedAt, ends(Failed(failkind.Error, "boom")).WorkerStates[0].FailTime)
	require.Equal(t, now.Add(time.Millisecond), ends(NotStarted("a rate has planned its start")).UpdatedAt)
}

// Nothing but a quicker claim ends that, so it is tried ever more rarely, whatever was saved before.
func TestEachClaimInARowThatComesTooLateDoublesTheRestUpToAMinute(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	for name, change := range map[string]func(*model.Task){
		"of a task that nobody began": func(*model.Task) {},
		"of one with a step":          func(task *model.Task) { task.Steps = []model.Step{{Name: "a"}} },
	} {
		t.Run(name, func(t *testing.T) {
			task := NewTask(Draft{Type: "t", Key: "k"}, now)
			change(task)
			eff, now := ResolveOptions(task.Options), now
			n := 0
			end := func(how func(*model.Task) Outcome) time.Duration {
				t.Helper()
				n++
				exec := strconv.Itoa(n)
				claimed, no := Claim(task, Claimant{WorkerID: "w", ExecID: exec}, eff, now)
				require.Empty(t, no)
				var err error
				task, err = Finish(claimed, exec, how(claimed), eff, now, 0)
				require.NoError(t, err)
				require.Zero(t, task.ErrorCount+task.LapseCount)
				rest := task.DueAt.Sub(now)
				now = clock.Later(now, task.DueAt)
				return rest
			}
			late := func(claimed *model.Task) Outcome { return TooLate(claimed, "late") }
			for _, rest := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60} {
				require.Equal(t, rest*time.Second, end(late))
			}
			end(func(*model.Task) Outcome { return Failed(failkind.Released, "a handler was called") })
			require.Equal(t, time.Second, end(late))
		})
	}
}

func TestLocalRetriesPassOnFromAClaimThatCameTooLate(t *testing.T) {
	now := time.UnixMilli(1_000_000).UTC()
	task := NewTask(Draft{Type: "t", Key: "k"}, now)
	eff := ResolveOptions(task.Options)
	claimed, no := Claim(task, Claimant{WorkerID: "w", ExecID: "1"}, eff, now)
	require.Empty(t, no)
	claimed.WorkerStates[0].LocalRetries = 3 // of an execution before
	ended, err := Finish(claimed, "1", TooLate(claimed, "late"), eff, now, 0)
	require.NoError(t, err)
	again, no := Claim(ended, Claimant{WorkerID: "w", ExecID: "2"}, eff, ended.DueAt)
	require.Empty(t, no)
	require.Equal(t, 3, again.WorkerStates[1].LocalRetries)
}

// A snooze ends the attempt, also if it is for no time or a person cuts it short. A release does not.
func TestLocalRetriesStartAtZeroAfterASnooze(t *testing.T) {
	snooze := func(d time.Duration) Outcome { return Failed(failkind.Released, "snoozed").After(d) }
	for name, tc := range map[string]struct {
		out  Outcome
		cut  bool // by a person
		left int
	}{
		"a snooze":                {snooze(time.Minute), false, 0},
		"a snooze for no time":    {snooze(0), false, 0},
		"a snooze cut short":      {snooze(time.Minute), true, 0},
		"a release":               {Failed(failkind.Released, "released"), false, 2},
		"a late claim":            {NotStarted("late").After(time.Minute), false, 2},
		"a late claim, cut short": {NotStarted("late").After(time.Minute), true, 2},
		"a late claim, no delay":  {NotStarted("late").After(0), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.UnixMilli(1_000_000).UTC()
			task := NewTask(Draft{Type: "t", Key: "k"}, now)
			eff := ResolveOptions(task.Options)
			claimed, no := Claim(task, Claimant{WorkerID: "w", ExecID: "1"}, eff, now)
			require.Empty(t, no)
			claimed.WorkerStates[0].LocalRetries = 2
			ended, err := Finish(claimed, "1", tc.out, eff, now.Add(time.Second), 0)
			require.NoError(t, err)
			if now = ended.DueAt; tc.cut {
				now = ended.UpdatedAt.Add(time.Second)
				ended, err = RetryNow(ended, "", eff, now)
				require.NoError(t, err)
				require.False(t, ended.DueAt.After(now))
			}
			again, no := Claim(ended, Claimant{WorkerID: "w", ExecID: "2"}, eff, now)
			require.Empty(t, no)
			require.Equal(t, tc.left, again.WorkerStates[1].LocalRetries)
		})
	}
}
