package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// An execution can be ended and kept alive from outside of its worker by who has its
// handle: an HTTP service that answers later, a person. A handler gives the handle out
// and returns consumer.Park; the completion may come before that.
//
// model.ErrFenced (errors.Is) says that the execution no longer holds the task: it
// ended otherwise, its lease passed and the task went on, or a new life began. A parked
// execution waits until a fixed time: who comes later is refused by a *model.LateError, which
// is such an error, and the execution ends there and then as timed out.

// Complete ends the execution as a success with that result: any JSON value of at most
// 1 MiB, nil for none. A repetition with the same result is no error and changes nothing.
func (p *Producer) Complete(ctx context.Context, handle string, result any, opts ...CompleteOption) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("completing an execution: %w", err)
	}
	value, err := codec.EncodeValue("result", result, input.MaxResultBytes)
	if err != nil {
		return nil, fmt.Errorf("completing an execution of task %s: %w", h.TaskID, err)
	}
	out := lifecycle.Success(value)
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("completing an execution of task %s: %w", h.TaskID, input.Invalid(fmt.Sprintf("options[%d]", i), "is nil"))
		}
		o(&out)
	}
	return p.finish(ctx, "completing", h, out)
}

// CompleteOption says more about a success, see [WithoutCallback].
type CompleteOption func(*lifecycle.Outcome)

// WithoutCallback makes the task Success at once, whatever callback it or its type configures:
// nobody is told.
func WithoutCallback() CompleteOption { return func(o *lifecycle.Outcome) { o.NoCallback = true } }

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
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("failing an execution: %w", err)
	}
	err = validText("reason", reason)
	if err == nil && (f.RetryAfter < 0 || f.RetryAfter > input.MaxDuration) {
		err = input.Invalid("retry_after", "is %v; want 0 to ten years", f.RetryAfter)
	}
	if err == nil && f.Fatal && f.RetryAfter > 0 {
		err = input.Invalid("retry_after", "is %v, but a fatal failure is not retried", f.RetryAfter)
	}
	if err != nil {
		return nil, fmt.Errorf("failing an execution of task %s: %w", h.TaskID, err)
	}
	out := lifecycle.Failed(model.FailError, reason)
	if f.Fatal {
		out.Kind = model.FailFatal
	}
	if f.RetryAfter > 0 {
		out = out.After(f.RetryAfter)
	}
	return p.finish(ctx, "failing", h, out)
}

func (p *Producer) finish(ctx context.Context, doing string, h model.Handle, out lifecycle.Outcome) (*model.Task, error) {
	parked := true
	var late *model.LateError
	t, err := p.change(ctx, doing+" an execution of", h.TaskID, func(t *model.Task) (*model.Task, error) {
		_, w := t.Execution(h.ExecID)
		if w == nil || t.Generation != h.Generation {
			return nil, model.ErrFenced
		}
		parked = w.Parked
		if lifecycle.Repeats(t, w, out) {
			return t, nil
		}
		now := p.store.Clock.Now()
		after, err := lifecycle.Finish(t, h.ExecID, out, p.effective(t), now, rand.Float64()) //nolint:gosec // jitter, not a secret
		if late = nil; errors.As(err, &late) {
			return lifecycle.Leave(lifecycle.Expire(t, p.effective(t), now, rand.Float64()), now), nil //nolint:gosec // jitter, not a secret
		}
		if err != nil {
			return nil, err
		}
		if !after.DueAt.IsZero() && t.DueAt.IsZero() {
			// Its worker would remember when to look again; here nobody does.
			after.WakeAt = now
		}
		return after, nil
	})
	if err == nil && late != nil {
		err = fmt.Errorf("%s an execution of task %s: %w", doing, h.TaskID, late)
	}
	if err != nil {
		return nil, err
	}
	if !parked {
		// The handler still runs, for nothing. Its worker would find out at its next ping.
		if err := p.signal(ctx, t); err != nil {
			return t, fmt.Errorf("%s an execution of task %s: %w", doing, h.TaskID, err)
		}
	}
	return t, nil
}

// Pinged is the answer to a [Producer.Ping].
type Pinged struct {
	// Until is the end of the lease, in the database's time: ping again well before.
	Until time.Time
	// CancelRequested says that the task is being cancelled: stop the work and end the
	// execution by Complete or Fail.
	CancelRequested bool
}

// Ping extends the execution's lease from now on by the task's worker timeout, never
// past its deadline and never shorter than it is. A parked execution waits for its
// completion until a fixed time, so its ping changes nothing and tells that time. Pings
// are never part of a transaction.
func (p *Producer) Ping(ctx context.Context, handle string) (Pinged, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return Pinged{}, fmt.Errorf("pinging an execution: %w", err)
	}
	ctx = store.Outside(ctx)
	pinged, err := p.ping(ctx, h)
	if err != nil {
		return Pinged{}, fmt.Errorf("pinging an execution of task %s: %w", h.TaskID, err)
	}
	return pinged, nil
}

func (p *Producer) ping(ctx context.Context, h model.Handle) (Pinged, error) {
	if err := p.prepare(ctx); err != nil {
		return Pinged{}, err
	}
	t, err := p.store.Tasks.Get(ctx, h.TaskID)
	if err != nil {
		return Pinged{}, err
	}
	i, w := t.Execution(h.ExecID)
	if w == nil || !w.Open() || t.Generation != h.Generation {
		return Pinged{}, model.ErrFenced
	}
	out := Pinged{Until: w.PingExpireTime, CancelRequested: !t.CancelRequestedAt.IsZero()}
	if w.Parked {
		return out, nil
	}
	until := lifecycle.Lease(w, lifecycle.EffectiveFor(t, w, p.types.Options(t.Type)).Lease, p.store.Clock.Now())
	if !until.After(w.PingExpireTime) {
		return out, nil
	}
	pings := []store.Ping{{ID: t.ID, ExecID: h.ExecID, Index: i, Many: t.Wanted() > 1, Until: until}}
	lost, err := p.store.Tasks.Pings(ctx, pings, store.Patience)
	if err != nil {
		return Pinged{}, err
	}
	if len(lost) > 0 {
		return Pinged{}, model.ErrFenced
	}
	if pings[0].Missed {
		return Pinged{}, store.ErrHeld
	}
	out.Until = until
	return out, nil
}
