package decision

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// engineState is what a decider knows while an engine runs. One goroutine uses it.
type engineState[D any] struct {
	found   found[D]
	carried map[string]carried[D]    // by document: what it plans is carried out, and still stands in it
	told    map[string]told          // by entry: ends that were told and still stand in their outboxes
	crossed map[string]time.Duration // by document: when another's decision crossed one of [Decider.hear]
	recent  recent[D]
	large   budget // where documents may be large
}

func newEngineState[D any]() engineState[D] {
	return engineState[D]{carried: map[string]carried[D]{}, told: map[string]told{}, crossed: map[string]time.Duration{}, recent: newRecent[D]()}
}

type carried[D any] struct {
	doc   D
	plans []string
	at    time.Duration // monotonic
}

type told struct {
	entry store.Carried
	at    time.Duration // monotonic
}

// found is what a look found for one planner.
type found[D any] struct {
	due     []D
	unread  []store.Unreadable
	next    time.Time // when the next document is due; zero = none is
	ends    []store.OutboxLife
	pages   [2]int    // how many ends of tasks, and of the history, with those that cannot be read
	left    bool      // there are plans that somebody left
	waiting bool      // something waits for ends
	pending time.Time // of the earliest end that was found and not applied; zero = none
}

// full says whether there may be more ends than the look read.
func (f *found[D]) full() bool { return max(f.pages[0], f.pages[1]) >= perLook }

func (d *Decider[D]) waits() bool { return d.found.waiting }

func (d *Decider[D]) dueFull() bool {
	return d.large.left || len(d.found.due)+len(d.found.unread) >= d.mostRead()
}

// mostRead is how many documents are read at a time.
func (d *Decider[D]) mostRead() int {
	if d.Large {
		return d.large.limit()
	}
	return perLook
}

// pending is the time of the earliest end that the last round left: to another engine, or because
// it cannot be applied now.
func (d *Decider[D]) pending() time.Time { return d.found.pending }

// mayTell says whether this engine tells of an end: it is its turn, or nobody has done it for long.
func (d *Decider[D]) mayTell(l store.OutboxLife, now time.Time, k *rank) bool {
	late := now.Sub(l.OutboxAt)
	return late > Slow || k.turn(d.Planner.Of(l), late)
}

func (d *Decider[D]) lost(ctx context.Context) error { return d.Planner.Sweep(ctx) }

// questions are what a look asks for this planner. Ends are asked for from the given time on.
func (d *Decider[D]) questions(now, endsFrom time.Time, skip int) []store.Question {
	d.found = found[D]{pending: d.found.pending} // until they are found again
	f := &d.found
	d.large.begin()
	out := d.Documents.Questions(store.Look[D]{
		Now: now, Skip: skip, Limit: d.mostRead(), Read: d.large.read,
		Due: func(doc D) { f.due = append(f.due, doc) }, Unread: func(u store.Unreadable) { f.unread = append(f.unread, u) },
		Next: func(at time.Time) { f.next = at }, LeftBefore: now.Add(-Slow), Left: func() { f.left = true }, Waiting: func() { f.waiting = true },
	})
	return append(out, d.Store.Tasks.OutboxQuestions(d.Planner.Kind(), endsFrom, now, perLook, func(l *store.OutboxLife, history bool) {
		f.pages[map[bool]int{false: 0, true: 1}[history]]++
		if l != nil {
			f.ends = append(f.ends, *l)
		}
	})...)
}

