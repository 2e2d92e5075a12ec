package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// controlAge is how old the copy of the control document may be for a claim, and how
// often it is read while something is held.
const controlAge = time.Second

// control is this process's copy of the control document.
type control struct {
	mu      sync.Mutex
	doc     store.ControlDoc
	read    bool
	at      clock.Instant
	signals time.Time // the store's: signals were read up to here
	signal  int64     // of the document when they were
	again   bool      // look at the signals again, although there is no new one
}

func (k *control) init() { k.signal = -1 }

func (k *control) paused(typ string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doc.Paused(typ)
}

// limited says whether anybody has ever used a limit.
func (k *control) limited() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doc.Limited
}

func (k *control) age(c Clock) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.read {
		return time.Hour
	}
	return k.at.Since(c)
}

// fresh reads the document again if the copy is too old to claim by.
func (k *control) fresh(ctx context.Context, c *Consumer) error {
	if k.age(c.cfg.Clock) < controlAge {
		return nil
	}
	return c.readControl(ctx)
}

// readControl reads the control document and, when there are new signals, acts on them.
func (c *Consumer) readControl(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	asked, now := clock.Read(c.cfg.Clock), c.store.Clock.Now()
	doc, err := c.store.Control.Read(ctx)
	if err != nil {
		return err
	}
	if err := c.learnTypes(ctx, doc.Types); err != nil {
		return err
	}
	k := &c.control
	k.mu.Lock()
	resumed := k.read && k.doc.PausedAll && !doc.PausedAll || len(doc.PausedTypes) < len(k.doc.PausedTypes)
	k.doc, k.read, k.at = doc, true, asked
	first, signalled, since := k.signal < 0, doc.Signal != k.signal || k.again, k.signals
	if signalled { // before they are looked at, see lookFrom
		k.signal, k.signals, k.again = doc.Signal, now, false
	}
	k.mu.Unlock()
	if resumed {
		c.wake.now()
	}
	if signalled && !first {
		if err := c.readSignals(ctx, since); err != nil {
			k.lookFrom(since) // they are read again next time
			return err
		}
	}
	return nil
}

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

// lookFrom makes the next reading look at the signals since the time once more, if they
// have been looked at: what they named then was not held yet.
func (k *control) lookFrom(since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signals.After(since) {
		k.signals, k.again = since, true
	}
}

// readSignals looks at those of our tasks that signals name: cancelled, or not for us any more.
func (c *Consumer) readSignals(ctx context.Context, since time.Time) error {
	held := c.held.each()
	ids := make([]string, len(held))
	for i, x := range held {
		ids[i] = x.task.ID
	}
	named, err := c.store.Control.Signals(ctx, since, ids)
	if err != nil {
		return err
	}
	var mine []*execution
	var read []string
	for _, x := range held {
		if named[x.task.ID] && !x.is(returned) && !x.is(abandoned) {
			mine, read = append(mine, x), append(read, x.task.ID)
		}
	}
	tasks, err := c.store.Tasks.States(ctx, read)
	if err != nil {
		return err
	}
	for _, x := range mine {
		c.obey(x, tasks[x.task.ID])
	}
	return nil
}

func (c *Consumer) obey(x *execution, t *model.Task) {
	if t == nil {
		c.loseLease(x)
		return
	}
	_, w := t.Execution(x.execID)
	switch {
	case w == nil || !w.Open():
		c.loseLease(x)
	case !t.CancelRequestedAt.IsZero(), lifecycle.MustStop(t, c.cfg.WorkerID):
		why := ErrCancelled
		if t.CancelRequestedAt.IsZero() {
			why = errExcluded
		}
		if c.stop(x, why) {
			c.emitFor(x, Event{Kind: EventCancelled, Reason: why.Error()})
		}
	default:
		x.lease.Adapt(c.effOf(t).PingInterval, t.Wanted() > 1)
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

// housekeepingLoop does what is due every second or every half minute.
func (c *Consumer) housekeepingLoop(ctx context.Context) {
	lastBeat, served := clock.Read(c.cfg.Clock), c.served.Load()
	for ctx.Err() == nil {
		// One that serves categories reads it also when idle: their types may change.
		if (c.held.count().all > 0 || len(c.categories) > 0) && c.control.age(c.cfg.Clock) >= controlAge*9/10 {
			c.health.Report(c.readControl(ctx))
		}
		types := c.served.Load()
		if !c.isStopping() && (types != served || lastBeat.Since(c.cfg.Clock) >= store.HeartbeatInterval || c.store.Clock.Age() >= store.HeartbeatInterval || c.health.Trust.WantsClock()) {
			err := c.beat(ctx)
			c.health.Report(err)
			if err == nil {
				lastBeat, served = clock.Read(c.cfg.Clock), types
			}
		}
		if c.held.stalled(c.cfg.Clock.Monotonic(), stallTime) {
			c.giveBack("nothing has started for a while")
		}
		clock.Pause(ctx, controlAge/2)
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
}
