package consumer

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/control"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// look is when to look next without being woken.
type look struct {
	at   time.Time     // the store's
	by   time.Duration // monotonic: not later, although the store's time may go back until then
	poll bool          // nothing is known to be due then
	ask  bool          // the question when something is due may be asked again then, see nextDue
}

// notAfter makes it a look at the time, if that is sooner; zero = never.
func (l *look) notAfter(at time.Time) {
	if !at.IsZero() && at.Before(l.at) {
		*l = look{at: at}
	}
}

// rest waits until a fetch may find something. It follows a fetch that found all there
// was. A poll that sees nothing costs one query, and no fetch.
func (c *Consumer) rest(ctx context.Context) error {
	next, err := c.bounded(ctx, c.nextLook)
	for err == nil && !c.awaitWork(ctx, next) && ctx.Err() == nil {
		switch {
		case next.ask:
			next, err = c.bounded(ctx, c.nextLook)
		case next.poll:
			next, err = c.bounded(ctx, c.poll)
		default:
			return nil
		}
		c.health.Report(err)
	}
	return err
}

// bounded decides when to look next, and bounds the wait by the monotonic clock. The store's time may go back
// already while it is decided.
func (c *Consumer) bounded(ctx context.Context, decide func(context.Context) (look, error)) (look, error) {
	now, began := c.store.Clock.Now(), c.cfg.Clock.Monotonic()
	next, err := decide(ctx)
	next.by = began + next.at.Sub(now)
	return next, err
}

// awaitWork sleeps until the time of the look, or until woken.
func (c *Consumer) awaitWork(ctx context.Context, next look) (woken bool) {
	for {
		now, wake := c.store.Clock.Now(), next.at
		if due, _ := c.wake.next(time.Time{}); !due.IsZero() {
			wake = clock.Sooner(wake, due.Add(c.watch.Turn(due)))
		}
		left := min(wake.Sub(now), next.by-c.cfg.Clock.Monotonic())
		if left <= 0 {
			_, woken = c.wake.next(now)
			return woken
		}
		t := time.NewTimer(left + time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-c.wake.look:
			t.Stop()
			return true
		case <-c.wake.rearm:
			t.Stop()
		case <-t.C:
		}
	}
}

// nextLook is when to look next without being woken, after a fetch: at the next due_at
// or retry that lies before the next poll, else at the poll.
func (c *Consumer) nextLook(ctx context.Context) (look, error) {
	now := c.store.Clock.Now()
	next := look{at: now.Add(c.pollDelay()), poll: true}
	next.notAfter(c.gate.Next())
	if in, skipped := c.seeker.Skipped(); skipped {
		next.notAfter(now.Add(in)) // tasks outside of the query may be due
	}
	var priorities []int
	if _, full := c.plan.LastLook(); !full {
		// Before a longer rest it looks at everything, and then for every start.
		priorities = c.seeker.Queue.Priorities()
		next.notAfter(now.Add(c.plan.FullIn(c.cfg.Clock.Monotonic())))
	}
	types, _, err := c.claimableTypes(ctx)
	if err != nil || len(types) == 0 {
		return next, err
	}
	next.notAfter(c.seeker.Refused.Next()) // a look without types would not see that this has come
	due, again, err := c.nextDue(ctx, c.someTypes(types), priorities, next.at)
	switch {
	case err != nil:
		return next, err
	case !due.IsZero():
		next = look{at: due.Add(c.watch.Turn(due))}
	}
	if at := now.Add(again); again > 0 && at.Before(next.at) {
		next = look{at: at, ask: true}
	}
	return next, nil
}

// nextDue returns when the next task is due; zero = none is. The query may be expensive for the
// server, and a worker of a limited type would repeat it after each task. So a recent answer
// remains valid, and again is the time of the next query. An event announces a task that starts
// sooner and was sent since then, or the next query finds it. priorities limits the query;
// nil = all.
func (c *Consumer) nextDue(ctx context.Context, types []string, priorities []int, until time.Time) (due time.Time, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	looked, _ := c.plan.LastLook()
	asked, err := c.nextPace.Try(func() (err error) {
		next, err := c.seeker.Next(ctx, types, priorities, looked, until)
		if due = next.DueAt; !due.IsZero() {
			c.seeker.Hear(&model.Task{Type: next.Type, Priority: next.Priority, DueAt: due})
		}
		return err
	})
	if asked {
		c.knownDue = due
		return due, 0, err
	}
	if c.knownDue.After(looked) && !c.knownDue.After(until) {
		due = c.knownDue
	}
	return due, max(c.nextPace.Left(), time.Millisecond), nil
}

