package decision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Outcome is what became of a [Decider.Decide].
type Outcome struct {
	Worked bool      // something was decided
	Stays  int       // of the due documents: nothing can be decided about them now
	More   bool      // another look finds more at once
	Next   time.Time // when the first document that was decided about is due again, or a held one is tried again; zero = none is

	written, crossed []string // documents about which this was decided, and those where somebody else was quicker
	// stale are documents that this engine remembered. Somebody has decided about them since, or
	// nothing is to be decided, which only what is stored can say.
	stale []string
}

var errUnreadLife = errors.New("this process cannot read the newest life of the task that ended")

// Decide decides about due documents, and tells documents of the ends of their tasks: one decision
// for each document. began is when they were about to be read. Documents that this engine remembers
// are read only where that is not enough.
func (d *Decider[D]) Decide(ctx context.Context, began clock.Instant, due []D, lives []store.OutboxLife, now time.Time) (out Outcome, err error) {
	entered := d.Store.Local().Monotonic()
	for i, part := range d.parts(due, lives) {
		if i > 0 { // each part reads its own documents
			began = clock.Read(d.Store.Local())
			if d.Store.Local().Monotonic()-entered > busyLook { // the engine must tell that it lives, too
				out.More = true
				return out, nil
			}
		}
		one, err := d.decide(ctx, began, due, part, d.recent.docs, now)
		if out.add(one); err != nil {
			return out, err
		}
		if due = nil; len(one.stale) == 0 {
			continue
		}
		again := slices.DeleteFunc(slices.Clone(part), func(l store.OutboxLife) bool { return !slices.Contains(one.stale, d.Planner.Of(l)) })
		more, err := d.decide(ctx, began, nil, again, nil, now)
		if out.add(more); err != nil {
			return out, err
		}
	}
	return out, nil
}

// add adds what became of more.
func (o *Outcome) add(more Outcome) {
	o.Worked, o.More, o.Stays = o.Worked || more.Worked, o.More || more.More, o.Stays+more.Stays
	o.written, o.crossed = append(o.written, more.written...), append(o.crossed, more.crossed...)
	if o.Next.IsZero() || !more.Next.IsZero() && more.Next.Before(o.Next) {
		o.Next = more.Next
	}
}

// parts divides ends so that deciding about each part reads no more documents than may be read at a time. All ends
// that concern a document are in one part, those that concern due documents in the first one.
func (d *Decider[D]) parts(due []D, lives []store.OutboxLife) [][]store.OutboxLife {
	parts, in, read := [][]store.OutboxLife{nil}, map[string]int{}, 0
	for _, doc := range due {
		in[d.Documents.ID(doc)] = 0
	}
	for _, l := range lives {
		id := d.Planner.Of(l)
		part, known := in[id]
		if !known {
			if _, known = d.recent.docs[id]; !known {
				if read == d.mostRead() {
					parts, read = append(parts, nil), 0
				}
				read++
			}
			part = len(parts) - 1
			in[id] = part
		}
		parts[part] = append(parts[part], l)
	}
	return parts
}

