package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// Drained is the result of [Consumer.Drain]. Each task counts once, when it ends.
type Drained struct {
	Executions int // handlers that were called
	Succeeded  int // tasks that ended as Success
	Failed     int // tasks that ended as Failure or Pending
	Cancelled  int // tasks that ended as Cancelled
	Errors     int // executions that ended with an error, a panic or a timeout
	Released   int // executions that were released without using a retry
	Parked     int
	Fenced     int // ends that came too late
	Skipped    time.Duration
}

func (d *Drained) count(e Event) {
	switch e.Kind {
	case workerevent.Started:
		d.Executions++
	case workerevent.Parked:
		d.Parked++
	case workerevent.Fenced:
		d.Fenced++
	case workerevent.Finished:
		switch {
		case lifecycle.Costs(e.Outcome):
			d.Errors++
		case e.Outcome == failkind.Released || e.Outcome == failkind.Undecodable:
			d.Released++
		}
		switch e.Status {
		case model.StatusSuccess, model.StatusCompleted:
			d.Succeeded++
		case model.StatusFailure, model.StatusPending:
			d.Failed++
		case model.StatusCancelled:
			d.Cancelled++
		}
	}
}

// Drain runs tasks until no task is due and no handler runs, then returns. It is for tests and
// batch jobs. It waits for a due task that an open transaction of another client locks. It may
// be called repeatedly, also before Run, but not concurrently with it.
//
// Drain takes over tasks whose leases have lapsed. Without skipTime, it first waits, as Run does, if their
// workers may be well, for example right after an election. It leaves them alone when it is still in doubt after
// three times the first wait.
//
// With skipTime, Drain then advances its notion of the database's time to the next due_at and
// continues, so that delays and retries take no time. It stops after 250 years in total, so
// that a task that always snoozes cannot keep it busy. Use skipTime only on test databases.
//
// Before each look for tasks, Drain calls each function of beside with its notion of the time. Such a
// function does other work of this process that is due, for example the Drain method of a
// flow.Flows, which starts the next nodes. If worked is true, there may be new tasks, and next is
// the time to look at; otherwise next is when more work is due (zero = never).
//
// [Consumer.Stop] ends Drain as it ends Run: handlers may continue for the ShutdownTimeout. If
// work is left then, the error is [ErrShutdown]. When ctx ends, no handler starts any more, the contexts of handlers end
// at once, and Drain waits as long for them to return. If handlers did not return, the error is also a [*LeftError], and
// the consumer cannot start again.
func (c *Consumer) Drain(ctx context.Context, skipTime bool, beside ...func(ctx context.Context, now time.Time) (next time.Time, worked bool, err error)) (Drained, error) {
	if err := c.start(ctx); err != nil {
		return Drained{}, err
	}
	var left error
	defer func() {
		c.mu.Lock()
		c.started, c.left = false, left != nil
		close(c.done)
		c.mu.Unlock()
	}()
	ctx, end := undated(ctx)
	defer end()
	err := c.prepare(ctx)
	if c.isStopping() {
		err = ErrShutdown
	}
	if err != nil {
		return Drained{}, err
	}
	var mu sync.Mutex
	var done Drained
	tap := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		done.count(e)
	}
	c.tap.Store(&tap)
	defer c.tap.Store(nil)
	defer context.AfterFunc(ctx, c.giveUp)()
	var keepers sync.WaitGroup
	c.keep(&keepers)
	skipped, err := c.drainUntilStopped(ctx, drainage{skipTime, beside})
	if err != nil && !c.isStopping() {
		for _, x := range c.held.each() {
			x.cancel(ErrShutdown)
		}
		c.giveBack("the worker is stopping")
	}
	left = c.shutdown(&keepers)
	mu.Lock()
	defer mu.Unlock()
	done.Skipped = skipped
	return done, errors.Join(because(ctx, err), left)
}

// because adds why ctx ended, if it has, to the error of what then failed.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// drainage is how to drain, see [Consumer.Drain].
type drainage struct {
	skipTime bool
	beside   []func(ctx context.Context, now time.Time) (next time.Time, worked bool, err error)
}

// drainUntilStopped drains, until a stop or the end of the context ends that. After an error nothing starts any more.
func (c *Consumer) drainUntilStopped(ctx context.Context, how drainage) (skipped time.Duration, err error) {
	work, end := context.WithCancelCause(ctx)
	drained := make(chan struct{})
	var seeker sync.WaitGroup
	seeker.Go(func() {
		defer close(drained)
		skipped, err = c.drain(work, how)
	})
	stopped := false
	select {
	case <-drained:
		c.cutShort.Store(err != nil)
	case <-ctx.Done():
		c.cutShort.Store(true)
	case <-c.stopping.Done():
		end(ErrShutdown)
		stopped = true
	}
	end(nil)
	c.awaitSeekers(&seeker)
	if stopped && err != nil {
		err = ErrShutdown
	}
	return skipped, err
}