// poll asks whether there is anything at all, and when to look next: at once if there
// is.
func (c *Consumer) poll(ctx context.Context) (look, error) {
	if err := c.pollControl(ctx); err != nil {
		return look{}, err
	}
	now := c.store.Clock.Now()
	next := look{at: now.Add(c.pollDelay()), poll: true}
	types, all, err := c.claimableTypes(ctx)
	if err != nil {
		return look{}, err
	}
	if !all {
		return look{at: now}, nil // fetches go on with the scan
	}
	types = c.someTypes(types)
	if c.seeker.UnlabelledDue(types) {
		return look{at: now}, nil // a fetch looks at everybody's
	}
	ask := store.Peek{Due: types, Until: next.at, Exclude: c.seeker.Excluded()}
	one := c.seeker.Queue.Begin(types, now, c.cfg.Clock.Monotonic(), false)
	several := c.seeker.Several.Begin(types, now, c.cfg.Clock.Monotonic(), false)
	ask.Priorities, ask.From = claim.Both(one, several)
	if !c.lapses.Executing() {
		ask.Executing = c.types()
	}
	found, err := c.peek(ctx, ask)
	if err == nil && found.Executing {
		c.lapses.See(true) // somebody has a lease: it may lapse
		if !found.Due {
			ask.Executing = nil
			found, err = c.peek(ctx, ask)
		}
	}
	if err != nil {
		return look{}, err
	}
	if !found.Due {
		c.seeker.Queue.End(one, nil, true)
		c.seeker.Several.End(several, nil, true)
	}
	if found.Due {
		next.notAfter(now)
		c.lapses.Hint() // the one answer says nothing of leases
	}
	next.notAfter(c.seeker.Refused.Next())
	next.notAfter(c.gate.Next())
	if soonest := c.store.Clock.Now().Add(c.pollPace.Left()); next.poll && next.at.Before(soonest) {
		next.at = soonest
	}
	return next, nil
}

func (c *Consumer) peek(ctx context.Context, p store.Peek) (found store.Peeked, err error) {
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	c.stats.polls.Add(1)
	err = c.pollPace.Do(func() (err error) {
		found, err = c.seeker.Peek(call, p)
		return err
	})
	if err == nil && p.Executing != nil {
		c.lapses.Asked()
	}
	return found, err
}

// pollControl reads the control document with the poll: as often as a worker that
// watches polls, and with every poll while a type is paused or full, so that its change is seen.
// No claim relies on it, each has its own reading.
func (c *Consumer) pollControl(ctx context.Context) error {
	least := max(control.MaxAge, min(c.cfg.PollInterval, restControl)*3/4) // polls are jittered by a quarter
	if c.barredTypes() {
		least = control.MaxAge * 3 / 4
	}
	if c.control.Age() < least {
		return nil
	}
	return c.control.Read(ctx)
}

// restControl is how often a worker that has nothing to do reads the control document.
const restControl = presence.PollWatching

// pollDelay is the pause between polls. Who watches a stream polls rarely. The others
// share the load, see [presence.PollPause]. So do those that wait for a type to be resumed: the event that tells of it may come while
// the copy of the control document still says that it is paused.
func (c *Consumer) pollDelay() time.Duration {
	d := c.cfg.PollInterval
	if !c.watch.Watching() || c.barredTypes() {
		d = min(d, presence.PollPause(c.presence.Fleet()))
	}
	return d*3/4 + rand.N(d/2)
}

// barredTypes says whether tasks may wait for a type's document to change: one that is
// paused, or has no room by its limits.
func (c *Consumer) barredTypes() bool {
	if c.asks.Load() != nil {
		return false // of its own drain the heartbeat tells
	}
	return slices.ContainsFunc(c.types(), c.control.Paused) || c.gate.AnyWaits()
}
