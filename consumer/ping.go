package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// pingLoop keeps the leases of everything this process holds, one batch an interval.
func (c *Consumer) pingLoop(ctx context.Context) {
	for ctx.Err() == nil {
		clock.PauseOr(ctx, c.pingAll(ctx), c.pingNow)
	}
}

const (
	longestPause  = time.Second
	shortestPause = 20 * time.Millisecond
)

// pingAll pings what is due, and what is almost due so that pings gather, and returns
// how long until the next.
func (c *Consumer) pingAll(ctx context.Context) time.Duration {
	var batch []*execution
	next := longestPause
	for _, x := range c.held.each() {
		if x.is(abandoned) || x.bounded() || x.completing.Load() {
			continue
		}
		due := x.pingDue(c.cfg.Clock)
		if due <= x.interval()/4 {
			batch = append(batch, x)
			due = x.interval() / 8 // of a next try, if this one is not answered
		}
		next = min(next, due)
	}
	if len(batch) > 0 {
		c.ping(ctx, batch)
	}
	return max(next, shortestPause)
}

// bounded says whether the lease reaches to the deadline already: no ping extends it.
func (x *execution) bounded() bool {
	w := x.entry()
	x.mu.Lock()
	defer x.mu.Unlock()
	return !w.Deadline.IsZero() && (x.toDeadline || !w.PingExpireTime.Before(w.Deadline))
}

func (c *Consumer) ping(ctx context.Context, batch []*execution) {
	sent := clock.Read(c.cfg.Clock)
	now := c.store.Clock.Now()
	pings := make([]store.Ping, len(batch))
	byPing := make(map[[2]string]*execution, len(batch))
	interval := batch[0].interval()
	for i, x := range batch {
		until := model.Lease(x.entry(), x.eff.Lease, now)
		pings[i] = store.Ping{ID: x.task.ID, ExecID: x.execID, Index: x.index, Many: x.isMany(), Until: until}
		byPing[[2]string{x.task.ID, x.execID}] = x
		interval = min(interval, x.interval())
	}
	call, cancel := context.WithTimeout(ctx, max(interval, time.Second))
	defer cancel()
	lost, err := c.store.Pings(call, pings, interval/4)
	c.health.report(c, err)
	if err != nil {
		if ctx.Err() == nil && store.Classify(err) == store.Fatal {
			c.log.Error().Err(err).Msg("pinging")
		}
		return
	}
	c.stats.pings.Add(1)
	for _, p := range lost {
		x := byPing[[2]string{p.ID, p.ExecID}]
		delete(byPing, [2]string{p.ID, p.ExecID})
		c.loseLease(x)
	}
	for i, x := range batch {
		if byPing[[2]string{x.task.ID, x.execID}] != nil && !pings[i].Missed {
			x.prove(sent, pings[i].Until.Sub(now), pings[i].Until.Equal(x.entry().Deadline))
		}
	}
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
		c.log.Warn().Str("task_id", x.task.ID).Str("exec_id", x.execID).Msg("the lease was lost: the task was taken over or ended by somebody else")
		c.emitFor(x, Event{Kind: EventLeaseLost, Reason: "taken over or ended by somebody else"})
	}
}

// guardLoop watches the margin: a handler whose lease could not be extended is told to
// stop before the lease ends and somebody else may begin.
func (c *Consumer) guardLoop(ctx context.Context) {
	for ctx.Err() == nil {
		next := longestPause
		for _, x := range c.held.each() {
			if x.is(returned) || x.is(abandoned) {
				continue
			}
			left := x.trusted(c.cfg.Clock)
			if left > 0 {
				next = min(next, left)
				continue
			}
			c.distrust(x)
		}
		clock.PauseOr(ctx, max(next, time.Millisecond), c.guardNow)
	}
}

func (c *Consumer) distrust(x *execution) {
	cause, why := ErrLeaseLost, "no ping got through in time"
	if x.bounded() {
		cause, why = ErrTimeout, "the deadline has passed"
	}
	if !c.stop(x, cause) {
		return
	}
	if errors.Is(cause, ErrLeaseLost) {
		c.stats.leasesLost.Add(1)
	}
	c.log.Warn().Str("task_id", x.task.ID).Str("exec_id", x.execID).Msg("a handler was told to stop: " + why)
	c.emitFor(x, Event{Kind: EventLeaseLost, Reason: why})
}
