package consumer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// scope is what one query covers: types, and the audiences at which their tasks are found.
// A worker that takes everything has one. One that takes only some tasks asks for the types
// that are claimed by such a label at its labels, so that it does not read through
// everybody else's backlog, and for the others at everybody's audience with a filter.
type scope struct {
	types  []string
	labels []string // nil = everybody's
}

// maxScopes is how many queries a worker of many labels makes in the place of one.
const maxScopes = 5

// scopes divides the types. wide asks for all of them at everybody's audience, too.
func (c *Consumer) scopes(types []string, wide bool) []scope {
	if c.only == nil {
		return []scope{{types: types}}
	}
	by := map[model.ClaimBy][]string{}
	for _, typ := range types {
		claimed := c.claimedBy(typ)
		by[claimed] = append(by[claimed], typ)
	}
	var out []scope
	plain := by[""]
	for _, label := range []model.ClaimBy{model.ClaimByTenant, model.ClaimByCreator, model.ClaimByCategory} {
		some := by[label]
		if len(some) == 0 {
			continue
		}
		labels := c.only.Labels(label)
		atOnce := max(1, store.MaxRanges/len(some)-1) // beside the worker's own audience
		if (len(labels)+atOnce-1)/atOnce > maxScopes {
			plain = append(plain, some...)
			continue
		}
		for chunk := range slices.Chunk(labels, atOnce) {
			out = append(out, scope{types: some, labels: chunk})
		}
		if wide {
			plain = append(plain, some...)
		}
	}
	if len(plain) > 0 {
		out = append(out, scope{types: plain})
	}
	return out
}

// claimedBy is the label by which this worker finds the tasks of the type; "" = none.
func (c *Consumer) claimedBy(typ string) model.ClaimBy {
	if t := c.taskTypes.Get(typ); t != nil && len(c.only.Labels(t.ClaimBy)) > 0 {
		return t.ClaimBy
	}
	return ""
}

// labelled says whether any of the types is looked for at a label.
func (c *Consumer) labelled(types []string) bool {
	return c.only != nil && slices.ContainsFunc(types, func(typ string) bool { return c.claimedBy(typ) != "" })
}

// wideLook decides when a worker with labels looks at everybody's audience as well: for
// tasks that were sent before their type was claimed by the label, or by a process that did
// not know yet. While there are some always, else with every poll of a watcher.
type wideLook struct {
	at    time.Duration // monotonic
	every time.Duration
	some  bool
}

func (w *wideLook) due(now time.Duration) bool { return w.some || w.at == 0 || now-w.at >= w.every }

// dueIn finds candidates in all scopes, best first.
func (c *Consumer) dueIn(ctx context.Context, q store.DueQuery) ([]*model.Task, error) {
	now := c.cfg.Clock.Monotonic()
	wide := c.wide.due(now) && c.labelled(q.Types)
	scopes := c.scopes(q.Types, wide)
	var found []*model.Task
	seen := map[string]bool{}
	late := 0 // found at everybody's audience alone
	for _, s := range scopes {
		q.Types, q.Labels = s.types, s.labels
		some, err := c.store.Due(ctx, q)
		if err != nil || len(scopes) == 1 {
			return some, err
		}
		for _, t := range some { // the worker's own audience is in each
			if seen[t.ID] {
				continue
			}
			seen[t.ID] = true
			found = append(found, t)
			if s.labels == nil && c.claimedBy(t.Type) != "" {
				late++
			}
		}
	}
	if wide {
		c.wide.at, c.wide.some = max(now, 1), late > 0
	}
	return best(found, q.Limit), nil
}

// nextDue is when something is due in any scope.
func (c *Consumer) nextDue(ctx context.Context, types []string, after, until time.Time) (earliest time.Time, err error) {
	for _, s := range c.scopes(types, false) {
		next, err := c.store.NextDue(ctx, store.NextQuery{
			Types: s.types, Labels: s.labels, WorkerID: c.cfg.WorkerID, After: after, Until: until, Only: c.only,
		})
		if err != nil {
			return time.Time{}, err
		}
		if !next.IsZero() {
			earliest, until = next, next
		}
	}
	return earliest, nil
}

// peekScopes asks in each scope until something is found; for leases it asks once.
func (c *Consumer) peekScopes(ctx context.Context, p store.Peek) (found store.Peeked, err error) {
	scopes := c.scopes(p.Due, false)
	if len(scopes) == 0 {
		return c.store.Peek(ctx, p)
	}
	for _, s := range scopes {
		p.Due, p.Labels = s.types, s.labels
		seen, err := c.store.Peek(ctx, p)
		found.Due, found.Executing = found.Due || seen.Due, found.Executing || seen.Executing
		if err != nil || found.Due || found.Executing {
			return found, err
		}
		p.Executing = nil
	}
	return found, nil
}

// sameStream names what makes two workers' change streams alike.
func (c *Consumer) sameStream(types []string) []string {
	if c.only == nil {
		return types
	}
	mark := func(kind string, values []string) string {
		return kind + strings.Join(slices.Sorted(slices.Values(values)), "\x00")
	}
	return append(slices.Clone(types), mark("tenants/", c.only.Tenants), mark("categories/", c.only.Categories), mark("creators/", c.only.Creators))
}