func (c *Consumer) drain(ctx context.Context, how drainage) (skipped time.Duration, err error) {
	if !how.skipTime { // else there is no healthy worker whose leases may have lapsed
		c.lapses.Begin(ctx)
	}
	var patience time.Duration // monotonic: until when it waits for leases that were left alone; 0 = none was
	for {
		// First, so that the look below finds the tasks that they have made.
		other, worked, err := how.others(ctx, c.store.Clock.Now())
		if err != nil {
			return skipped, err
		}
		if worked {
			c.store.Clock.Skip(max(other.Sub(c.store.Clock.Now()), 0)) // their estimate of the time may be ahead
		}
		before := c.held.count().started
		looked := c.store.Clock.Now()
		c.seeker.AskAll()
		c.seeker.Excluded() // what was held is asked for again, unless its type must not be claimed any more
		left, err := c.lapses.Scan(ctx)
		if err != nil {
			return skipped, err
		}
		if _, err := c.fetch(ctx); err != nil {
			return skipped, err
		}
		c.apart.Wait()
		if err := c.awaitEmpty(ctx); err != nil {
			return skipped, err
		}
		if err := c.outcomes.Wait(ctx); err != nil { // what follows may be tasks
			return skipped, context.Cause(ctx)
		}
		if err := c.gate.Wait(ctx); err != nil { // others may have got room
			return skipped, context.Cause(ctx)
		}
		if c.held.count().started != before {
			continue
		}
		if held := c.seeker.Refused.Held(); !held.IsZero() { // due, and an open transaction has it
			if !clock.Pause(ctx, held.Sub(c.store.Clock.Now())) {
				return skipped, context.Cause(ctx)
			}
			continue
		}
		if worked {
			continue
		}
		if patience == 0 && left.Wait > 0 {
			patience = c.cfg.Clock.Monotonic() + 3*left.Wait
		}
		if left.Wait > 0 && !how.skipTime && c.cfg.Clock.Monotonic() < patience { // leases have lapsed, and their owners may be well
			if err := c.lapses.Observe(ctx, left); err != nil || ctx.Err() != nil {
				return skipped, cmp.Or(context.Cause(ctx), err)
			}
			continue
		}
		due, err := c.seeker.Next(ctx, c.types(), nil, looked, endOfTime)
		next := clock.Sooner(clock.Sooner(due.DueAt, c.seeker.Refused.Next()), other)
		if err != nil {
			return skipped, err
		}
		limited := c.gate.Pending() // due, and waits for its turn
		if !limited.IsZero() {
			for more := true; more; {
				if more, err = c.gate.Sweep(ctx); err != nil {
					return skipped, err
				}
			}
			next = clock.Sooner(next, limited)
		}
		now := c.store.Clock.Now()
		lag := c.store.Clock.Error() + time.Millisecond          // by so much this process may be late to see that a task is due
		soon := !due.DueAt.IsZero() && due.DueAt.Sub(now) <= lag // a look after that finds it, or passes it
		switch {
		case next.IsZero() || limited.IsZero() && !soon && !how.skipTime:
			return skipped, nil
		case !how.skipTime:
			until := limited
			if soon {
				until = due.DueAt
			}
			clock.Pause(ctx, until.Sub(now))
			if ctx.Err() != nil {
				return skipped, context.Cause(ctx)
			}
			continue
		}
		wait := max(next.Sub(c.store.Clock.Now()), time.Millisecond)
		if !c.store.Clock.Skip(wait) {
			return skipped, nil
		}
		skipped += wait
	}
}

// others does the other work of this process that is due.
func (d drainage) others(ctx context.Context, now time.Time) (next time.Time, worked bool, err error) {
	for _, do := range d.beside {
		at, did, err := do(ctx, now)
		if err != nil {
			return next, false, err
		}
		if did && (!worked || at.After(next)) { // look when all of it is there
			next, worked = at, true
		} else if !worked {
			next = clock.Sooner(next, at)
		}
	}
	return next, worked, nil
}

// endOfTime is later than any start time.
var endOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// awaitEmpty waits until nothing is held and each slot is free: the end of an execution may be
// written before its handler's goroutine frees the slot, and a fetch that finds the type at its limit
// then says nothing about the queue.
func (c *Consumer) awaitEmpty(ctx context.Context) error {
	for {
		change := c.held.change()
		if n := c.held.count(); n.all == 0 && n.running == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-change:
		}
	}
}
