package consumer

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// run calls the handler of one execution and hands its end over. The slot is free when
// the handler has returned, and not before; a long queue of ends holds it a little
// longer, which is the back-pressure.
func (c *Consumer) run(x *execution) {
	defer c.handlerGone(x) // also one that ended its goroutine
	now := c.store.Clock.Now()
	switch {
	case !x.task.Options.ExpiresAt.IsZero() && lifecycle.ExpiredFor(x.task, x.execID, now):
		c.end(x, lifecycle.NotStarted("it expired before its turn came"))
	case !x.until.IsZero() && now.After(x.until):
		// The claim was held up on its way, or no slot was free: by the rate it must not begin
		// any more.
		c.end(x, lifecycle.NotStarted("its start by the rate limit had passed"))
	case x.lease.Trusted(c.cfg.Clock) <= 0:
		// The process stood still while it waited for its slot, so another may have the task. Or
		// its deadline is too close.
		c.end(x, x.unstarted(x.overdue()))
	default:
		c.attempt(x)
	}
}

// handlerGone frees the slot, unless another task will get the permit of this one.
func (c *Consumer) handlerGone(x *execution) {
	keep := c.passesOn(x)
	var next *handler
	if !keep {
		next = c.passes.lacking(c)
	}
	reopened, given := c.held.handlerReturned(x, keep, next)
	if given {
		c.passes.give(c, next)
	}
	if reopened {
		c.wake.now()
	}
	c.slotFreed()
	c.hurryLast()
}

// hurryLast writes the ends that gather if no more are about to come.
func (c *Consumer) hurryLast() {
	if c.held.idle() {
		c.ends.Hurry()
	}
}

// slotsReleased frees slots that were kept for tasks that did not come.
func (c *Consumer) slotsReleased(reopened bool) {
	if reopened {
		c.wake.now()
	}
	c.slotFreed()
	c.startReady()
	c.hurryLast()
}

// said is what a handler made of its task, and why its context had ended by then.
type said struct {
	done       bool // it has returned
	result     bson.RawValue
	err, cause error
}

// attempt calls the handler and hands over what it made of the task. A handler that ends
// its goroutine ends this one, of which only what is deferred is left.
func (c *Consumer) attempt(x *execution) {
	var s said
	defer func() {
		if !s.done {
			s.err = &panicError{text: errGoexit, stack: string(debug.Stack())}
		}
		c.handOver(x, s)
	}()
	c.call(x, &s)
	s.done = true
}

const errGoexit = "the handler ended its goroutine (runtime.Goexit, or FailNow of a test) and did not return"

// handOver ends the execution by what its handler said, or parks it.
func (c *Consumer) handOver(x *execution, s said) {
	now := c.store.Clock.Now()
	var out lifecycle.Outcome
	var until time.Time
	var parked bool
	judged := func(err error) error {
		return caught(func() error { // reading an error calls methods of the user's
			if until, parked = parkedUntil(err, now); !parked {
				out = judge(x.task, s.result, err, s.cause, c.cfg.DecodeGrace, now)
			}
			return nil
		})
	}
	if broken := judged(s.err); broken != nil {
		_ = judged(broken) // a panic is ours to read
	}
	x.endSpan(out, s.cause, parked)
	if parked {
		c.park(x, until) // also when the worker is stopping: the work goes on elsewhere
		return
	}
	out.NoCallback = x.quiet.Load()
	if !x.begun() {
		out = x.unstarted(s.cause)
	}
	if out.Kind == failkind.Undecodable && c.undecoded.Again(x.h.typ, c.cfg.Clock) {
		about(c.log.Warn(), x).Str("type", x.h.typ).Str("reason", out.Reason).Msg("could not read the arguments of a task; leaving it to other workers")
	}
	c.end(x, out)
}

