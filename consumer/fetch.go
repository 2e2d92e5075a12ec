package consumer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// fetchLoop looks for due tasks: at start, when woken, when a slot frees while more
// work is known, at a start time it knows of, and with every poll that saw something.
func (c *Consumer) fetchLoop(ctx context.Context) {
	for wait := c.newBackOff(); ctx.Err() == nil; {
		full, err := c.fetch(ctx)
		if err == nil && !full {
			c.looked.Store(true)
			token(c.rested)
			err = c.rest(ctx)
		}
		c.health.report(c, err)
		if err != nil {
			if ctx.Err() == nil && !store.Outage(err) {
				c.log.Error().Err(err).Msg("looking for work")
			}
			wait.sleep(ctx)
			continue
		}
		wait.reset()
		if full {
			c.awaitRoom(ctx)
		}
	}
}

// awaitRoom waits until it is worth while to fetch again: more work is known.
func (c *Consumer) awaitRoom(ctx context.Context) {
	for {
		n := c.held.count()
		// Told only when so few wait that a fetch may be worth while: not by each of the
		// thousands that start a second.
		change := c.held.below(c.lead.enough(c.cfg.Concurrency-n.running, c.perSecond(n)))
		if c.room(c.held.count()) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-change:
		}
	}
}

// room is how many tasks to fetch now.
func (c *Consumer) room(n counts) int {
	return c.lead.toFetch(c.cfg.Concurrency-n.running, n.buffered, c.perSecond(n), c.fleet.Load() <= 1)
}

// perSecond is how many handlers start.
func (c *Consumer) perSecond(n counts) float64 {
	return c.rate.observe(c.cfg.Clock.Monotonic(), n.started)
}

// waits says whether tasks of the type are not to be claimed now, whoever has room: it is
// paused, or what is stored of it, limits among it, cannot be read.
func (c *Consumer) waits(typ string) bool {
	return c.control.paused(typ) || c.taskTypes.Unread(typ) != nil
}

