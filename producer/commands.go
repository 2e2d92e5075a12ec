package producer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

// The commands of this file return the task as it is afterwards. A task that does not
// exist is [model.ErrNotFound], a state that forbids the command a *model.RefusedError. If a transaction
// runs on the session in ctx, they are part of it, and workers hear of them when it
// has committed. After an error of the
// database a command may be repeated: it then does what is left to do, or says that
// the task is in another state by now.

// Cancel requests the end of a task. If no worker runs it, the task becomes Cancelled at once.
// Otherwise the contexts of its handlers are cancelled within two seconds, and the task ends
// when the last handler has returned. Cancelling twice is not an error. remark gives the
// reason; it may be empty.
// id is that of [Sent], or of [model.TaskID].
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

// Retry runs a task again now. It refuses tasks of type mscheduler.node: flow.Flows.RetryFrom retries their nodes. A
// task that waits for a retry becomes due at once, in the same
// life. A task that ended without success begins a new life with a fresh budget. remark gives
// the reason; it may be empty. If ctx has a span, the task belongs to its trace from then on.
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) Retry(ctx context.Context, id, remark string) (*model.Task, error) {
	return p.command(ctx, "retrying", id, remark, again(ctx, notOfNode(lifecycle.RetryNow)))
}

// RetryFrom is [Producer.Retry] from a named step on: earlier steps keep their saved values,
// and the handler repeats this step and later ones. It is refused while a worker runs the task.
// remark gives the reason; it may be empty.
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) RetryFrom(ctx context.Context, id, step, remark string) (*model.Task, error) {
	if err := input.StepName("step", step); err != nil {
		return nil, fmt.Errorf("retrying task %s: %w", id, err)
	}
	return p.command(ctx, "retrying", id, remark, again(ctx, notOfNode(func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
		return lifecycle.RetryFrom(t, step, remark, eff, now)
	})))
}

// notOfNode refuses tasks that no worker runs: such a task would wait for ever.
func notOfNode(rule commandRule) commandRule {
	return func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
		if t.Type == input.NodeType {
			return nil, &model.RefusedError{ID: t.ID, Status: t.Status, Reason: "no worker runs it, its flow decides about it; use `flow retry` or `flow resolve` for the node"}
		}
		return rule(t, remark, eff, now)
	}
}

// again has what a retry makes of a task belong to the trace of who asks for it.
func again(ctx context.Context, rule commandRule) commandRule {
	return func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
		after, err := rule(t, remark, eff, now)
		if err == nil {
			after.Trace = cmp.Or(tracing.Of(ctx, now), t.Trace)
		}
		return after, err
	}
}

// Resolve ends a Pending task as ManuallyProcessed. remark describes what was done.
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) Resolve(ctx context.Context, id, remark string) (*model.Task, error) {
	return p.command(ctx, "resolving", id, remark, lifecycle.Resolve)
}

// Release makes a task that was sent with [Held] available to workers. Releasing it twice is
// not an error.
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) Release(ctx context.Context, id string) (*model.Task, error) {
	return p.command(ctx, "releasing", id, "", notOfNode(func(t *model.Task, _ string, eff lifecycle.Effective, now time.Time) (*model.Task, error) {
		return lifecycle.Release(t, eff, now)
	}))
}

type commandRule func(t *model.Task, remark string, eff lifecycle.Effective, now time.Time) (*model.Task, error)

func (p *Producer) command(ctx context.Context, doing, id, remark string, rule commandRule) (*model.Task, error) {
	if err := input.Text("remark", remark); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	return p.room.Change(ctx, doing, id, func(t *model.Task) (*model.Task, error) {
		return rule(t, remark, p.room.Effective(t), p.room.Store.Clock.Now())
	})
}
