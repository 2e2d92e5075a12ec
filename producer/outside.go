package producer

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/model"
)

// An execution can be ended from outside of its worker by whoever has its handle: an HTTP
// service that answers later, a person. A handler gives the handle out and returns
// consumer.Park; the completion may come before that.
//
// model.ErrFenced (errors.Is) says that the execution no longer holds the task: it
// ended otherwise, its lease passed and the task went on, or a new life began. A parked
// execution waits until a fixed time. A completion that comes later is refused in the same way,
// and the execution ends there and then as timed out.

// Complete ends the execution as a success with this result: any JSON value of at most 1 MiB,
// or nil for none. Complete is idempotent: a repeated call with the same result changes nothing
// and is not an error.
func (p *Producer) Complete(ctx context.Context, handle string, result any, opts ...CompleteOption) (*model.Task, error) {
	return command.Complete(ctx, p.room, handle, result, opts)
}

// CompleteOption is an option of Complete, see [WithoutCallback].
type CompleteOption uint8

// WithoutCallback suppresses the callback of the task or its type. The task becomes Success at
// once.
const WithoutCallback CompleteOption = command.WithoutCallback

// Failure describes how an execution failed. The zero value is an error to which the task's
// retry strategy applies.
type Failure struct {
	// Fatal ends the task without a retry. If it ends as Failure and is a step of a plan, the plan is ERROR until a
	// person resets it.
	Fatal bool
	// PlanError ends the task as Fatal does. If the task is a step of a plan, the plan can never be
	// processed: it leaves the queue as ERROR until a person resets it (seed 001).
	PlanError bool
	// RetryAfter is the delay before the next attempt; 0 uses the retry strategy.
	RetryAfter time.Duration
}

// Fail ends the execution as an error, as if its handler had returned it. Fail is idempotent: a
// repeated call changes nothing and is not an error.
func (p *Producer) Fail(ctx context.Context, handle, reason string, f Failure) (*model.Task, error) {
	return p.room.Fail(ctx, handle, reason, command.Failure(f))
}
