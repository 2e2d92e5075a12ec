package consumer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// newEnds makes what writes ends and steps.
func (c *Consumer) newEnds() {
	cfg := finish.Config{
		Store: c.store, Clock: c.cfg.Clock, Health: c.health, Log: c.log,
		Service: func() context.Context { return c.service }, Beside: c.late.Go, Settled: c.passes.send,
	}
	c.ends, c.steps = finish.NewEnds(cfg), finish.NewSteps(cfg)
	c.ends.Gather(c.lingerEnds)
}

// lingerEnds returns how long the next batch of ends waits for more.
func (c *Consumer) lingerEnds() time.Duration {
	more := c.backlog.Load() && !c.isStopping() && !c.held.idle()
	return finish.Linger(c.plan.StartRate(), more)
}

// hold is an execution as package finish sees it.
type hold struct {
	*execution
	c *Consumer
}

// endOf returns the end of an execution with that outcome.
func (c *Consumer) endOf(x *execution, out lifecycle.Outcome) *finish.End {
	return &finish.End{
		Of: hold{x, c}, Claimed: x.task, ExecID: x.execID, Options: x.eff, Out: out,
		Urgent: len(x.permits) > 0 || x.lease.Many(),
	}
}

// end hands over how an execution ended.
func (c *Consumer) end(x *execution, out lifecycle.Outcome) {
	if !x.advance(returned) {
		hold{x, c}.Fenced(out, "the lease was lost before") // known from a ping
		return
	}
	if e := c.endOf(x, out); !c.follow(x, e) {
		c.ends.Put(e)
	}
}

// park keeps the execution open for somebody outside. A completion that came before it
// wins, and the park does nothing.
func (c *Consumer) park(x *execution, until time.Time) {
	if x.advance(returned) {
		e := c.endOf(x, lifecycle.Outcome{NoCallback: x.quiet.Load()})
		e.ParkUntil = until
		c.ends.Put(e)
	} else { // the lease was lost before
		c.releasePermits(x, false)
		c.held.remove(x)
	}
}

// stop tells an execution why it must end; false when it was told before. One that
// waits for a slot ends at once: its handler never runs.
func (c *Consumer) stop(x *execution, cause error) bool {
	if !x.cancel(cause) {
		return false
	}
	if taken, reopened := c.held.unbuffer(x); taken {
		c.end(x, x.unstarted(cause))
		if reopened {
			c.wake.now()
		}
		c.slotFreed()
	}
	return true
}

// unstarted is the outcome of an execution that was told to stop before its handler was called:
// it costs nothing, whatever the cause. A deadline that passed while the task waited for a slot
// says nothing about its handler. Such a task is claimed at most once a second, and more rarely
// where already the claim takes too long: nothing else would end that.
func (x *execution) unstarted(cause error) lifecycle.Outcome {
	reason := cause.Error()
	if errors.Is(cause, ErrTimeout) {
		reason = "its deadline came before its turn"
	}
	switch w := x.entry(); {
	case x.late:
		return lifecycle.TooLate(x.task, reason)
	case errors.Is(cause, ErrTimeout):
		return lifecycle.NotStarted(reason).After(max(0, time.Second-w.Deadline.Sub(w.ClaimedAt)))
	default:
		return lifecycle.NotStarted(reason)
	}
}

func (h hold) Interval() time.Duration { return h.lease.Interval() }
func (h hold) Completing() bool        { return h.completing.Load() }
func (h hold) Leaving() bool           { return h.c.isStopping() || h.c.asks.Load() != nil }
func (h hold) Delayed()                { h.c.held.keepNoLonger(h.execution) }
func (h hold) Left()                   { h.c.held.remove(h.execution) }

func (h hold) Parked() {
	h.Left()
	h.c.emitFor(h.execution, Event{Kind: workerevent.Parked, Ran: h.ran})
}

// outcomeOf is how metrics call the end of an execution.
func outcomeOf(w *model.WorkerState) string { return outcomeText(w.FailKind) }

func outcomeText(kind string) string { return cmp.Or(kind, measure.Success) }

func (h hold) Ended(after *model.Task) {
	c, x := h.c, h.execution
	c.stats.finished.Add(1)
	c.releasePermits(x, true)
	_, w := lifecycle.ExecutionOf(after, x.execID)
	x.h.measured.Ended.Of(outcomeOf(w)).Add(1)
	c.outcomes.Ended(after) // before nothing is held any more: a drain waits for both
	decision.Ended(c.store, after)
	c.held.remove(x)
	c.emitFor(x, Event{Kind: workerevent.Finished, Outcome: w.FailKind, Status: after.Status, Reason: w.FailReason, Ran: x.ran})
	if !after.DueAt.IsZero() {
		c.seeker.Hear(after)
		c.wake.at(after.DueAt)
	}
	if !after.CancelRequestedAt.IsZero() && lifecycle.OpenExecutions(after) > 0 {
		c.tellOthers(after)
	}
}

// Fenced reports a result that came too late: it is refused and never applied.
func (h hold) Fenced(out lifecycle.Outcome, why string) {
	c, x := h.c, h.execution
	c.stats.fenced.Add(1)
	c.releasePermits(x, false) // the execution has ended, whoever ended it
	c.held.remove(x)
	about(c.log.Warn(), x).Str("outcome", outcomeText(out.Kind)).Msg("refused a late result: " + why)
	c.emitFor(x, Event{Kind: workerevent.Fenced, Outcome: out.Kind, Reason: why, Ran: x.ran})
}

func (h hold) StepWrite(s model.Step) store.StepWrite {
	return store.StepWrite{ID: h.task.ID, ExecID: h.execID, Index: h.index, Many: h.lease.Many(), Step: s}
}
