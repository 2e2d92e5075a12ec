package command

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Progress reports how far the execution is: percent from 0 to 100, and a message of at most 4 KiB. It is
// informational only. If the execution no longer holds the task, the error is [model.ErrFenced].
func (r *Room) Progress(ctx context.Context, handle string, percent float64, message string) error {
	if err := input.Progress(percent, message); err != nil {
		return err
	}
	return r.keep(ctx, handle, "reporting the progress of", func(ctx context.Context, t *model.Task, index int) error {
		return r.Store.Tasks.SaveProgress(ctx, t.ID, index, t.WorkerStates[index].ExecID, model.Progress{Percent: percent, Message: message, At: r.Store.Clock.Now()})
	})
}

// Checkpoint saves v, at most 1 MiB as JSON. The next execution of the task, after an error, a lapse or a
// release, gets it with its task. If this execution no longer holds the task, the error is
// [model.ErrFenced].
func (r *Room) Checkpoint(ctx context.Context, handle string, v any) error {
	raw, err := codec.EncodeValue("checkpoint", v, input.MaxCheckpointBytes)
	if err != nil {
		return err
	}
	if raw.Type == 0 {
		raw.Type = bson.TypeNull
	}
	return r.keep(ctx, handle, "saving a checkpoint of", func(ctx context.Context, t *model.Task, index int) error {
		return r.Store.Tasks.SaveCheckpoint(ctx, t.ID, index, t.WorkerStates[index].ExecID, lifecycle.Wanted(t) > 1, raw)
	})
}

// keep writes what an open execution says of itself, which decides nothing.
func (r *Room) keep(ctx context.Context, handle, doing string, save func(ctx context.Context, t *model.Task, index int) error) error {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return fmt.Errorf("%s an execution: %w", doing, err)
	}
	ctx = store.Outside(ctx)
	err = r.Prepare(ctx)
	var t *model.Task
	if err == nil {
		t, err = r.Store.Tasks.Get(ctx, h.TaskID)
	}
	if err == nil {
		i, w := h.Execution(t)
		if w == nil || !lifecycle.Open(w) {
			err = model.ErrFenced
		} else {
			err = save(ctx, t, i)
		}
	}
	if err != nil {
		return fmt.Errorf("%s an execution of task %s: %w", doing, h.TaskID, err)
	}
	return nil
}

// Snooze releases the task and makes it due again after d, at most ten years. It counts neither as an error
// nor as an attempt. Repeating it changes nothing and is no error.
func (r *Room) Snooze(ctx context.Context, handle, reason string, d time.Duration) (*model.Task, error) {
	h, err := handleFor("snoozing", "after", handle, d)
	if err == nil {
		err = input.Text("reason", reason)
	}
	if err != nil {
		return nil, err
	}
	return r.finish(ctx, "snoozing", h, lifecycle.Failed(failkind.Released, reason).After(d))
}

// Park keeps the execution open for d, at most ten years, without pings: somebody else completes or fails it
// by its handle, such as a person or another program. If nobody does, it ends as a timeout.
func (r *Room) Park(ctx context.Context, handle string, d time.Duration) (*model.Task, error) {
	h, err := handleFor("parking", "for", handle, d)
	if err != nil {
		return nil, err
	}
	return r.Change(ctx, "parking an execution of", h.TaskID, func(t *model.Task) (*model.Task, error) {
		_, w := h.Execution(t)
		if w == nil {
			return nil, model.ErrFenced
		}
		now := r.Store.Clock.Now()
		return lifecycle.Park(t, w.ExecID, now.Add(d), lifecycle.Outcome{}, r.Effective(t), now)
	})
}

func handleFor(doing, field, handle string, d time.Duration) (input.Handle, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return h, fmt.Errorf("%s an execution: %w", doing, err)
	}
	if d <= 0 || d > input.MaxDuration {
		return h, input.Invalid(field, "is %v; want more than 0 and at most ten years", d)
	}
	return h, nil
}
