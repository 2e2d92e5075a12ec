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