// round decides what the look found. next is how long it is until something is to be done, as far
// as is known; stays is how many of the due documents keep their place at the head.
func (d *Decider[D]) round(ctx context.Context, began clock.Instant, now time.Time, k *rank) (next time.Duration, stays int, worked bool, err error) {
	f := &d.found
	next = longest
	for _, u := range f.unread {
		d.Complain(u.ID, u.Err)
	}
	stays = len(f.unread)
	if !f.next.IsZero() {
		next = min(next, max(f.next.Sub(now), time.Millisecond))
	}
	var mine []D
	for _, doc := range f.due {
		if at := d.Planner.DueAt(doc); k.found(d.Documents.ID(doc), at, now) {
			mine = append(mine, doc)
		} else {
			stays++
			next = min(next, turnEnds(now.Sub(at)))
		}
	}
	var ends []store.OutboxLife
	slices.SortStableFunc(f.ends, func(a, b store.OutboxLife) int { return a.OutboxAt.Compare(b.OutboxAt) }) // an answer has no order
	for _, l := range f.ends {
		id := d.Planner.Of(l)
		if d.wasTold(l) {
			k.forget(id, l.OutboxAt)
			continue
		}
		if k.found(id, l.OutboxAt, now) || now.Sub(l.OutboxAt) > Slow || slices.ContainsFunc(mine, func(doc D) bool { return d.Documents.ID(doc) == id }) {
			ends = append(ends, l)
		}
	}
	// Ends that the look did not read may make a difference, too: of a page that was full, and those that became
	// visible long after their time, because their worker or the majority was away meanwhile.
	more, err := d.mustKnow(ctx, mine)
	if err != nil {
		return next, stays, false, err
	}
	ends = append(ends, more...)
	heard := d.takeHeard() // while the look went on; it may have found some of them
	ends = append(slices.Clone(heard), ends...)
	out, err := d.Decide(ctx, began, mine, ends, now)
	for _, id := range out.written {
		k.decided(id, true)
	}
	for _, id := range out.crossed {
		k.decided(id, false)
	}
	if err == nil {
		d.noteCrossed(heard)
	}
	f.pending = time.Time{}
	for _, l := range f.ends {
		if (f.pending.IsZero() || l.OutboxAt.Before(f.pending)) && !d.wasTold(l) {
			f.pending = l.OutboxAt
		}
	}
	stays += out.Stays
	if !out.Next.IsZero() {
		next = min(next, max(out.Next.Sub(d.Store.Clock.Now()), 0))
	}
	if out.More { // more than one decision holds, or somebody decided in between
		next = 0
	}
	if f.full() && err == nil {
		err = d.tellAll(ctx, k)
	}
	if f.left && !store.Outage(err) {
		err = errors.Join(err, d.sweep(ctx, k.turn))
	}
	return next, stays, out.Worked, err
}

// flush removes what was carried out and told, once some of it has waited for that long, or there
// is much. It is called with every look, and they are less than [Slow] apart.
func (d *Decider[D]) flush(ctx context.Context, age time.Duration) {
	now := d.Store.Local().Monotonic()
	ripe := len(d.told) >= perLook || len(d.carried) >= perLook
	for _, c := range d.carried {
		ripe = ripe || now-c.at >= age
	}
	for _, t := range d.told {
		ripe = ripe || now-t.at >= age
	}
	if !ripe {
		return
	}
	var docs []D
	for id, c := range d.carried {
		if now-c.at < age && len(d.carried) < perLook {
			continue // it leaves with the next decision, perhaps
		}
		docs = append(docs, c.doc)
		delete(d.carried, id)
		if doc, there := d.recent.docs[id]; there {
			d.recent.docs[id] = d.Documents.WithoutPlans(doc)
		}
	}
	if len(docs) > 0 && !d.remove(ctx, docs) {
		for _, doc := range docs {
			d.recent.forget(d.Documents.ID(doc))
		}
	}
	entries := make([]store.Carried, 0, len(d.told))
	for _, t := range d.told {
		entries = append(entries, t.entry)
	}
	clear(d.told)
	if len(entries) == 0 {
		return
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	if err := d.Store.Tasks.RemoveOutbox(ctx, entries); err != nil {
		d.later(err) // they are told once more, which changes nothing
	}
}

// carriedOut notes documents whose plans are carried out.
func (d *Decider[D]) carriedOut(docs []D) {
	now := d.Store.Local().Monotonic()
	for _, doc := range docs {
		d.carried[d.Documents.ID(doc)] = carried[D]{doc: doc, plans: d.Documents.PlanIDs(doc), at: now}
	}
}

// dropped notes that what was carried out has left documents with their next decisions, those that were applied. A
// decision that plans nothing leaves it there.
func (d *Decider[D]) dropped(writes []store.Decision[D], applied []bool) {
	for i, yes := range applied {
		if w := writes[i]; yes && w.Drop && len(d.Documents.PlanIDs(w.After)) > 0 {
			delete(d.carried, d.Documents.ID(w.After))
		}
	}
}

// known is the document without what this process has carried out, and whether that was all that
// it plans, and something.
func (d *Decider[D]) known(doc D) (stripped D, all bool) {
	c, there := d.carried[d.Documents.ID(doc)]
	plans := d.Documents.PlanIDs(doc)
	if !there || len(plans) == 0 || !amongInOrder(plans, c.plans) {
		return doc, false
	}
	return d.Documents.WithoutPlans(doc), true
}

// amongInOrder reports whether all of some are among the others, in their order: plans are added at the end alone.
func amongInOrder(some, others []string) bool {
	for _, id := range some {
		i := slices.Index(others, id)
		if i < 0 {
			return false
		}
		others = others[i+1:]
	}
	return true
}
