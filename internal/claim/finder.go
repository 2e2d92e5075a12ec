package claim

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Finder looks for the tasks of one worker. A worker that takes everything has one query.
// One that takes only some tasks asks for the types that are claimed by such a label at its
// labels, so that it does not read through everybody else's backlog, and for the others at
// everybody's audience with a filter; for deliveries without one.
type Finder struct {
	Store    *store.Store
	Types    *tasktypes.Cache
	WorkerID string
	Only     *lifecycle.Conditions // what the worker takes; nil = everything
}

// scope is one query's share: types, and the audiences at which their tasks are found.
type scope struct {
	types  []string
	labels []string              // nil = everybody's
	only   *lifecycle.Conditions // nil = everything
}

// maxScopes is how many queries a worker of many labels makes in the place of one.
const maxScopes = 5

// scopes divides the types. unlabelled asks for all of them at everybody's audience, too.
func (f *Finder) scopes(types []string, unlabelled bool) []scope {
	if f.Only == nil {
		return []scope{{types: types}}
	}
	var out []scope
	by := map[model.ClaimBy][]string{}
	for _, typ := range types {
		if lifecycle.ConditionsFor(f.Only, typ) == nil {
			out = append(out, scope{types: []string{typ}})
			continue
		}
		claimed := f.claimedBy(typ)
		by[claimed] = append(by[claimed], typ)
	}
	plain := by[""]
	for _, label := range []model.ClaimBy{model.ClaimByTenant, model.ClaimByCreator, model.ClaimByCategory} {
		some := by[label]
		if len(some) == 0 {
			continue
		}
		labels := lifecycle.ConditionLabels(f.Only, label)
		atOnce := max(1, store.MaxRanges/len(some)-1) // beside the worker's own audience
		if (len(labels)+atOnce-1)/atOnce > maxScopes {
			plain = append(plain, some...)
			continue
		}
		for chunk := range slices.Chunk(labels, atOnce) {
			out = append(out, scope{types: some, labels: chunk, only: f.Only})
		}
		if unlabelled {
			plain = append(plain, some...)
		}
	}
	if len(plain) > 0 {
		out = append(out, scope{types: plain, only: f.Only})
	}
	return out
}

// claimedBy is the label by which this worker finds the tasks of the type; "" = none.
func (f *Finder) claimedBy(typ string) model.ClaimBy {
	if t := f.Types.Get(typ); t != nil && lifecycle.ConditionsFor(f.Only, typ) != nil && len(lifecycle.ConditionLabels(f.Only, t.ClaimBy)) > 0 {
		return t.ClaimBy
	}
	return ""
}

// Labelled says whether any of the types is looked for at a label.
func (f *Finder) Labelled(types []string) bool {
	return f.Only != nil && slices.ContainsFunc(types, func(typ string) bool { return f.claimedBy(typ) != "" })
}

// Due finds candidates, best first. unlabelled looks at everybody's audience where it looks at
// labels, too: for tasks that were sent before their type was claimed by the label, or by a
// process that did not know yet. late is how many such it found. The finder fills in the
// worker, its labels and its conditions.
func (f *Finder) Due(ctx context.Context, q store.DueQuery, unlabelled bool) (found []*model.Task, late int, err error) {
	q.WorkerID = f.WorkerID
	scopes := f.scopes(q.Types, unlabelled)
	seen := map[string]bool{}
	for _, s := range scopes {
		q.Types, q.Labels, q.Only = s.types, s.labels, s.only
		some, err := f.Store.Tasks.Due(ctx, q)
		if err != nil || len(scopes) == 1 {
			return some, 0, err
		}
		for _, t := range some { // the worker's own audience is in each
			if seen[t.ID] {
				continue
			}
			seen[t.ID] = true
			found = append(found, t)
			if s.labels == nil && f.claimedBy(t.Type) != "" {
				late++
			}
		}
	}
	return Best(found, q.Limit), late, nil
}

