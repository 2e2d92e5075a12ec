package consumer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Causes for which a handler's context ends (context.Cause). If a handler returns an error
// after its context ended, the cause decides what happens to the task. A nil error is a
// success.
var (
	ErrShutdown  = errors.New("the worker is stopping")
	ErrLeaseLost = errors.New("the lease was lost or could not be extended")
	ErrCancelled = errors.New("the task was cancelled") // or its worker filter no longer names this worker
	ErrTimeout   = errors.New("the execution ran past its deadline")
)

// errExcluded is an [ErrCancelled] with the reason for one worker: the task itself goes on.
var errExcluded error = excludedError{}

type excludedError struct{}

func (excludedError) Error() string        { return lifecycle.Excluded }
func (excludedError) Is(target error) bool { return target == ErrCancelled }

// verdict is an error by which a handler says what shall become of its task.
type verdict struct {
	err    error
	say    string
	kind   string         // of the outcome; "" = it parks the task
	delay  *time.Duration // before the next try; nil = as the strategy says
	least  time.Duration  // before the next try, even if the strategy's delay is shorter
	cancel bool           // the task, not only this execution
	until  time.Time      // Park
	local  bool           // a plain error otherwise: it may be retried inside the execution
}

func (v *verdict) Error() string {
	if v.err == nil {
		return v.say
	}
	return v.say + ": " + v.err.Error()
}

func (v *verdict) Unwrap() error { return v.err }

// outcome is that of the execution.
func (v *verdict) outcome() lifecycle.Outcome {
	text := v.say
	if v.err != nil {
		text = v.err.Error()
	}
	out := lifecycle.Failed(v.kind, text)
	out.AtLeast = v.least
	if out.CancelTask = v.cancel; v.delay != nil {
		out = out.After(*v.delay)
	}
	return out
}

// Fatal wraps an error that a retry cannot fix: the task ends as Failure or, with NeedManual,
// as Pending. If it ends as Failure and is a step of a plan, the plan is ERROR until a person resets it.
func Fatal(err error) error { return &verdict{err: err, say: "fatal", kind: failkind.Fatal} }

// PlanError wraps an error that makes the plan of a step wrong (seed 001): the task ends as after
// [Fatal], and the plan is ERROR until a person resets it, also if the task is Pending. A task that is not a step of a plan ends as
// after Fatal.
func PlanError(err error) error {
	return &verdict{err: err, say: "plan error", kind: failkind.PlanError}
}

// RetryAfter is an error with the retry delay d instead of the strategy's delay. It counts as
// an error. A negative d means 0; the maximum is ten years.
func RetryAfter(d time.Duration, err error) error {
	d = bounded(d)
	return &verdict{err: err, say: fmt.Sprintf("retry after %v", d), kind: failkind.Error, delay: &d}
}

// heeded is the error of a handler. If it says that the server of a call wants no retry before a time, the delay is at
// least that: the strategy's delay applies if it is longer.
func heeded(err error) error {
	var v *httpcall.VerdictError
	if !errors.As(err, &v) || !v.Later || errors.As(err, new(*verdict)) {
		return err
	}
	return &verdict{err: err, say: fmt.Sprintf("retry not before %v", v.RetryAfter), kind: failkind.Error, least: bounded(v.RetryAfter)}
}

// Snooze releases the task and makes it due again after d. It counts neither as an error nor as
// an attempt. A negative d means 0; the maximum is ten years.
func Snooze(d time.Duration) error { return snooze(d, fmt.Sprintf("snoozed for %v", bounded(d))) }

func snooze(d time.Duration, why string) error {
	return &verdict{say: why, kind: failkind.Released, delay: new(bounded(d))}
}

// bounded keeps a handler's time within what options may say: a later one could not be
// shown, or not be stored. Refused it would run the task again.
func bounded(d time.Duration) time.Duration { return min(max(d, 0), input.MaxDuration) }

