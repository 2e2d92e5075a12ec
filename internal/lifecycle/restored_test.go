package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

func TestTheTokensOfARestoredTaskAreGreaterThanAllThatItCanHaveHad(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	eff := ResolveOptions(model.Options{})
	fresh := func(status model.Status, states ...model.WorkerState) *model.Task {
		return &model.Task{ID: "-/t/k", Type: "t", Status: status, Generation: 1, Rev: 7, CreatedAt: now.Add(-2 * time.Hour), StartTime: now.Add(-time.Hour), UpdatedAt: now.Add(-time.Hour), WorkerStates: states}
	}
	open := model.WorkerState{ExecID: "open", WorkerID: "w", PingExpireTime: now.Add(-time.Minute), Attempt: 1}
	parked := open
	parked.ExecID, parked.Parked = "parked", true

	for _, status := range []model.Status{model.StatusWait, model.StatusNew, model.StatusError} {
		after := Restored(fresh(status), eff, now)
		require.Greater(t, after.Rev, 7+time.Hour.Milliseconds())
		require.Equal(t, status, after.Status)
		require.Equal(t, now.UnixMilli(), after.Generation, "a life that began after the backup had a greater generation")
		require.Equal(t, now.Add(-2*time.Hour), after.CreatedAt, "it is the same life")
	}
	for _, status := range []model.Status{model.StatusSuccess, model.StatusCompleted, model.StatusFailure, model.StatusPending, model.StatusCancelled, "Later"} {
		task := fresh(status)
		require.Same(t, task, Restored(task, eff, now))
	}

	after := Restored(fresh(model.StatusExecuting, open), eff, now)
	require.Equal(t, model.StatusNew, after.Status)
	require.Equal(t, failkind.Released, after.WorkerStates[0].FailKind)
	require.Equal(t, now.Add(-time.Hour), after.DueAt)
	require.Equal(t, now.UnixMilli(), after.Generation)
	require.Zero(t, after.LapseCount+after.ErrorCount)

	after = Restored(fresh(model.StatusExecuting, parked), eff, now)
	require.Equal(t, model.StatusExecuting, after.Status)
	require.True(t, Open(&after.WorkerStates[0]))
	require.EqualValues(t, 1, after.Generation, "its handle has the generation")
	require.Greater(t, after.Rev, 7+time.Hour.Milliseconds())
	both := Restored(fresh(model.StatusExecuting, open, parked), eff, now)
	require.EqualValues(t, 1, both.Generation)

	done := parked // its completion came
	done.SuccessTime = now.Add(-time.Hour)
	require.Equal(t, now.UnixMilli(), Restored(fresh(model.StatusNew, done), eff, now).Generation)

	cancelled := fresh(model.StatusExecuting, open)
	cancelled.CancelRequestedAt = now.Add(-time.Hour)
	require.Equal(t, model.StatusCancelled, Restored(cancelled, eff, now).Status)

	ahead := fresh(model.StatusNew) // a clock that went backwards
	ahead.UpdatedAt = now.Add(time.Hour)
	ahead.Generation = now.Add(time.Hour).UnixMilli()
	after = Restored(ahead, eff, now)
	require.Greater(t, after.Rev, int64(7))
	require.Greater(t, after.Generation, ahead.Generation)
}
