package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
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
	tasks, err := c.store.Tasks.ByIDs(ctx, ids)
	stamp := c.store.Clock.Stamp()
	now := stamp.Now
	for _, id := range ids {
		t := tasks[id]
		if t != nil && !t.DueAt.IsZero() && !t.DueAt.After(stamp.After(t).Now) && !lifecycle.HeldBack(t) && !lifecycle.MustStop(t, c.cfg.WorkerID) && !c.seeker.Refused.Has(id, now) {
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
	q := store.DueQuery{Types: []string{h.typ}, Limit: limits.MostCandidates, Exclude: c.seeker.Excluded(), Brief: true}
	c.stats.fetches.Add(1)
	found, err := c.seeker.Candidates(ctx, q, &h.own)
	c.gate.Found(h.typ, found, len(found) >= q.Limit, err)
	return err
}