// Release makes the task available to all workers at once. It counts neither as an error nor as
// an attempt.
func Release() error { return &verdict{say: "released by the handler", kind: failkind.Released} }

// Cancel ends the task as Cancelled and cancels its other executions.
func Cancel(reason string) error {
	return &verdict{say: reason, kind: failkind.Cancelled, cancel: true}
}

// Park ends the handler but keeps the execution open, so that another process can complete it
// by its handle (Complete and Fail of the producer). The slot becomes free. If no completion
// arrives by the given time of the store's clock, see [Execution.Now], the execution ends as a timeout. A completion
// that arrived before the park wins. A time in the past, or the zero time, means now; the
// maximum is ten years from now.
func Park(until time.Time) error {
	if until.IsZero() {
		until = time.Unix(0, 0)
	}
	return &verdict{until: until, say: "parked until " + until.UTC().Format(clock.Format)}
}

// TimedOut wraps an error of a call that timed out. It is retried like any other error, and its
// kind is timeout.
func TimedOut(err error) error {
	return &verdict{err: err, say: "timed out", kind: failkind.Timeout, local: true}
}

// NotHere releases the task because this worker lacks something that another worker may have,
// such as a setting or a key. It uses no retry. After the consumer's DecodeGrace, the task ends
// as Failure with err, as by [Fatal]. If the task is a step of a plan, the plan stops then.
func NotHere(err error) error { return &undecodableError{err: err} }

// panicError is a handler's panic with the stack it came from.
type panicError struct{ text, stack string }

func (e *panicError) Error() string { return e.text + "\n" + e.stack }

// caught calls f and turns a panic into an error with its stack.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{text: "panic: " + panicText(p), stack: string(debug.Stack())}
		}
	}()
	return f()
}

// panicText is a panic's value as text; its methods may panic, too.
func panicText(p any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a %T that cannot be printed", p)
		}
	}()
	return fmt.Sprint(p)
}

// undecodableError says that this worker does not understand the task, and that another
// may: the arguments, or the value of a step, are not what this handler knows, or it lacks
// the key to a secret.
type undecodableError struct {
	what  string
	err   error
	grace time.Duration // for how long another is waited for; 0 = the consumer's DecodeGrace
}

func (e *undecodableError) Error() string {
	if e.what == "" {
		return e.err.Error()
	}
	return "decoding " + e.what + ": " + e.err.Error()
}
func (e *undecodableError) Unwrap() error { return e.err }

// parkedUntil says whether the handler asked to be parked.
func parkedUntil(err error, now time.Time) (time.Time, bool) {
	var v *verdict
	switch {
	case !errors.As(err, &v):
		return time.Time{}, false
	case v.until.IsZero():
		return time.Time{}, false
	case v.until.Before(now):
		return now, true
	default:
		return clock.Sooner(v.until, now.Add(input.MaxDuration)), true
	}
}

// judge turns what a handler returned into the outcome of its execution. cause is why
// its context had ended by then, if it had: whoever returns an error then most likely
// returns it because of that. (A success is a success: the work was done.)
func judge(t *model.Task, result bson.RawValue, err, cause error, grace time.Duration, now time.Time) lifecycle.Outcome {
	var v *verdict
	var p *panicError
	var u *undecodableError
	switch {
	case err == nil:
		return lifecycle.Success(result)
	case errors.Is(cause, ErrTimeout):
		return lifecycle.Failed(failkind.Timeout, ErrTimeout.Error()+": "+err.Error())
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrCancelled):
		// Cancelled becomes so in the rule, which knows whether the task was.
		return lifecycle.Failed(failkind.Released, cause.Error())
	case errors.As(err, &p):
		return lifecycle.Failed(failkind.Panic, p.Error())
	case errors.As(err, &u):
		if u.grace > 0 {
			grace = u.grace
		}
		return lifecycle.Undecodable(t, u.Error(), grace, now)
	case errors.As(err, &v) && v.kind != "":
		return v.outcome()
	default:
		return lifecycle.Failed(failkind.Error, err.Error())
	}
}
