package consumer

import (
	"errors"

	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/workerevent"
)

// Lease is what internal/lease keeps.
func (x *execution) Lease() *lease.Hold { return x.lease }

// Pingable is false once somebody else has the task, or while a transaction may end it.
func (x *execution) Pingable() bool { return !x.is(abandoned) && !x.completing.Load() }

// Unreturned is true until the handler has returned.
func (x *execution) Unreturned() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state < returned
}

// loseLease ends the handler of an execution that somebody else has ended. One whose
// own end is being written is not lost: that end may be what the ping met. Nor is one
// whose handler may have ended it in a transaction: its end tells.
func (c *Consumer) loseLease(x *execution) {
	x.mu.Lock()
	if x.state >= returned || x.completing.Load() {
		x.mu.Unlock()
		return
	}
	x.state = abandoned
	x.mu.Unlock()
	if c.stop(x, ErrLeaseLost) {
		c.stats.leasesLost.Add(1)
		about(c.log.Warn(), x).Msg("the lease was lost: another worker took over the task, or the task ended")
		c.emitFor(x, Event{Kind: workerevent.LeaseLost, Reason: "another worker took over the task, or the task ended"})
	}
}

// overdue is why an execution whose lease has ended must stop.
func (x *execution) overdue() error {
	if x.lease.Bounded() {
		return ErrTimeout
	}
	return ErrLeaseLost
}

// leaseEnded tells the handler to stop whose lease could not be extended in time. One that has
// only waited for a slot until its deadline is given back, and no person needs to know.
func (c *Consumer) leaseEnded(x *execution) {
	cause, why, log := x.overdue(), "no ping succeeded in time", true
	if !c.stop(x, cause) {
		return
	}
	switch {
	case errors.Is(cause, ErrLeaseLost):
		c.stats.leasesLost.Add(1)
	case !x.begun():
		return
	default:
		why, log = "the deadline has passed", c.deadlines.Again(x.h.typ, c.cfg.Clock)
	}
	if log {
		about(c.log.Warn(), x).Msg("cancelled a handler: " + why)
	}
	c.emitFor(x, Event{Kind: workerevent.LeaseLost, Reason: why})
}
