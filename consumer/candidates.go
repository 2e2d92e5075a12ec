package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// The next tasks of a type that permits pass on to are found ahead, so that no search lies
// between two starts.

// candidates returns the current state of the next tasks of the type: n of them, if that many
// are known, and perhaps more.
func (c *Consumer) candidates(ctx context.Context, h *handler, n int) (next []*model.Task, err error) {
	for range passTries {
		ids := c.gate.Candidates(h.typ, n)
		switch search := c.gate.SearchWanted(h.typ); {
		case search && len(ids) == 0:
			if err := c.searchFor(ctx, h); err != nil {
				return nil, err
			}
			ids = c.gate.Candidates(h.typ, n)
		case search:
			c.passes.under.Go(func() { c.reportPass(ctx, c.searchFor(ctx, h)) })
		}
		if len(ids) == 0 {
			return nil, nil
		}
		if next, err = c.stillDue(ctx, ids); err != nil {
			return nil, err
		}
		c.gate.Chose(h.typ, len(ids)-len(next), 0, nil)
		if len(next) > 0 {
			return next, nil
		}
	}
	return nil, nil
}

// stillDue returns the tasks that still wait to be claimed, in the same order.
func (c *Consumer) stillDue(ctx context.Context, ids []string) (due []*model.Task, err error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tasks, err := c.store.ByIDs(ctx, ids)
	now := c.store.Clock.Now()
	for _, id := range ids {
		t := tasks[id]
		if t != nil && !t.DueAt.IsZero() && !t.DueAt.After(now) && !t.HeldBack() && !t.MustStop(c.cfg.WorkerID) && !c.refused.has(id, now) {
			due = append(due, t)
		}
	}
	return due, err
}

// searchFor finds the next tasks of a type that permits pass on to. One search of a type is under
// way at a time.
func (c *Consumer) searchFor(ctx context.Context, h *handler) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	q := store.DueQuery{Types: []string{h.typ}, Limit: limits.MostCandidates, Exclude: c.excluded(), Brief: true}
	c.stats.fetches.Add(1)
	found, err := c.nextOf(ctx, h, q)
	c.gate.Found(h.typ, found, len(found) >= q.Limit, err)
	return err
}

// nextOf makes the queries of [Consumer.searchFor]. Like all due queries they begin where the
// queue did when it was last seen.
func (c *Consumer) nextOf(ctx context.Context, h *handler, q store.DueQuery) ([]*model.Task, error) {
	now, whole := c.cfg.Clock.Monotonic(), c.refused.full()
	l := c.sight.Begin(q.Types, c.store.Clock.Now(), now, whole)
	q.Priorities, q.From = l.Priorities, l.From
	found, _, err := c.finder.Due(ctx, q, false)
	if err != nil {
		return nil, err
	}
	complete := len(found) < q.Limit
	c.sight.End(l, found, complete)
	if !complete && h.own.ask(now) { // else it has seen all that name this worker
		own, err := c.finder.DueOwn(ctx, q)
		if err != nil {
			return nil, err
		}
		h.own.learn(len(own))
		found = append(found, own...)
	}
	l = c.several.Begin(q.Types, c.store.Clock.Now(), now, whole)
	q.Priorities, q.From = l.Priorities, l.From
	several, err := c.finder.DueMany(ctx, q)
	if err == nil {
		c.several.End(l, several, len(several) < q.Limit)
	}
	return append(found, several...), err
}
