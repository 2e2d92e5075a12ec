package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The commands of this file return the task as it is afterwards. A task that does not
// exist is [ErrNotFound], a state that forbids the command a *model.RefusedError. With a
// session in ctx they are part of the caller's transaction, and workers hear of them when it
// has committed. After an error of the
// database a command may be repeated: it then does what is left to do, or says that
// the task is in another state by now.

// Cancel asks for the end of a task. One that nobody runs is Cancelled at once; where
// workers run it, they are told within two seconds, and it ends when the last has
// returned. Cancelling twice is no error. remark says why; it may be empty.
func (p *Producer) Cancel(ctx context.Context, id, remark string) (*model.Task, error) {
	t, err := p.command(ctx, "cancelling", id, remark, lifecycle.Cancel)
	if err != nil {
		return nil, err
	}
	if lifecycle.OpenExecutions(t) > 0 {
		// Also when nothing was written: the request is there, but whoever wrote it may
		// have died before the signal.
		if err := p.room.Signal(ctx, t); err != nil {
			return t, fmt.Errorf("cancelling task %s: %w", id, err)
		}
	}
	return t, nil
}

// Retry makes a task run again now. One that waits for a retry is due at once, in the
// same life; one that ended without success begins a new life with a fresh budget.
// remark says why; it may be empty.
func (p *Producer) Retry(ctx context.Context, id, remark string) (*model.Task, error) {
	return p.command(ctx, "retrying", id, remark, lifecycle.RetryNow)
}

// RetryFrom makes a task run again now, as [Producer.Retry] does, from a named step on: the
// steps before it stay done, it and what follows are done again. Nobody may run the task.
// remark says why; it may be empty.
func (p *Producer) RetryFrom(ctx context.Context, id, step, remark string) (*model.Task, error) {
	if err := input.StepName("step", step); err != nil {
		return nil, fmt.Errorf("retrying task %s: %w", id, err)
	}
	return p.command(ctx, "retrying", id, remark, func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
		return lifecycle.RetryFrom(t, step, remark, eff, now)
	})
}

// Resolve ends a Pending task as ManuallyProcessed; remark says what was done.
func (p *Producer) Resolve(ctx context.Context, id, remark string) (*model.Task, error) {
	return p.command(ctx, "resolving", id, remark, lifecycle.Resolve)
}

// Release lets a task run that was sent with [Held]. Releasing it twice is no error.
func (p *Producer) Release(ctx context.Context, id string) (*model.Task, error) {
	return p.room.Change(ctx, "releasing", id, func(t *model.Task) (*model.Task, error) {
		return lifecycle.Release(t, p.room.Effective(t), p.room.Store.Clock.Now())
	})
}

type commandRule func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error)

func (p *Producer) command(ctx context.Context, doing, id, remark string, rule commandRule) (*model.Task, error) {
	if err := command.ValidText("remark", remark); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	return p.room.Change(ctx, doing, id, func(t *model.Task) (*model.Task, error) {
		return rule(t, remark, p.room.Effective(t), p.room.Store.Clock.Now())
	})
}
