package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// decided is a collection of documents about which engines decide: each has a rev that rises
// with every decision, and plans (planned, planned_at): what was decided and is to be carried out.
type decided[T, P any] struct {
	*core
	kind
	coll *mongo.Collection
	// of are the id of a document, and what it plans.
	of     func(*T) (id string, p plans[P])
	planID func(P) string
	// mend gives a document what is not stored of it; nil = all is.
	mend func(*T)
	// apart takes out of a decision what its update does not write as whole fields: what it sets and pushes for that. nil =
	// all are whole.
	apart func(before, after *T) (set, push bson.D, err error)
	// guard is what a decision is guarded by beside the rev; nil = nothing.
	guard func(Decision[*T]) bson.D
	// refusal says for people why the server refuses a decision; nil = as the server does.
	refusal func(Decision[*T], error) error
}

// plans are what a document plans, of which decision. The pointers are to its fields.
type plans[P any] struct {
	rev      int64
	decision *string // the mark of the last one
	planned  *[]P
	since    *time.Time
}

// kind is what errors call documents of a collection.
type kind struct{ one, many string }

// Decision is one decision about a document: what it was when it was read, and what it is to
// be.
type Decision[D any] struct {
	Before, After D
	// Drop says that all that the stored document plans is carried out, and leaves with the
	// decision. Before then has no plans.
	Drop bool
}

// Look is what an engine asks of a collection at once: what is due, when something is due next,
// whether there are plans that somebody left, and whether something waits for ends.
type Look[D any] struct {
	Now         time.Time
	Skip, Limit int // of the due documents
	// Read gets the size of each due document before the document is decoded. If it returns false, enough was read, and
	// the document waits for the next look. It is called where documents may be large. nil = all are decoded.
	Read       func(bytes int) bool
	Due        func(D)
	Unread     func(Unreadable)
	Next       func(time.Time)
	LeftBefore time.Time
	Left       func() // there are plans of before LeftBefore
	Waiting    func()
}

// ID is the document's id.
func (s *decided[T, P]) ID(doc *T) string {
	id, _ := s.of(doc)
	return id
}

// PlanIDs names what the document plans.
func (s *decided[T, P]) PlanIDs(doc *T) []string {
	_, p := s.of(doc)
	return collect(*p.planned, s.planID)
}

// PlannedAt is since when something planned waits to be carried out; zero = there is nothing.
func (s *decided[T, P]) PlannedAt(doc *T) time.Time {
	_, p := s.of(doc)
	return *p.since
}

// WithoutPlans is a copy of the document from which everything planned is removed.
func (s *decided[T, P]) WithoutPlans(doc *T) *T {
	c := *doc
	_, p := s.of(&c)
	*p.planned, *p.since = nil, time.Time{}
	return &c
}

// Mark gives a decision its mark, unless it has one already.
func (s *decided[T, P]) Mark(w Decision[*T], mark string) {
	_, before := s.of(w.Before)
	_, after := s.of(w.After)
	if *after.decision == *before.decision {
		*after.decision = mark
	}
}

// Planned finds documents with something decided before the given time and not seen to be carried
// out: whoever decided it has died, or is slow. A decision that a failover may undo is none yet. The first skip of them are left out. unread are
// documents that this release cannot read. Index: planned.
func (s *decided[T, P]) Planned(ctx context.Context, before time.Time, skip, limit int) (docs []*T, unread []Unreadable, err error) {
	return s.readIn(ctx, s.durable(s.coll), "finding planned "+s.many, bson.D{d("planned_at", bson.D{d("$lte", before)})},
		options.Find().SetSort(bson.D{d("planned_at", 1)}).SetHint(indexPlanned).SetSkip(int64(skip)).SetLimit(int64(limit)))
}

// ByIDs reads documents by their ids, as a failover cannot undo them: an end may be told of which they already know. One
// that is there and cannot be read is nil. Index: _id.
func (s *decided[T, P]) ByIDs(ctx context.Context, ids []string) (map[string]*T, error) {
	found, unread, err := s.readIn(ctx, s.durable(s.coll), "reading "+s.many, bson.D{d("_id", in(ids))}, options.Find())
	out := make(map[string]*T, len(found))
	for _, doc := range found {
		out[s.ID(doc)] = doc
	}
	for _, u := range unread {
		out[u.ID] = nil
	}
	return out, err
}

// read reads documents, one by one.
func (s *decided[T, P]) read(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder) (docs []*T, unread []Unreadable, err error) {
	return s.readIn(ctx, s.coll, doing, filter, o)
}

