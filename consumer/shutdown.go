package consumer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/internal/store"
)

// returnGrace is how long handlers get to return once their context has ended.
const returnGrace = 5 * time.Second

// shutdown ends the work: what waits for a slot is given back, handlers run on for the
// ShutdownTimeout, then their contexts end, and each execution is given back at once,
// without cost, when its handler has returned.
func (c *Consumer) shutdown(keepers *sync.WaitGroup) error {
	c.late.Go(c.handOn)
	gaveBack := make(chan struct{})
	c.late.Go(func() { // a database that is away may hold it up
		defer close(gaveBack)
		c.giveBack("the worker is stopping")
	})
	c.starting.Lock() // after a stop nothing starts any more, and what had started is counted
	returned := c.handlersReturned()
	c.starting.Unlock()
	if !c.await(returned, c.cfg.ShutdownTimeout) {
		for _, x := range c.held.each() {
			x.cancel(ErrShutdown)
		}
		c.await(returned, returnGrace)
	}
	c.await(gaveBack, max(c.cfg.ShutdownTimeout, returnGrace))
	c.writeLast(c.hurry)
	if left := c.stillRunning(); len(left) > 0 {
		// They hold their tasks: pinged on until they return or the process ends. Nobody
		// waits for them, so there is no hurry any more.
		go func() {
			<-returned
			c.writeLast(context.Background())
			c.writeOutcomes(context.Background())
			c.store.Series.Record(context.Background(), true)
			c.endService()
		}()
		c.log.Error().Strs("executions", left).Msg("handlers ignored the cancellation of their context and are still running")
		return &LeftError{Executions: left}
	}
	c.writeOutcomes(c.hurry)
	c.store.Series.Record(c.hurry, true)
	c.goodbye()
	c.endService()
	keepers.Wait()
	c.late.Wait()
	c.leases.Wait()
	return nil
}

// awaitSeekers waits for the loops that claim. One of them may not know whether its last
// claim was won: a database that is away must not keep the process for ever, so after a
// grace those leases are left to lapse.
func (c *Consumer) awaitSeekers(seekers *sync.WaitGroup) {
	t := time.AfterFunc(returnGrace, c.giveUp)
	defer t.Stop()
	defer context.AfterFunc(c.hurry, c.giveUp)()
	seekers.Wait()
	c.apart.Wait() // begun by those loops alone
}

// handlersReturned is closed when all handlers have returned.
func (c *Consumer) handlersReturned() <-chan struct{} {
	returned := make(chan struct{})
	go func() {
		c.handlersWG.Wait()
		close(returned)
	}()
	return returned
}

// await waits for ch, at most d and not beyond the end of a Stop's context.
func (c *Consumer) await(ch <-chan struct{}, d time.Duration) bool {
	if clock.PauseOr(c.hurry, d, ch) {
		return true
	}
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// writeLast waits until the last ends are written. A database that is away must not
// keep the process for ever: after the shutdown timeout the leases are left to lapse.
func (c *Consumer) writeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(c.cfg.ShutdownTimeout, returnGrace))
	defer cancel()
	for c.ends.Wait(ctx) == nil && c.waitingEnds() && ctx.Err() == nil {
		clock.Pause(ctx, 5*time.Millisecond)
	}
}

// writeOutcomes gives what follows the last ends a moment; the rest is another process's.
func (c *Consumer) writeOutcomes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, returnGrace)
	defer cancel()
	if err := c.outcomes.Wait(ctx); err != nil {
		c.log.Info().Msg("stopped before all outcomes were handled; other processes will handle them")
	}
	_ = c.gate.Wait(ctx) // what it cannot give back in time is the sweeper's
	c.gate.Close()
	c.outcomes.Close()
	if c.deliverer != nil {
		c.deliverer.Close()
	}
}

// waitingEnds says whether an end is still on its way: written again after a moment.
func (c *Consumer) waitingEnds() bool {
	for _, x := range c.held.each() {
		if x.is(returned) {
			return true
		}
	}
	return false
}

func (c *Consumer) stillRunning() []string {
	var left []string
	for _, x := range c.held.each() {
		if x.is(running) || x.is(abandoned) {
			left = append(left, input.ExecutionID(x.task, x.execID))
		}
	}
	return left
}

// handOn tells the other workers of the next start, such as a retry of what this worker has ended: it alone has waited for
// that. Those that rest would find it by their polls. What it ends from now on wakes them by itself, see [hold.Leaving].
// It asks also if it knows of no other worker: the count may be minutes old.
func (c *Consumer) handOn() {
	ctx, cancel := context.WithTimeout(c.hurry, 2*time.Second)
	defer cancel()
	looked, _ := c.plan.LastLook() // the loop that looks has ended
	types := slices.DeleteFunc(slices.Clone(c.types()), c.waits)
	c.store.Control.WakeNext(ctx, store.NextQuery{Types: c.someTypes(types), After: looked, Until: c.store.Clock.Now().Add(2 * presence.PollWatching)})
}

// goodbye takes the workers document away. If that does not succeed it ages out.
func (c *Consumer) goodbye() {
	ctx, cancel := context.WithTimeout(c.service, 2*time.Second)
	defer cancel()
	if err := c.store.Workers.Remove(ctx, c.document()); err != nil {
		c.log.Debug().Err(err).Msg("could not remove the worker's document")
	}
}
