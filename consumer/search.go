package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// catch is the result of a search.
type catch struct {
	tasks  []*model.Task // the best of all that it saw
	queue  []*model.Task // of those that one worker runs what it saw, in the order of the queue
	take   int           // how many it looked for
	atHead bool          // it looked where the queue begins
	full   bool          // and at everything
}

// search finds up to n candidates for a claim. Three things decide where it looks: the knowledge
// of the queue (c.sight), the crowd (c.spread), and the tasks at the head that this worker may
// not run (c.barred).
func (c *Consumer) search(ctx context.Context, types []string, n, workers int) (catch, error) {
	for {
		now := c.cfg.Clock.Monotonic()
		past := c.barred.offset(now)
		if past == 0 && c.spread.wantsTail(now) {
			if err := c.askTail(ctx); err != nil {
				return catch{}, err
			}
		}
		a := aim{atHead: true, skip: past, take: n}
		if past == 0 {
			a = c.spread.look(n, workers, now, c.random)
		}
		got, err := c.find(ctx, types, a)
		if err != nil {
			return catch{}, err
		}
		a.take = got.take
		if past > 0 || !c.spread.saw(a, got.queue, workers, now, c.random) {
			return got, nil
		}
	}
}

// askTail queries the end of the part of the queue in which the crowd looks.
func (c *Consumer) askTail(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tail, err := c.finder.Tail(ctx, c.spread.field.first)
	if err == nil {
		c.spread.sawTail(tail, c.cfg.Clock.Monotonic())
	}
	return err
}

// find reads candidates at the place of the aim.
func (c *Consumer) find(ctx context.Context, types []string, a aim) (catch, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	now := c.cfg.Clock.Monotonic()
	wide := a.atHead && c.wide.due(now) && c.finder.Labelled(types)
	excluded := c.excluded()
	c.lookedAt = c.store.Clock.Now()
	l := c.sight.Begin(types, c.lookedAt, now, wide || a.atHead && (a.skip > 0 || c.refused.full()))
	q := store.DueQuery{Types: types, Limit: a.take, Skip: a.skip, Exclude: excluded}
	q.Priorities, q.From = a.place(l)
	c.stats.fetches.Add(1)
	found, err := c.dueIn(ctx, q, wide)
	a.take = c.readable(a.take, len(found))
	if err != nil || a.scout {
		return catch{queue: found, take: a.take}, err
	}
	got := catch{queue: found, take: a.take, atHead: a.atHead, full: a.atHead && l.Full()}
	complete := len(found) < a.take
	if a.atHead && a.skip == 0 {
		c.sight.End(l, found, complete)
	}
	if a.atHead {
		c.lookedFull = l.Full()
	}
	var beside sync.WaitGroup // two round trips in the time of one
	var own, several []*model.Task
	var ownErr, severalErr error
	if !a.atHead || !complete { // else it has seen all that name this worker
		beside.Go(func() { own, ownErr = c.findOwn(ctx, q, l) })
	}
	several, severalErr = c.findSeveral(ctx, q)
	beside.Wait()
	got.tasks = claim.Best(slices.Concat(found, own, several), a.take)
	return got, errors.Join(ownErr, severalErr)
}

// readable is how many tasks a query for so many could return that returned so many: a read
// of large ones is cut off.
func (c *Consumer) readable(wanted, found int) int {
	return min(wanted, max(found, c.store.Fit(wanted)))
}

// excluded are the ids to leave out of a query.
func (c *Consumer) excluded() []string {
	ids := c.refused.ids(c.store.Clock.Now())
	if c.refused.cameBack() {
		c.forget() // they stand where they stood
	}
	return ids
}

// forget makes the next look a full one.
func (c *Consumer) forget() {
	c.sight.Forget()
	c.several.Forget()
}

// findOwn reads candidates that name this worker. They go before others of their priority,
// but the index orders a priority by time alone.
func (c *Consumer) findOwn(ctx context.Context, q store.DueQuery, l claim.Look) ([]*model.Task, error) {
	now := c.cfg.Clock.Monotonic()
	if !c.own.ask(now) {
		return nil, nil
	}
	q.Skip, q.Priorities, q.From = 0, l.Priorities, l.From
	own, err := []*model.Task(nil), error(nil)
	whole := now-c.ownFull >= rarePause
	if !whole {
		own, err = c.finder.DueOwn(ctx, q)
	}
	if whole || err == nil && len(own) == 0 { // those of a priority may have come to their end
		q.Priorities, q.From, c.ownFull = nil, time.Time{}, now
		own, err = c.finder.DueOwn(ctx, q)
	}
	for _, t := range own {
		c.sight.Hear(t, now)
	}
	c.own.learn(len(own))
	return own, err
}

// findSeveral reads candidates among the tasks that want several workers.
func (c *Consumer) findSeveral(ctx context.Context, q store.DueQuery) (found []*model.Task, err error) {
	if !c.many.ask() {
		return nil, nil
	}
	err = c.many.pace.Do(func() (err error) {
		began := c.cfg.Clock.Monotonic()
		l := c.several.Begin(q.Types, c.store.Clock.Now(), began, q.Skip > 0)
		q.Priorities, q.From = l.Priorities, l.From
		found, err = c.finder.DueMany(ctx, q)
		c.lead.tripped(c.cfg.Clock.Monotonic() - began)
		if q.Skip > 0 && err == nil && len(found) == 0 {
			q.Skip = 0 // of these there may be few where there are many of the others
			found, err = c.finder.DueMany(ctx, q)
		}
		if err == nil && q.Skip == 0 {
			c.several.End(l, found, len(found) < c.readable(q.Limit, len(found)))
		}
		return err
	})
	c.many.learn(len(found))
	return found, err
}

// manyTasks decides when to query tasks that want several workers, which takes a separate
// query: always while there are some, else once a second.
type manyTasks struct {
	pace    *clock.Pacer
	some    bool
	skipped bool // the last fetch did not ask
}

const manyPause = time.Second

func (m *manyTasks) ask() bool {
	m.skipped = !m.some && m.pace.Left() > 0
	return !m.skipped
}

func (m *manyTasks) learn(found int) { m.some = found > 0 }

// rarely decides when to query tasks that name this worker separately: always while there are
// some, else once a second.
type rarely struct {
	asked time.Duration
	some  bool
}

const rarePause = time.Second

func (m *rarely) ask(now time.Duration) bool {
	if !m.some && m.asked != 0 && now-m.asked < rarePause {
		return false
	}
	m.asked = max(now, 1)
	return true
}

func (m *rarely) learn(found int) { m.some = found > 0 }

// hear records a task that this process has written or that an event named: it may lie before
// the place where the next look begins.
func (c *Consumer) hear(t *model.Task) {
	now := c.cfg.Clock.Monotonic()
	c.sight.Hear(t, now)
	c.several.Hear(t, now)
}