// decide is Decide; recent are documents as they were, by id, which need not be read. If somebody has
// decided since, the decision is not applied.
func (d *Decider[D]) decide(ctx context.Context, began clock.Instant, due []D, lives []store.OutboxLife, recent map[string]D, now time.Time) (out Outcome, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	cases, err := d.cases(call, due, lives, recent)
	cancel()
	if err == nil {
		cases, out.Stays, err = d.keep(ctx, cases)
	}
	if err != nil {
		return out, err
	}
	cases = slices.DeleteFunc(cases, func(c Case[D]) bool {
		d.endsTold(c.Past)
		return !c.Due && len(c.Ends) == 0
	})
	if later := d.Store.Clock.Now(); later.After(now) {
		now = later // what starts because something has ended starts after that
	}
	call, cancel = context.WithTimeout(ctx, callTimeout)
	answers, err := d.Planner.Decide(call, cases, now)
	cancel()
	if err != nil {
		return out, err
	}
	var writes []store.Decision[D]
	var of []int // of each write: its case
	for i, a := range answers {
		c := &cases[i]
		switch {
		case a.Err != nil: // of a later release, or written by hand
			d.Complain(d.Documents.ID(c.Doc), a.Err)
			d.recent.forget(d.Documents.ID(c.Doc)) // the next look reads it
			out.Stays += count(c.Due)
		case a.Changed:
			writes, of = append(writes, store.Decision[D]{Before: c.Doc, After: a.After, Drop: c.drop}), append(of, i)
		case c.recent: // only a write shows that the document is what this engine remembers
			out.stale = append(out.stale, d.Documents.ID(c.Doc))
		default:
			d.endsTold(c.Ends[:a.Told])
			out.Stays += count(c.Due)
		}
	}
	defer func() {
		for _, id := range out.stale {
			d.recent.forget(id)
		}
	}()
	if len(writes) == 0 {
		return out, nil
	}
	applied, refused, err := d.All(ctx, began, writes)
	if err != nil {
		return out, err
	}
	for n, w := range writes {
		c, a := &cases[of[n]], &answers[of[n]]
		switch {
		case applied[n]:
			out.Worked, out.written = true, append(out.written, d.Documents.ID(w.After))
			if d.Prompt {
				d.remember(w)
			}
			d.endsTold(c.Ends[:a.Told])
			at := d.Planner.DueAt(w.After)
			out.More = out.More || a.Told < len(c.Ends) || !at.IsZero() && !at.After(now)
			if !at.IsZero() && (out.Next.IsZero() || at.Before(out.Next)) {
				out.Next = at
			}
		case refused[n] != nil:
			out.Stays += count(c.Due)
			if soon := now.Add(busyLook); errors.Is(refused[n], store.ErrHeld) && (out.Next.IsZero() || soon.Before(out.Next)) {
				out.Next = soon
			}
		case c.recent:
			out.stale = append(out.stale, d.Documents.ID(w.After))
		default: // somebody decided in between
			out.More, out.crossed = true, append(out.crossed, d.Documents.ID(w.After))
		}
	}
	return out, nil
}