func (s *decided[T, P]) readIn(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOptionsBuilder) (docs []*T, unread []Unreadable, err error) {
	err = readEach(ctx, coll, doing, filter, o, func(raw bson.Raw) bool {
		s.give(raw, func(doc *T) { docs = append(docs, doc) }, func(u Unreadable) { unread = append(unread, u) })
		return true
	})
	return docs, unread, err
}

// give gives a document to take, or to bad if this release cannot read it.
func (s *decided[T, P]) give(raw bson.Raw, take func(*T), bad func(Unreadable)) {
	if doc, err := s.decode(raw); err != nil {
		bad(unreadable(raw, err))
	} else {
		take(doc)
	}
}

func (s *decided[T, P]) decode(raw bson.Raw) (*T, error) {
	doc := new(T)
	err := codec.Decode(raw, doc)
	if err == nil && s.mend != nil {
		s.mend(doc)
	}
	return doc, err
}

func unreadable(raw bson.Raw, err error) Unreadable {
	id, _ := raw.Lookup("_id").StringValueOK()
	living, _ := raw.Lookup("living").StringValueOK()
	return Unreadable{ID: id, Living: living, Err: err}
}

// Write carries decisions out, each if the document still has the rev that was read: applied[i]
// says so. refused[i] is why the server refuses a decision, whoever asks: it concerns that one
// alone, and passes where it is [ErrHeld]. An error means that nothing is known of any: some may be
// done. Index: _id.
func (s *decided[T, P]) Write(ctx context.Context, writes []Decision[*T]) (applied []bool, refused map[int]error, err error) {
	applied = make([]bool, len(writes))
	if len(writes) == 0 {
		return applied, nil, nil
	}
	changes := make([]change, len(writes))
	for i, w := range writes {
		id, before := s.of(w.Before)
		update, err := s.update(w)
		if err != nil {
			return applied, nil, &FatalError{Reason: fmt.Sprintf("encoding a decision about the %s %s", s.one, id), Err: err}
		}
		changes[i] = change{id: id, guard: before.same(), update: update}
		if s.guard != nil {
			changes[i].guard = append(changes[i].guard, s.guard(w)...)
		}
	}
	x, err := s.sendEach(ctx, s.coll, "writing a decision about "+s.one, changes)
	if err != nil {
		return applied, nil, err
	}
	if x.matched == len(writes) {
		for i := range applied {
			applied[i] = true
		}
		return applied, nil, nil
	}
	coll := s.coll // some were crossed
	if len(x.held) > 0 {
		coll = s.durable(coll) // no command has waited until a majority has what is there of those
	}
	if applied, err = s.appliedIn(ctx, coll, writes); err != nil {
		return applied, nil, err
	}
	refused = map[int]error{}
	for i, w := range writes {
		switch id := changes[i].id; {
		case applied[i]:
		case x.refused[id] != nil:
			if refused[i] = x.refused[id]; s.refusal != nil {
				refused[i] = s.refusal(w, x.refused[id])
			}
		case x.held[id]:
			refused[i] = fmt.Errorf("the %s %s: %w", s.one, id, ErrHeld)
		}
	}
	return applied, refused, nil
}

// Applied looks which decisions were applied, and are the last ones about their documents: for a
// call of Write whose answer was lost. It reads what a failover cannot undo, so a majority may have a decision
// a moment after Applied has not found it. Index: _id.
func (s *decided[T, P]) Applied(ctx context.Context, writes []Decision[*T]) (applied []bool, err error) {
	return s.appliedIn(ctx, s.durable(s.coll), writes)
}

func (s *decided[T, P]) appliedIn(ctx context.Context, coll *mongo.Collection, writes []Decision[*T]) (applied []bool, err error) {
	ids := collect(writes, func(w Decision[*T]) string { return s.ID(w.Before) })
	found, _, err := s.readIn(ctx, coll, "reading "+s.many, bson.D{d("_id", in(ids))}, options.Find())
	current := map[string]plans[P]{}
	for _, doc := range found {
		id, p := s.of(doc)
		current[id] = p
	}
	applied = make([]bool, len(writes))
	for i, w := range writes {
		id, after := s.of(w.After)
		is, there := current[id]
		applied[i] = there && is.rev == after.rev && *is.decision == *after.decision
	}
	return applied, err
}

