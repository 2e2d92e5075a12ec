package producer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestCancellingATaskThatNobodyRunsEndsItAtOnce(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	for range 2 {
		task, err := b.p.Cancel(t.Context(), s.ID, "not needed")
		require.NoError(t, err)
		require.Equal(t, model.StatusCancelled, task.Status)
		require.Equal(t, "not needed", b.get(s.ID).Remark)
	}
	require.Zero(t, b.Signalled(s.ID), "there is nobody to tell")
}

func TestCancellingARunningTaskTellsItsWorkerEachTime(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Claim(s.ID, "w")
	for i := range 2 {
		task, err := b.p.Cancel(t.Context(), s.ID, "")
		require.NoError(t, err)
		require.Equal(t, model.StatusExecuting, task.Status)
		require.NotZero(t, task.CancelRequestedAt)
		require.Equal(t, i+1, b.Signalled(s.ID), "who repeats a cancel repeats its signal")
	}
	require.Equal(t, model.StatusCancelled, b.End(s.ID, "w", lifecycle.Failed(failkind.Error, "cancelled")).Status)
}

func TestRetryMakesATaskDueNow(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
	waiting := b.Run(s.ID, lifecycle.Failed(failkind.Error, "try later"))
	require.Equal(t, model.StatusError, waiting.Status)
	require.True(t, waiting.DueAt.After(b.Now()))
	task, err := b.p.Retry(t.Context(), s.ID, "mended")
	require.NoError(t, err)
	require.WithinDuration(t, b.Now(), task.DueAt, 10*time.Second)
	require.Equal(t, s.Generation, task.Generation)
	require.NotZero(t, task.WakeAt)
}

func TestRetryOfAFailedTaskBeginsANewLife(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Run(s.ID, lifecycle.Failed(failkind.Fatal, "no"))
	task, err := b.p.Retry(t.Context(), s.ID, "mended")
	require.NoError(t, err)
	require.Greater(t, task.Generation, s.Generation)
	require.Equal(t, model.StatusNew, task.Status)
	old, err := b.p.room.Life(t.Context(), s.ID, s.Generation)
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, old.Status)
}

func TestResolveEndsAPendingTask(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, NeedManual(true))
	b.Run(s.ID, lifecycle.Failed(failkind.Fatal, "no"))
	task, err := b.p.Resolve(t.Context(), s.ID, "did it by hand")
	require.NoError(t, err)
	require.Equal(t, model.StatusManuallyProcessed, task.Status)
	require.Equal(t, "did it by hand", b.get(s.ID).Remark)
}

func TestACommandThatTheStateForbidsIsRefusedAndChangesNothing(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
	before := b.get(s.ID)
	for name, command := range map[string]func() error{
		"cancel":  func() error { _, err := b.p.Cancel(t.Context(), s.ID, ""); return err },
		"retry":   func() error { _, err := b.p.Retry(t.Context(), s.ID, ""); return err },
		"resolve": func() error { _, err := b.p.Resolve(t.Context(), s.ID, ""); return err },
		"release": func() error { _, err := b.p.Release(t.Context(), s.ID); return err },
		"update":  func() error { _, err := b.p.Update(t.Context(), s.ID, Priority(1)); return err },
	} {
		var refused *model.RefusedError
		require.ErrorAs(t, command(), &refused, name)
		require.Equal(t, model.StatusSuccess, refused.Status)
	}
	require.Equal(t, before, b.get(s.ID))
}

func TestACommandOnWhatIsNotThereIsNotFoundOrInvalid(t *testing.T) {
	b := setup(t)
	for name, command := range map[string]func(ctx context.Context, id string) error{
		"cancel":  func(ctx context.Context, id string) error { _, err := b.p.Cancel(ctx, id, ""); return err },
		"retry":   func(ctx context.Context, id string) error { _, err := b.p.Retry(ctx, id, ""); return err },
		"resolve": func(ctx context.Context, id string) error { _, err := b.p.Resolve(ctx, id, ""); return err },
		"release": func(ctx context.Context, id string) error { _, err := b.p.Release(ctx, id); return err },
		"update":  func(ctx context.Context, id string) error { _, err := b.p.Update(ctx, id, Priority(1)); return err },
		"get":     func(ctx context.Context, id string) error { _, err := b.p.Get(ctx, id); return err },
	} {
		require.ErrorIs(t, command(t.Context(), "-/mail/none"), model.ErrNotFound, name)
		require.ErrorIs(t, command(t.Context(), "none"), model.ErrInvalid, name)
	}
	_, err := b.p.Cancel(t.Context(), "-/mail/none", "\xff")
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestATaskThatNoWorkerRunsIsLeftToItsFlow(t *testing.T) {
	b := setup(t)
	s, err := b.p.SendJSON(t.Context(), input.NodeType, nil, Held())
	require.NoError(t, err)
	before := b.get(s.ID)
	for name, change := range map[string]func() (*model.Task, error){
		"retry":      func() (*model.Task, error) { return b.p.Retry(t.Context(), s.ID, "") },
		"retry from": func() (*model.Task, error) { return b.p.RetryFrom(t.Context(), s.ID, "step", "") },
		"release":    func() (*model.Task, error) { return b.p.Release(t.Context(), s.ID) },
		"update":     func() (*model.Task, error) { return b.p.Update(t.Context(), s.ID, Priority(9)) },
	} {
		_, err := change()
		var refused *model.RefusedError
		require.ErrorAs(t, err, &refused, name)
		if name != "update" {
			require.Contains(t, refused.Reason, "use `flow retry` or `flow resolve`", name)
		}
	}
	require.Equal(t, before, b.get(s.ID))
}