// claimableTypes are the types to ask for now: registered, not paused, with room below
// their limit, and few enough for one query.
func (c *Consumer) claimableTypes(ctx context.Context) ([]string, error) {
	types := slices.DeleteFunc(c.types(), func(typ string) bool {
		return c.waits(typ) || c.noRoomFor(typ) || c.held.room(typ, c.handlerOf(typ).limit) <= 0
	})
	if len(types) <= store.MaxTypes {
		return types, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	types, err := c.store.ClaimableTypes(ctx, types)
	if len(types) > store.MaxTypes {
		// More types have work than one query may name: a random choice is fair.
		c.random.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		types = types[:store.MaxTypes]
	}
	return types, err
}

// fetch finds and claims one batch. full says that there is likely more.
func (c *Consumer) fetch(ctx context.Context) (full bool, err error) {
	before, began, won := c.held.count(), c.cfg.Clock.Monotonic(), c.stats.won.Load()
	full, asked, err := c.fetchOnce(ctx)
	if asked && err == nil {
		c.lead.learn(before, c.held.count(), c.cfg.Clock.Monotonic()-began, int(c.stats.won.Load()-won))
		c.backlog.Store(full)
	}
	return full, err
}

// fetchOnce is [Consumer.fetch]. asked says whether it had a slot to look for.
func (c *Consumer) fetchOnce(ctx context.Context) (full, asked bool, err error) {
	if err := c.ownFirst(ctx); err != nil {
		return false, true, err
	}
	c.claiming.Lock()
	defer c.claiming.Unlock()
	n := c.room(c.held.count())
	if n <= 0 {
		return true, false, nil // whether there is work is not known: look when there is room
	}
	if err := c.control.fresh(ctx, c); err != nil {
		return false, true, err
	}
	types, err := c.claimableTypes(ctx)
	if err != nil || len(types) == 0 {
		c.many.skipped = false // nor anything else
		return false, true, err
	}
	n = c.store.Fit(c.gate.AtMost(types, n))
	c.lookedAt = c.store.Clock.Now()
	past := c.barred.offset(c.cfg.Clock.Monotonic())
	workers := int(c.fleet.Load())
	if c.stats.fetches.Load() == 0 {
		c.spread.crowd(workers)
	}
	skip, take := c.spread.look(n, c.random)
	found, err := c.find(ctx, types, take, past+skip)
	for err == nil && len(found) == 0 && skip > 0 {
		// It looked past the end, which says nothing about the head: nearer now.
		c.spread.saw(skip, take, 0)
		skip, take = c.spread.look(n, c.random)
		found, err = c.find(ctx, types, take, past+skip)
	}
	if err != nil {
		return false, true, err
	}
	take = min(take, max(len(found), c.store.Fit(take))) // a read may have been cut off
	c.spread.saw(skip, take, len(found))
	if len(found) > 0 {
		token(c.stirred)
	}
	if err := c.ownFirst(ctx); err != nil { // the search may have waited for the database
		return false, true, err
	}
	took, lost, err := c.claim(ctx, found)
	if err != nil {
		return false, true, err
	}
	if c.watching() && took+lost == len(found) {
		c.recent.add(found, c.cfg.Clock.Monotonic())
	}
	c.spread.learn(lost, workers)
	none := took == 0 && lost == 0 && c.refused.full()
	if !c.barred.learn(c.cfg.Clock.Monotonic(), take, len(found) < take, none) {
		return false, true, nil
	}
	return len(found) >= take || skip > 0 || lost > 0 || took < len(found) && took > 0, true, nil
}

// find reads candidates, best first; among equals those that name this worker.
func (c *Consumer) find(ctx context.Context, types []string, n, skip int) ([]*model.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	q := store.DueQuery{Types: types, Limit: n, Skip: skip, Exclude: c.refused.ids(c.store.Clock.Now())}
	c.stats.fetches.Add(1)
	found, err := c.dueIn(ctx, q)
	if err != nil || !c.many.ask() {
		return found, err
	}
	var several []*model.Task
	err = c.many.pace.Do(func() (err error) {
		began := c.cfg.Clock.Monotonic()
		several, err = c.finder.DueMany(ctx, q)
		c.lead.tripped(c.cfg.Clock.Monotonic() - began)
		if q.Skip > 0 && err == nil && len(several) == 0 {
			q.Skip = 0 // of these there may be few where there are many of the others
			several, err = c.finder.DueMany(ctx, q)
		}
		return err
	})
	c.many.learn(len(several))
	if err != nil || len(several) == 0 {
		return found, err
	}
	return claim.Best(append(found, several...), n), nil
}

// manyTasks decides when to ask for tasks that want several workers, which takes a
// query of its own: always while there are some, else once a second.
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

// refusals remembers tasks that are due but not for this worker now, such as one with
// which it had too many errors, so that they do not stand at the head of every fetch.
type refusals struct {
	mu    sync.Mutex
	until map[string]time.Time
	retry map[string]time.Time // of those, the ones that are for this worker from then on
}

const (
	refusedFor  = 10 * time.Second
	maxRefusals = 200
)

// add notes a refusal. retry is when the task is for this worker: its own retry of a
// task that others may claim before; zero where that is not known.
func (r *refusals) add(id string, now, retry time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until, r.retry = map[string]time.Time{}, map[string]time.Time{}
	}
	if len(r.until) >= maxRefusals {
		return
	}
	r.until[id] = now.Add(refusedFor)
	if retry.IsZero() || len(r.retry) >= maxRefusals {
		return
	}
	r.retry[id] = retry
	if retry.Before(r.until[id]) {
		r.until[id] = retry
	}
}

// next is the earliest retry among the refused; zero when there is none. Nothing else
// tells of it: the task's due_at has come.
func (r *refusals) next() (earliest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.retry {
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest
}

func (r *refusals) has(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.until[id])
}

func (r *refusals) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.until) >= maxRefusals
}

func (r *refusals) ids(now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, at := range r.retry {
		if !now.Before(at) {
			delete(r.retry, id)
		}
	}
	var ids []string
	for id, until := range r.until {
		if !now.Before(until) {
			delete(r.until, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
