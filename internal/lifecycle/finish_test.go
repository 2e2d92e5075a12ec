package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

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
