package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
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
	if t.OpenExecutions() > 0 {
		// Also when nothing was written: the request is there, but whoever wrote it may
		// have died before the signal.
		if err := p.signal(ctx, t); err != nil {
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
	return p.change(ctx, "releasing", id, func(t *model.Task) (*model.Task, error) {
		return lifecycle.Release(t, p.effective(t), p.store.Clock.Now())
	})
}

type commandRule func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error)

func (p *Producer) command(ctx context.Context, doing, id, remark string, rule commandRule) (*model.Task, error) {
	if err := validText("remark", remark); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	return p.change(ctx, doing, id, func(t *model.Task) (*model.Task, error) {
		return rule(t, remark, p.effective(t), p.store.Clock.Now())
	})
}

// change carries a rule out on one task.
func (p *Producer) change(ctx context.Context, doing, id string, rule func(*model.Task) (*model.Task, error)) (*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("%s a task: %w", doing, err)
	}
	if err := p.prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	before, after, err := p.store.Tasks.Change(ctx, id, rule)
	if errors.Is(err, ErrNotFound) {
		if past, err2 := p.store.History.Life(ctx, id, 0); err2 == nil && !past.ArchivedAt.IsZero() {
			return nil, fmt.Errorf("%s task %s: %w: it ended as %s and is in the history since %s; sent again, it is a new task",
				doing, id, ErrNotFound, past.Status, past.ArchivedAt.Format(clock.Format))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	if after != before {
		p.pull.hear(after)
	}
	if after != before && !store.InTransaction(ctx) { // of which nobody knows yet whether it counts
		p.limits.Ended(after, lifecycle.EndedExecutions(before, after))
	}
	if after != before && after.Status.Ended() && !store.InTransaction(ctx) {
		// At once rather than by the sweeper, if the caller stays for it; an error has been
		// logged, and is the sweeper's.
		p.follow.Ended(after)
		_ = p.follow.Wait(ctx)
	}
	return after, nil
}

// validText checks a remark or reason; what is too long is cut, not refused.
func validText(field, s string) error {
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return input.Invalid(field, "must be valid UTF-8 without a NUL byte")
	}
	return nil
}
