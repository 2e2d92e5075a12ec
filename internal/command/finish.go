package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// WithoutCallback is the option of [Complete] by which nobody is told of the success.
const WithoutCallback = 1

// Complete ends the execution as a success with that result; the options say more about it.
func Complete[O ~uint8](ctx context.Context, r *Room, handle string, result any, opts []O) (*model.Task, error) {
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
		if o != WithoutCallback {
			return nil, fmt.Errorf("completing an execution of task %s: %w", h.TaskID, input.Invalid(fmt.Sprintf("options[%d]", i), "is %d; want WithoutCallback", o))
		}
		out.NoCallback = true
	}
	return r.finish(ctx, "completing", h, out)
}

// Failure is the producer's type of that name.
type Failure struct {
	Fatal, PlanError bool
	RetryAfter       time.Duration
}

func (f *Failure) kind() string {
	switch {
	case f.PlanError:
		return failkind.PlanError
	case f.Fatal:
		return failkind.Fatal
	default:
		return failkind.Error
	}
}

// Fail ends the execution as an error.
func (r *Room) Fail(ctx context.Context, handle, reason string, f Failure) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("failing an execution: %w", err)
	}
	err = input.Text("reason", reason)
	if err == nil && (f.RetryAfter < 0 || f.RetryAfter > input.MaxDuration) {
		err = input.Invalid("retry_after", "is %v; want 0 to ten years", f.RetryAfter)
	}
	out := lifecycle.Failed(f.kind(), reason)
	if err == nil && failkind.Final(out.Kind) && f.RetryAfter > 0 {
		err = input.Invalid("retry_after", "is %v, but a fatal failure or a plan error is not retried", f.RetryAfter)
	}
	if err != nil {
		return nil, fmt.Errorf("failing an execution of task %s: %w", h.TaskID, err)
	}
	if f.RetryAfter > 0 {
		out = out.After(f.RetryAfter)
	}
	return r.finish(ctx, "failing", h, out)
}

// GiveBack ends the execution without cost: the task is due again at once.
func (r *Room) GiveBack(ctx context.Context, h input.Handle, reason string) (*model.Task, error) {
	return r.finish(ctx, "giving back", h, lifecycle.NotStarted(reason))
}

// finish ends the execution. doing says in errors what was tried.
func (r *Room) finish(ctx context.Context, doing string, h input.Handle, out lifecycle.Outcome) (*model.Task, error) {
	listened := false // a process of ours runs the handler, and hears of signals
	var ended *ending // nil = the execution has ended before
	var late *lifecycle.LateError
	t, err := r.change(ctx, doing+" an execution of", h.TaskID, func(t *model.Task) (*model.Task, error) {
		_, w := h.Execution(t)
		if w == nil {
			return nil, model.ErrFenced
		}
		listened, ended = !w.Parked && !w.Pulled, nil
		if lifecycle.Repeats(t, w, out) {
			return t, nil
		}
		now := r.Store.Clock.Now()
		after, err := lifecycle.Finish(t, w.ExecID, out, r.Effective(t), now, rand.Float64()) //nolint:gosec // jitter, not a secret
		if late = nil; errors.As(err, &late) {
			return lifecycle.Leave(lifecycle.Expire(t, r.Effective(t), now, rand.Float64()), now), nil //nolint:gosec // jitter, not a secret
		}
		if err != nil {
			return nil, err
		}
		_, is := lifecycle.ExecutionOf(after, w.ExecID)
		ended = &ending{t.Type, is.FailKind, now.Sub(w.ClaimedAt), w.Pulled && !out.Unstarted}
		if !after.DueAt.IsZero() && t.DueAt.IsZero() {
			// Its worker would remember when to look again; here nobody does.
			after.WakeAt = now
		}
		return after, nil
	}, r.together.change)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, model.ErrFenced) {
		if past := r.repeatsPast(ctx, h, out); past != nil {
			return past, nil
		}
	}
	if err == nil && late != nil {
		err = fmt.Errorf("%s an execution of task %s: %w", doing, h.TaskID, late)
	}
	if err != nil {
		return nil, err
	}
	if ended != nil && !r.Store.InRunningTransaction(ctx) { // which may still be rolled back
		r.ended(*ended)
	}
	if listened {
		// The handler still runs, for nothing. Its worker would find out at its next ping.
		if err := r.Signal(ctx, t); err != nil {
			return t, fmt.Errorf("%s an execution of task %s: %w", doing, h.TaskID, err)
		}
	}
	return t, nil
}

// repeatsPast is a past life in which the execution has ended just so, nil if there is none: who lost the answer may
// ask again, however soon the task moved to the history, or its key was sent again.
func (r *Room) repeatsPast(ctx context.Context, h input.Handle, out lifecycle.Outcome) *model.Task {
	past, err := r.Store.History.Life(ctx, h.TaskID, h.Generation)
	if err != nil || past.ArchivedAt.IsZero() {
		return nil // what is refused stays refused
	}
	if _, w := h.Execution(past); w == nil || !lifecycle.Repeats(past, w, out) {
		return nil
	}
	return past
}

// ending is the end of an execution.
type ending struct {
	typ    string
	kind   string
	took   time.Duration
	pulled bool // and begun, by a worker that counts nothing itself
}

// ended counts the end of an execution. The process that ran the handler of a parked one has counted how long
// that took.
func (r *Room) ended(e ending) {
	m := r.Store.Measure.Types.Of(e.typ)
	m.Ended.Of(cmp.Or(e.kind, measure.Success)).Add(1)
	if e.pulled {
		m.Ran.Observe(e.took)
	}
	r.series.soon()
}

// Started counts an execution that a worker has pulled, which was due at that time.
func (r *Room) Started(typ string, due time.Time) {
	r.Store.Measure.Types.Of(typ).Delay.Observe(r.Store.Clock.Now().Sub(due))
	r.series.soon()
}
