package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
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
	answered := true
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
		answered = c.pingBatch(ctx, batch)
	}
	if answered {
		c.health.Pinged()
	} else { // others believe that a healthy worker tries again so soon
		next = min(next, claim.RetryPings/2+rand.N(claim.RetryPings/2))
	}
	return max(next, shortestPause)
}

// pingBatch pings free tasks in one batch. It pings held tasks one by one beside the batch. So
// they delay no other task, and keep their leases if the transaction ends in time. answered
// reports whether the database answered the batch.
func (c *Consumer) pingBatch(ctx context.Context, batch []*execution) (answered bool) {
	free := make([]*execution, 0, len(batch))
	for _, x := range batch {
		switch {
		case !c.store.Suspected(x.task.ID):
			free = append(free, x)
		case x.alone.CompareAndSwap(false, true):
			c.late.Go(func() {
				defer x.alone.Store(false)
				c.ping(ctx, []*execution{x})
			})
		}
	}
	return len(free) == 0 || c.ping(ctx, free)
}

// bounded says whether the lease reaches to the deadline already: no ping extends it.
func (x *execution) bounded() bool {
	w := x.entry()
	x.mu.Lock()
	defer x.mu.Unlock()
	return !w.Deadline.IsZero() && (x.toDeadline || !w.PingExpireTime.Before(w.Deadline))
}

// ping extends the leases of the batch, and reports whether the database answered.
func (c *Consumer) ping(ctx context.Context, batch []*execution) (answered bool) {
	sent := clock.Read(c.cfg.Clock)
	interval, slept := batch[0].interval(), false
	for _, x := range batch {
		interval = min(interval, x.interval())
		slept = slept || x.mayHaveSlept(c.cfg.Clock)
	}
	limit := max(interval, time.Second)
	if c.health.Down() { // on a connection, perhaps, that will never answer
		limit = time.Second
	}
	call, cancel := c.health.Call(ctx, limit)
	defer cancel()
	if slept { // a lease that counts from an estimate of before would have lapsed already
		if err := c.store.ReadClock(call); err != nil {
			c.health.Report(err)
			return false
		}
	}
	now := c.store.Clock.Now()
	pings := make([]store.Ping, len(batch))
	byPing := make(map[[2]string]*execution, len(batch))
	for i, x := range batch {
		until := lifecycle.Lease(x.entry(), x.eff.Lease, now)
		pings[i] = store.Ping{ID: x.task.ID, ExecID: x.execID, Index: x.index, Many: x.isMany(), Until: until}
		byPing[[2]string{x.task.ID, x.execID}] = x
	}
	lost, err := c.store.Tasks.Pings(call, pings, interval/4)
	c.health.Report(err)
	if err == nil {
		c.stats.pings.Add(1)
	} else if ctx.Err() == nil && store.Classify(err) == store.Fatal {
		c.log.Error().Err(err).Msg("pinging")
	}
	// Answered pings count, whatever the results of the others.
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
	return err == nil
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
		var doubtful []*execution
		for _, x := range c.held.each() {
			if x.is(returned) || x.is(abandoned) {
				continue
			}
			left := x.trusted(c.cfg.Clock)
			if left > 0 {
				next = min(next, left)
				continue
			}
			switch x.askFirst(c.cfg.Clock) {
			case unasked:
				doubtful = append(doubtful, x)
			case answered:
				c.distrust(x)
			}
		}
		if len(doubtful) > 0 { // beside the others, whose margin ends meanwhile
			c.late.Go(func() { c.confirm(ctx, doubtful) })
		}
		clock.PauseOr(ctx, max(next, time.Millisecond), c.guardNow)
	}
}

// confirmTime is how long the database has to confirm leases that have ended by the wall clock
// alone.
const confirmTime = time.Second

// confirm pings such executions, so that setting a machine's clock does not cost it its
// work. A lease that ends at the deadline cannot be extended; the database's clock decides
// about it.
func (c *Consumer) confirm(ctx context.Context, doubtful []*execution) {
	defer notify(c.guardNow)
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var batch, bounded []*execution
	for _, x := range doubtful {
		if x.bounded() {
			bounded = append(bounded, x)
		} else {
			batch = append(batch, x)
		}
	}
	if len(batch) > 0 {
		c.ping(ctx, batch)
	}
	if len(bounded) > 0 {
		asked := clock.Read(c.cfg.Clock)
		err := c.store.ReadClock(ctx)
		c.health.Report(err)
		if now := c.store.Clock.Now(); err == nil {
			for _, x := range bounded {
				x.prove(asked, x.entry().Deadline.Sub(now), true)
			}
		}
	}
	for _, x := range doubtful {
		x.confirmed()
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