// call runs the handler, with its local retries, and notes what it returned and why its
// context had ended by then.
func (c *Consumer) call(x *execution, s *said) {
	ctx, cancel := context.WithCancelCause(c.handlerCtx)
	defer cancel(nil)
	if d := x.entry().Deadline; !d.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d.Sub(c.store.Clock.Now()), ErrTimeout)
		defer stop()
	}
	if err := x.begin(cancel); err != nil {
		s.err, s.cause = err, err // it was cancelled while it waited for its slot
		return
	}
	c.wantSuccessor(x)
	began := clock.Read(c.cfg.Clock)
	defer func() {
		x.ran = began.SinceMonotonic(c.cfg.Clock)
		c.plan.Ran(x.ran)
		x.h.took(x.ran)
		x.h.measured.Ran.Observe(x.ran)
		if ctx.Err() != nil {
			s.cause = context.Cause(ctx)
		}
	}()
	late := max(c.store.Clock.Now().Sub(x.dueAt), 0) // an estimate may lag
	x.h.measured.Delay.Observe(late)
	c.emitFor(x, Event{Kind: workerevent.Started, Late: late})
	ctx = c.traced(ctx, x, late)
	e := c.executionFor(x)
	ctx = context.WithValue(ctx, executionKey{}, e)
	for retries := x.entry().LocalRetries; ; retries++ {
		e.steps.Forget()
		x.quiet.Store(false)
		again := false
		s.err = caught(func() error { // the methods of a result and of an error are the user's
			value, err := x.h.run(ctx, e)
			if err == nil {
				s.result, err = encodeResult(value)
				return err
			}
			err = heeded(err)
			again = retryableHere(err)
			return err
		})
		if !again || retries >= x.eff.Retry.Local.Count || ctx.Err() != nil || x.completing.Load() {
			return
		}
		if !c.awaitLocalRetry(ctx, x, retries+1) {
			return
		}
		e.retries.Store(int32(retries + 1))
		c.traceRetry(x, retries+1, s.err)
	}
}

// awaitLocalRetry counts a retry inside the execution and waits for its time. It counts the
// retry before it begins, so that a crash does not grant it again. false means that the retry
// must not begin, and that the handler's error stands.
func (c *Consumer) awaitLocalRetry(ctx context.Context, x *execution, n int) bool {
	began := clock.Read(c.cfg.Clock)
	for wait := c.health.NewBackOff(); ; wait.Sleep(ctx) {
		err := c.store.Tasks.SaveLocalRetries(ctx, x.task.ID, x.index, x.execID, n)
		if err == nil {
			return clock.Pause(ctx, x.eff.Retry.Local.Interval-began.SinceMonotonic(c.cfg.Clock))
		}
		if ctx.Err() != nil || errors.Is(err, model.ErrFenced) {
			return false
		}
		c.health.Report(err)
		if store.Final(err) {
			about(c.log.Error().Err(err), x).Msg("the database refused to record a local retry; ending the execution with the handler's error")
			return false
		}
	}
}

// retryableHere says whether an error may be retried inside the execution: a plain one.
// A handler that said what shall become of the task is believed.
func retryableHere(err error) bool {
	var v *verdict
	var u *undecodableError
	return (!errors.As(err, &v) || v.local) && !errors.As(err, &u)
}

// begin marks the execution as running, or returns why it must not.
func (x *execution) begin(cancel context.CancelCauseFunc) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopped != nil {
		return x.stopped
	}
	x.stop = cancel
	x.lease.Begin()
	if x.state == buffered {
		x.state = running
	}
	return nil
}

// begun says whether the handler has been called.
func (x *execution) begun() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop != nil
}

func (c *Consumer) executionFor(x *execution) *Execution {
	t := x.task
	e := &Execution{
		TaskID: t.ID, Key: t.Key, Type: t.Type, Tenant: t.Tenant, Creator: t.Creator, Category: t.Category,
		ID: input.ExecutionID(t, x.execID), Handle: input.HandleOf(t, x.execID).String(), Token: model.Token{Generation: t.Generation, Rev: t.Rev},
		Attempt: x.attempt, Errors: t.ErrorCount, LastError: t.ErrorInfo,
		Deadline: x.entry().Deadline, DueAt: x.dueAt, Origin: t.Origin,
		args: t.Args, hold: x, consumer: c,
	}
	e.remember(lifecycle.CheckpointOf(t, c.cfg.WorkerID))
	return e
}
