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
)

// decided is a collection of documents about which engines decide: each has a rev that rises
// with every decision, and plans (planned, planned_at): what was decided and is to be carried out.
type decided[D any] struct {
	*core
	kind
	coll *mongo.Collection
	// of are the id, the rev and the mark of the last decision of a document.
	of      func(D) (id string, rev int64, decision string)
	planIDs func(D) []string
	// update is the update of a decision.
	update func(Decision[D]) (bson.D, error)
	decode func(bson.Raw) (D, error)
	// guard is what a decision is guarded by beside the rev; nil = nothing.
	guard func(Decision[D]) bson.D
	// refusal says for people why the server refuses a decision.
	refusal func(Decision[D], error) error
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
func (s *decided[D]) ID(doc D) string {
	id, _, _ := s.of(doc)
	return id
}

// PlanIDs names what the document plans.
func (s *decided[D]) PlanIDs(doc D) []string { return s.planIDs(doc) }

// Planned finds documents with something decided before the given time and not seen to be carried
// out: whoever decided it has died, or is slow. A decision that a failover may undo is none yet. The first skip of them are left out. unread are
// documents that this release cannot read. Index: planned.
func (s *decided[D]) Planned(ctx context.Context, before time.Time, skip, limit int) (docs []D, unread []Unreadable, err error) {
	return s.readIn(ctx, s.durable(s.coll), "finding planned "+s.many, bson.D{d("planned_at", bson.D{d("$lte", before)})},
		options.Find().SetSort(bson.D{d("planned_at", 1)}).SetHint(indexPlanned).SetSkip(int64(skip)).SetLimit(int64(limit)))
}

// ByIDs reads documents by their ids, as a failover cannot undo them: an end may be told of which they already know. One
// that is there and cannot be read is nil. Index: _id.
func (s *decided[D]) ByIDs(ctx context.Context, ids []string) (map[string]D, error) {
	found, unread, err := s.readIn(ctx, s.durable(s.coll), "reading "+s.many, bson.D{d("_id", in(ids))}, options.Find())
	out := make(map[string]D, len(found))
	for _, doc := range found {
		out[s.ID(doc)] = doc
	}
	for _, u := range unread {
		out[u.ID] = *new(D)
	}
	return out, err
}

// read reads documents, one by one.
func (s *decided[D]) read(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder) (docs []D, unread []Unreadable, err error) {
	return s.readIn(ctx, s.coll, doing, filter, o)
}

func (s *decided[D]) readIn(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOptionsBuilder) (docs []D, unread []Unreadable, err error) {
	err = readEach(ctx, coll, doing, filter, o, func(raw bson.Raw) bool {
		if doc, err := s.decode(raw); err != nil {
			unread = append(unread, unreadable(raw, err))
		} else {
			docs = append(docs, doc)
		}
		return true
	})
	return docs, unread, err
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
func (s *decided[D]) Write(ctx context.Context, writes []Decision[D]) (applied []bool, refused map[int]error, err error) {
	applied = make([]bool, len(writes))
	if len(writes) == 0 {
		return applied, nil, nil
	}
	changes := make([]change, len(writes))
	for i, w := range writes {
		id, rev, decision := s.of(w.Before)
		update, err := s.update(w)
		if err != nil {
			return applied, nil, &FatalError{Reason: fmt.Sprintf("encoding a decision about the %s %s", s.one, id), Err: err}
		}
		changes[i] = change{id: id, guard: bson.D{d("rev", rev)}, update: update}
		if decision != "" { // a document of that id, made anew or restored, may have had as many
			changes[i].guard = append(changes[i].guard, d("decision", decision))
		}
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
			refused[i] = s.refusal(w, x.refused[id])
		case x.held[id]:
			refused[i] = fmt.Errorf("the %s %s: %w", s.one, id, ErrHeld)
		}
	}
	return applied, refused, nil
}

// Applied looks which decisions were applied, and are the last ones about their documents: for a
// call of Write whose answer was lost. It reads what a failover cannot undo, so a majority may have a decision
// a moment after Applied has not found it. Index: _id.
func (s *decided[D]) Applied(ctx context.Context, writes []Decision[D]) (applied []bool, err error) {
	return s.appliedIn(ctx, s.durable(s.coll), writes)
}

func (s *decided[D]) appliedIn(ctx context.Context, coll *mongo.Collection, writes []Decision[D]) (applied []bool, err error) {
	ids := collect(writes, func(w Decision[D]) string { return s.ID(w.Before) })
	found, _, err := s.readIn(ctx, coll, "reading "+s.many, bson.D{d("_id", in(ids))}, options.Find())
	type last struct {
		rev      int64
		decision string
	}
	current := map[string]last{}
	for _, doc := range found {
		id, rev, decision := s.of(doc)
		current[id] = last{rev, decision}
	}
	applied = make([]bool, len(writes))
	for i, w := range writes {
		id, rev, decision := s.of(w.After)
		is, there := current[id]
		applied[i] = there && is == last{rev, decision}
	}
	return applied, err
}

// CarriedOut removes what was carried out, which is all that is planned in the documents as they
// are given, and the mark when nothing is left. It changes no rev. One write for each document
// that nobody has decided since; of the others it takes out what was carried out, entry by entry.
// [ErrHeld] when another client holds some of them, and how many; the others are done. Index: _id.
func (s *decided[D]) CarriedOut(ctx context.Context, docs []D) (held int, err error) {
	doing := "removing an applied decision from " + s.one
	gone := bson.D{d("$unset", bson.D{d("planned_at", ""), d("planned", "")})}
	x, err := s.sendEach(ctx, s.coll, doing, collect(docs, func(doc D) change {
		id, rev, _ := s.of(doc)
		return change{id: id, guard: bson.D{d("rev", rev)}, update: gone, undone: bson.D{d("planned_at", exists)}}
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
		plans := in(s.planIDs(doc))
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
func (s *decided[D]) plannedQuestion(before time.Time, found func()) Question {
	return s.whether(bson.D{d("planned_at", bson.D{d("$lte", before)})}, found)
}

func (s *decided[D]) whether(filter bson.D, found func()) Question {
	return Question{coll: s.coll, filter: filter, limit: 1, projection: bson.D{d("_id", 1)}, take: func(bson.Raw) error {
		found()
		return nil
	}}
}

// newlyPlanned are the plans of after whose ids none of before has.
func newlyPlanned[P any](after, before []P, id func(P) string) (plans []P) {
	known := map[string]bool{}
	for _, p := range before {
		known[id(p)] = true
	}
	for _, p := range after {
		if !known[id(p)] {
			plans = append(plans, p)
		}
	}
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