// DueMany finds candidates among the tasks that want several workers, which no delivery
// does.
func (f *Finder) DueMany(ctx context.Context, q store.DueQuery) ([]*model.Task, error) {
	q.WorkerID, q.Only = f.WorkerID, f.Only
	return f.Store.Tasks.DueMany(ctx, q)
}

// DueOwn finds candidates among the tasks that name this worker.
func (f *Finder) DueOwn(ctx context.Context, q store.DueQuery) ([]*model.Task, error) {
	q.WorkerID, q.Own = f.WorkerID, true
	var found []*model.Task
	for only, types := range f.byConditions(q.Types) {
		q.Types, q.Only = types, only
		some, err := f.Store.Tasks.Due(ctx, q)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return Best(found, q.Limit), nil
}

// byConditions divides the types by the conditions that tasks of theirs must meet.
func (f *Finder) byConditions(types []string) map[*lifecycle.Conditions][]string {
	out := map[*lifecycle.Conditions][]string{}
	for _, typ := range types {
		out[lifecycle.ConditionsFor(f.Only, typ)] = append(out[lifecycle.ConditionsFor(f.Only, typ)], typ)
	}
	return out
}

// Best are the first n of what this worker found, each once: by priority, and within one
// first those that name the worker.
func Best(found []*model.Task, n int) []*model.Task {
	slices.SortStableFunc(found, func(a, b *model.Task) int {
		switch named := len(a.Options.SpecificWorkerIDs) > 0; {
		case a.Priority != b.Priority:
			return b.Priority - a.Priority
		case named != (len(b.Options.SpecificWorkerIDs) > 0):
			if named {
				return -1
			}
			return 1
		default:
			return a.DueAt.Compare(b.DueAt)
		}
	})
	seen := make(map[string]bool, len(found))
	found = slices.DeleteFunc(found, func(t *model.Task) bool {
		again := seen[t.ID]
		seen[t.ID] = true
		return again
	})
	return found[:min(len(found), n)]
}

// Tail is when the last of the tasks is due that are due by now and like the given one, which
// this worker found: of its type and priority, for whom it is. zero = none is left.
func (f *Finder) Tail(ctx context.Context, t *model.Task) (time.Time, error) {
	audience := f.WorkerID
	if slices.Contains(t.Audience, lifecycle.AudienceAll) {
		audience = lifecycle.AudienceAll
	}
	if by := f.claimedBy(t.Type); by != "" && len(t.Audience) > 1 {
		audience = t.Audience[len(t.Audience)-1]
	}
	return f.Store.Tasks.LastDue(ctx, t.Type, audience, t.Priority, t.DueAt)
}

// Next finds the task that is due next, after the one time and not after the other.
// priorities are those to look at; nil = all.
func (f *Finder) Next(ctx context.Context, types []string, priorities []int, after, until time.Time) (earliest store.Next, err error) {
	for _, s := range f.scopes(types, false) {
		next, err := f.Store.Tasks.NextDue(ctx, store.NextQuery{
			Types: s.types, Labels: s.labels, WorkerID: f.WorkerID, Priorities: priorities, After: after, Until: until, Only: s.only,
		})
		if err != nil {
			return store.Next{}, err
		}
		if !next.DueAt.IsZero() {
			earliest, until = next, next.DueAt
		}
	}
	return earliest, nil
}

// Peek asks in each scope until something is found; for leases it asks once.
func (f *Finder) Peek(ctx context.Context, p store.Peek) (found store.Peeked, err error) {
	p.WorkerID = f.WorkerID
	scopes := f.scopes(p.Due, false)
	if len(scopes) == 0 {
		return f.Store.Tasks.Peek(ctx, p)
	}
	for _, s := range scopes {
		p.Due, p.Labels, p.Only = s.types, s.labels, s.only
		seen, err := f.Store.Tasks.Peek(ctx, p)
		found.Due, found.Executing = found.Due || seen.Due, found.Executing || seen.Executing
		if err != nil || found.Due || found.Executing {
			return found, err
		}
		p.Executing = nil
	}
	return found, nil
}
