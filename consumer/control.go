package consumer

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/control"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// learnTypes reads the documents of the types where they have changed: what they say
// counts from the next claim on.
func (c *Consumer) learnTypes(ctx context.Context, version int64) error {
	changed, err := c.taskTypes.Refresh(ctx, version)
	if !changed {
		return err
	}
	if err := c.serveCategories(); err != nil {
		return err
	}
	for _, typ := range c.types() {
		c.handlerOf(typ).learn(c.taskTypes.Options(typ))
	}
	if c.gate.Relearned() {
		c.wake.now()
	}
	return nil
}

// signalled are the executions that signals may name.
func (c *Consumer) signalled() (held []control.Held) {
	for _, x := range c.held.each() {
		if x.Unreturned() {
			held = append(held, control.Held{TaskID: x.task.ID, Obey: func(t *model.Task) { c.obey(x, t) }})
		}
	}
	return held
}

// obey stops an execution whose task, as it is now, is cancelled or not for this worker any
// more, and takes over its changed options else.
func (c *Consumer) obey(x *execution, t *model.Task) {
	if t == nil {
		c.loseLease(x)
		return
	}
	_, w := lifecycle.ExecutionOf(t, x.execID)
	switch {
	case w == nil || !lifecycle.Open(w):
		c.loseLease(x)
	case !t.CancelRequestedAt.IsZero(), lifecycle.MustStop(t, c.cfg.WorkerID):
		why := ErrCancelled
		if t.CancelRequestedAt.IsZero() {
			why = errExcluded
		}
		if c.stop(x, why) {
			c.emitFor(x, Event{Kind: workerevent.Cancelled, Reason: why.Error()})
		}
	default:
		x.lease.Adapt(lifecycle.EffectiveFor(t, w, model.Options{}).PingInterval, lifecycle.Wanted(t) > 1)
		c.leases.PingNow()
	}
}

// tellOthers signals that a task was cancelled by one of its handlers while others run.
func (c *Consumer) tellOthers(t *model.Task) {
	c.late.Go(func() {
		for wait := c.health.NewBackOff(); c.service.Err() == nil; wait.Sleep(c.service) {
			ctx, cancel := context.WithTimeout(c.service, rpcTimeout)
			err := c.store.Control.Signal(ctx, t.ID)
			cancel()
			if store.Classify(err) == store.OK || store.Classify(err) == store.Fatal {
				return
			}
		}
	})
}

// asked takes what an operator asks this worker for; nil = nothing, or no longer.
func (c *Consumer) asked(drain *store.Drain) {
	if c.cfg.NoDrain {
		return
	}
	was := c.asks.Swap(drain)
	if (was != nil) == (drain != nil) {
		return
	}
	c.control.Drain(drain != nil)
	if drain == nil {
		c.log.Info().Msg("an operator has resumed the worker")
		return
	}
	c.log.Info().Bool("stop", drain.Stop).Str("by", drain.By).Str("note", drain.Note).Msg("an operator drains the worker: it claims nothing more and finishes what it holds")
	c.giveBack("the worker is being drained")
}

// housekeepingLoop does what is due every second or every half minute.
func (c *Consumer) housekeepingLoop(ctx context.Context) {
	for ctx.Err() == nil {
		c.logOutage()
		// One that serves categories reads it also when idle: their types may change.
		if (c.held.count().all > 0 || len(c.categories) > 0) && c.control.Age() >= control.MaxAge*9/10 {
			c.health.Report(c.control.Read(ctx))
		}
		if !c.isStopping() && (c.presence.Due() || c.health.Trust.WantsClock()) {
			c.health.Report(c.presence.Beat(ctx))
		}
		c.store.Series.Record(ctx, false)
		if asks := c.asks.Load(); asks != nil && asks.Stop && c.held.count().all == 0 {
			c.requestStop()
		}
		if c.held.stalled(c.cfg.Clock.Monotonic(), stallTime) {
			c.giveBack("nothing has started for a while")
		}
		clock.Pause(ctx, control.MaxAge/2)
	}
}

// stallTime is how long claimed work waits for a slot without anything starting before
// it is given back for others.
const stallTime = 2 * time.Second

// giveBack releases everything that was claimed but not started.
func (c *Consumer) giveBack(why string) {
	for _, x := range c.held.takeBuffer() {
		c.end(x, lifecycle.NotStarted(why))
	}
	c.slotFreed()
}