// keep has the planner keep the ends. stays are the due documents that it leaves out, since the server
// refuses what is kept of their ends: no document stands in another's way.
func (d *Decider[D]) keep(ctx context.Context, cases []Case[D]) (kept []Case[D], stays int, err error) {
	switch err = d.Planner.Keep(ctx, cases); {
	case err == nil || store.Outage(err) || ctx.Err() != nil: // it stops: parts of it would fail, too
		return cases, 0, err
	case len(cases) == 1:
		d.Complain(d.Documents.ID(cases[0].Doc), fmt.Errorf("keeping the results of its tasks: %w", err))
		return nil, count(cases[0].Due), nil
	}
	for _, half := range [][]Case[D]{cases[:len(cases)/2], cases[len(cases)/2:]} {
		some, left, err := d.keep(ctx, half)
		if err != nil {
			return nil, 0, err
		}
		kept, stays = append(kept, some...), stays+left
	}
	return kept, stays, nil
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// cases puts together what may have to be decided: due documents, and those of which tasks ended.
func (d *Decider[D]) cases(ctx context.Context, due []D, lives []store.OutboxLife, recent map[string]D) ([]Case[D], error) {
	lives, past, err := d.current(ctx, lives)
	if err != nil {
		return nil, err
	}
	byID := map[string]*Case[D]{}
	var order, missing []string
	asked := map[string]bool{} // those that are missing
	add := func(doc D, due bool) {
		id := d.Documents.ID(doc)
		c := &Case[D]{Due: due}
		c.Doc, c.drop = d.known(doc)
		byID[id], order = c, append(order, id)
	}
	for _, doc := range due {
		add(doc, true)
	}
	// No write follows on ends of the past, so they need the document as it is stored.
	pasts := map[string]bool{}
	for _, l := range past {
		pasts[d.Planner.Of(l)] = true
	}
	for _, l := range slices.Concat(lives, past) {
		id := d.Planner.Of(l)
		if doc, there := recent[id]; there && byID[id] == nil && !pasts[id] {
			add(doc, false)
			byID[id].recent = true
		} else if byID[id] == nil && !asked[id] {
			missing, asked[id] = append(missing, id), true
		}
	}
	unread := map[string]bool{}
	if len(missing) > 0 {
		docs, err := d.Documents.ByIDs(ctx, missing)
		if err != nil {
			return nil, err
		}
		if d.Large {
			d.large.begin()
			for _, doc := range docs {
				if !isNil(doc) {
					d.large.read(d.Size(doc) / decoded)
				}
			}
		}
		for _, id := range missing {
			doc, there := docs[id]
			switch {
			case !there: // somebody deleted the document by hand
			case isNil(doc):
				unread[id] = true
				d.Complain(id, errors.New("one of its tasks ended, and this process cannot read the task's document"))
			default:
				add(doc, false)
			}
		}
	}
	for n, l := range slices.Concat(lives, past) {
		switch id := d.Planner.Of(l); {
		case byID[id] != nil && n < len(lives):
			byID[id].Ends = append(byID[id].Ends, l)
		case byID[id] != nil:
			byID[id].Past = append(byID[id].Past, l)
		case !unread[id]:
			d.endsTold([]store.OutboxLife{l})
		}
	}
	cases := make([]Case[D], len(order))
	for i, id := range order {
		cases[i] = *byID[id]
	}
	return cases, nil
}

// current leaves out ends that say nothing, or were told, as of a task that belongs to nothing. past
// are those of a life that lies in the history while a later one is known: a person has had such a
// task run again. It ends when its newest life does, and as that did, in whichever order the two ends
// are found.
func (d *Decider[D]) current(ctx context.Context, lives []store.OutboxLife) (out, past []store.OutboxLife, err error) {
	var ids []string
	for _, l := range lives {
		if l.InHistory {
			ids = append(ids, l.ID)
		}
	}
	newest, err := d.Store.Tasks.LastLivesOf(ctx, ids, store.State)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, l := range lives {
		last, asked := newest[l.ID]
		life := l.ID + "@" + strconv.FormatInt(l.Generation, 10)
		switch {
		case d.wasTold(l) || seen[life]:
		case d.Planner.Of(l) == "":
			d.endsTold([]store.OutboxLife{l})
		case asked && last != nil && l.Generation < last.Generation:
			past = append(past, l)
			seen[life] = true
		case asked && last == nil:
			d.Complain(d.Planner.Of(l), errUnreadLife)
		default:
			out = append(out, l)
			seen[life] = true
		}
	}
	return out, past, nil
}

// entries are what the outbox of a life has for this planner.
func (d *Decider[D]) entries(l store.OutboxLife) (out []store.Carried) {
	for _, e := range l.Outbox {
		if e.Kind == d.Planner.Kind() {
			out = append(out, store.Carried{Life: l, Entry: e})
		}
	}
	return out
}

func (d *Decider[D]) wasTold(l store.OutboxLife) bool {
	return !slices.ContainsFunc(d.entries(l), func(c store.Carried) bool {
		_, told := d.told[entryID(c)]
		return !told
	})
}

// endsTold notes ends that are known. They leave their tasks' outboxes soon.
func (d *Decider[D]) endsTold(lives []store.OutboxLife) {
	now := d.Store.Local().Monotonic()
	for _, l := range lives {
		entries := d.entries(l)
		for _, c := range entries {
			d.told[entryID(c)] = told{entry: c, at: now}
		}
		if len(entries) > 0 {
			d.heard.told(l.Task)
		}
	}
}

func entryID(c store.Carried) string {
	return lifecycle.EntryID(c.Life.ID, c.Life.Generation, c.Entry)
}

// mustKnow reads the ends that make a difference to what is decided about the documents. Of most there are none, and it
// asks nothing.
func (d *Decider[D]) mustKnow(ctx context.Context, docs []D) (lives []store.OutboxLife, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var ids []string
	for _, doc := range docs {
		ids = append(ids, d.Planner.MustKnow(doc)...)
	}
	for some := range slices.Chunk(ids, perInsert) {
		found, err := d.Store.Tasks.OutboxesOf(ctx, some, d.Planner.Kind())
		if err != nil {
			return nil, err
		}
		lives = append(lives, found...)
	}
	return lives, nil
}

// tellAll tells of ends, of which there are more than a look reads.
func (d *Decider[D]) tellAll(ctx context.Context, k *rank) error {
	from, before := time.Time{}, d.Store.Clock.Now()
	for {
		began := clock.Read(d.Store.Local())
		call, cancel := context.WithTimeout(ctx, callTimeout)
		lives, next, err := d.Store.Tasks.Outboxes(call, []string{d.Planner.Kind()}, from, before, perLook)
		cancel()
		if err != nil {
			return err
		}
		lives = slices.DeleteFunc(lives, func(l store.OutboxLife) bool { return !d.mayTell(l, before, k) })
		for more := true; more && len(lives) > 0; {
			out, err := d.Decide(ctx, began, nil, lives, d.Store.Clock.Now())
			if err != nil {
				return err
			}
			more = out.More && out.Worked
		}
		d.flush(ctx, 0)
		if next.IsZero() {
			return nil
		}
		from = next // past those that cannot be told
	}
}

// isNil says whether a document is there and cannot be read.
func isNil[D any](doc D) bool { return any(doc) == any(*new(D)) }
