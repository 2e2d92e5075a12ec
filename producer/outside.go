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

// Complete ends the execution as a success with that result: any JSON value of at most
// 1 MiB, nil for none. A repetition with the same result is no error and changes nothing.
func (p *Producer) Complete(ctx context.Context, handle string, result any, opts ...CompleteOption) (*model.Task, error) {
	return command.Complete(ctx, p.room, handle, result, opts)
}

// CompleteOption says more about a success, see [WithoutCallback].
type CompleteOption uint8

// WithoutCallback makes the task Success at once, whatever callback it or its type configures:
// no callback is sent.
const WithoutCallback CompleteOption = command.WithoutCallback

// Failure says more about how an execution failed. The zero value is an error that the
// task's retry strategy judges.
type Failure struct {
	// Fatal ends the task: a retry is useless.
	Fatal bool
	// RetryAfter is the delay before the next try; 0 leaves it to the retry strategy.
	RetryAfter time.Duration
}

// Fail ends the execution as an error, as if its handler had returned it. A repetition
// is no error and changes nothing.
func (p *Producer) Fail(ctx context.Context, handle, reason string, f Failure) (*model.Task, error) {
	return p.room.Fail(ctx, handle, reason, f.Fatal, f.RetryAfter)
}