// CarriedOut removes what was carried out, which is all that is planned in the documents as they
// are given, and the mark when nothing is left. It changes no rev. One write for each document
// that nobody has decided since; of the others it takes out what was carried out, entry by entry.
// [ErrHeld] when another client holds some of them, and how many; the others are done. Index: _id.
func (s *decided[T, P]) CarriedOut(ctx context.Context, docs []*T) (held int, err error) {
	doing := "removing an applied decision from " + s.one
	gone := bson.D{d("$unset", bson.D{d("planned_at", ""), d("planned", "")})}
	x, err := s.sendEach(ctx, s.coll, doing, collect(docs, func(doc *T) change {
		id, p := s.of(doc)
		return change{id: id, guard: bson.D{d("rev", p.rev)}, update: gone, undone: bson.D{d("planned_at", exists)}}
	}))
	if err != nil || x.matched == len(docs) {
		return 0, err
	}
	missed, left := x.missed(doing), maps.Clone(x.held)
	var pulls, marks []change // the mark goes after the last entry
	for _, doc := range docs {
		id := s.ID(doc)
		if x.done(id) || x.held[id] || x.refused[id] != nil {
			continue
		}
		plans := in(s.PlanIDs(doc))
		pulls = append(pulls, change{id: id, update: bson.D{d("$pull", bson.D{d("planned", bson.D{d("id", plans)})})}, undone: bson.D{d("planned.id", plans)}})
		marks = append(marks, change{id: id, guard: bson.D{d("planned.0", absent)}, update: gone, undone: bson.D{d("planned_at", exists)}})
	}
	for _, changes := range [][]change{pulls, marks} {
		x, err := s.sendEach(ctx, s.coll, doing, changes)
		if err != nil {
			return 0, err
		}
		missed = cmp.Or(missed, x.missed(doing))
		for id := range x.held {
			if left == nil {
				left = map[string]bool{}
			}
			left[id] = true
		}
	}
	return len(left), missed
}

// plannedQuestion asks whether there are documents with something decided before the given time
// and not seen to be carried out. Index: planned.
func (s *decided[T, P]) plannedQuestion(before time.Time, found func()) Question {
	return s.whether(bson.D{d("planned_at", bson.D{d("$lte", before)})}, found)
}

// nextQuestion asks for the earliest time after the given one that any document has in the field, which has an index of
// its own.
func (s *decided[T, P]) nextQuestion(field string, after time.Time, take func(time.Time)) Question {
	return Question{coll: s.coll, filter: bson.D{d(field, bson.D{d("$gt", after)})}, sort: bson.D{d(field, 1)}, limit: 1,
		projection: bson.D{d("_id", 0), d(field, 1)}, take: func(raw bson.Raw) error {
			if at, ok := raw.Lookup(field).TimeOK(); ok {
				take(at)
			}
			return nil
		}}
}

func (s *decided[T, P]) whether(filter bson.D, found func()) Question {
	return Question{coll: s.coll, filter: filter, limit: 1, projection: bson.D{d("_id", 1)}, take: func(bson.Raw) error {
		found()
		return nil
	}}
}

// same is the condition that nobody has decided since.
func (p plans[P]) same() bson.D {
	guard := bson.D{d("rev", p.rev)}
	if *p.decision != "" { // a document of that id, made anew or restored, may have had as many
		guard = append(guard, d("decision", *p.decision))
	}
	return guard
}

// update is the update of a decision.
func (s *decided[T, P]) update(w Decision[*T]) (update bson.D, err error) {
	before, after := *w.Before, *w.After
	plans := s.onlyNew(&before, &after)
	var set, push bson.D
	if s.apart != nil {
		if set, push, err = s.apart(&before, &after); err != nil {
			return nil, err
		}
	}
	if update, err = changed(&before, &after, set...); err != nil {
		return nil, err
	}
	return pushing(update, plans, w.Drop, push...)
}

// onlyNew takes what is planned out of both, and returns what after alone plans.
func (s *decided[T, P]) onlyNew(before, after *T) (plans []P) {
	_, was := s.of(before)
	_, is := s.of(after)
	known := map[string]bool{}
	for _, p := range *was.planned {
		known[s.planID(p)] = true
	}
	for _, p := range *is.planned {
		if !known[s.planID(p)] {
			plans = append(plans, p)
		}
	}
	if len(plans) > 0 {
		*was.since = time.Time{} // the mark may have been taken away meanwhile
	} else {
		*is.since = *was.since
	}
	*was.planned, *is.planned = nil, nil
	return plans
}

// pushing adds to an update the plans that a decision appends to what is planned, which others
// take out without a new rev: nothing that is carried out ever comes back. others are what the
// decision appends to other lists.
func pushing[P any](update bson.D, plans []P, drop bool, others ...bson.E) (bson.D, error) {
	push := bson.D(others)
	if len(plans) > 0 {
		docs, err := docsOf(plans)
		if err != nil {
			return nil, err
		}
		each := bson.D{d("$each", docs)}
		if drop {
			each = append(each, d("$slice", -len(plans)))
		}
		push = append(push, d("planned", each))
	}
	if len(push) == 0 {
		return update, nil
	}
	return append(update, d("$push", push)), nil
}
