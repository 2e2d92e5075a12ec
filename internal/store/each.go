package store

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// change is one write of one document: an update, or its deletion.
type change struct {
	id     string
	guard  bson.D // beside the id
	update bson.D // nil = the document is deleted
	upsert bool
	undone bson.D // see [statement]
}

// isNot is the condition that a field does not have the value. It goes beside a guard on the same field.
func isNot(field string, value any) bson.D { return bson.D{d("$nor", bson.A{bson.D{d(field, value)}})} }

// statementsOf are the statements of changes. Changes that are equal but for their ids are one statement:
// the server reads, plans and answers it once.
func statementsOf(changes []change) ([]statement, error) {
	var out []statement
	equal := map[string]int{} // their statement, by their bytes
	for i := range changes {
		c := &changes[i]
		st := statement{ids: []string{c.id}, guard: appendFields(c.guard), upsert: c.upsert}
		if len(c.undone) > 0 {
			st.undone = appendFields(c.undone)
		}
		if c.update != nil {
			var err error
			if st.update, err = bson.Marshal(c.update); err != nil {
				return nil, &FatalError{Reason: "encoding an update of " + c.id, Err: err}
			}
		}
		if c.upsert { // an update of several documents makes one at most
			out = append(out, st)
			continue
		}
		bytes := string(st.guard(slices.Clone(st.update)))
		if at, there := equal[bytes]; there {
			out[at].ids = append(out[at].ids, c.id)
			continue
		}
		equal[bytes] = len(out)
		out = append(out, st)
	}
	return out, nil
}

func (c *change) model() mongo.WriteModel {
	filter := append(bson.D{d("_id", c.id)}, c.guard...)
	if c.update == nil {
		return mongo.NewDeleteOneModel().SetFilter(filter)
	}
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(c.update).SetUpsert(c.upsert)
}

// sendEach sends changes, in no order. Documents that another client holds delay no others, see
// [core.send]. doing is what was tried, in words that an s makes plural. After an error that may
// pass it tries once more, as the driver does: each change must be safe to repeat. Updates and
// deletions do not mix.
func (s *core) sendEach(ctx context.Context, coll *mongo.Collection, doing string, changes []change) (executed, error) {
	if len(changes) == 0 {
		return executed{clean: true}, nil
	}
	if InTransaction(ctx) { // whose locks are its own
		res, err := coll.BulkWrite(ctx, collect(changes, func(c change) mongo.WriteModel { return c.model() }), options.BulkWrite().SetOrdered(false))
		if err != nil {
			return executed{}, explain(err, doing+"s")
		}
		matched := int(res.MatchedCount + res.DeletedCount + res.UpsertedCount)
		x := executed{clean: matched == len(changes), matched: matched, unsure: map[string]bool{}}
		for _, c := range changes {
			x.unsure[c.id] = true
		}
		return x, nil
	}
	statements, err := statementsOf(changes)
	if err != nil {
		return executed{}, err
	}
	return s.sendTwice(ctx, coll, doing, statements)
}

// sendTwice is [core.send], once more where the answer is lost or the primary changes. A second time the
// statements must find what the first one wrote. If nothing reaches a server then, it is still open what became of
// the first.
func (s *core) sendTwice(ctx context.Context, coll *mongo.Collection, doing string, statements []statement) (executed, error) {
	x, first := s.send(ctx, coll, doing, statements, Patience)
	if !Unreachable(first) || ctx.Err() != nil {
		return x, first
	}
	again, err := s.send(ctx, coll, doing, statements, Patience)
	if Classify(first) == Ambiguous && Classify(err) == Retry {
		return x, first
	}
	return again, err
}

// bulk sends a change for each element of the list, see [core.sendEach], and returns how many
// documents matched. An error names one document that was not written, with [ErrHeld] if another
// client holds it; the others are done.
func bulk[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, list []T, write func(*T) change) (matched int, err error) {
	changes := make([]change, len(list))
	for i := range list {
		changes[i] = write(&list[i])
	}
	x, err := s.sendEach(ctx, coll, doing, changes)
	if err != nil {
		return 0, err
	}
	return x.matched, x.missed(doing)
}

// missed is the error for one document that was not written; nil = there is none.
func (x *executed) missed(doing string) error {
	for _, why := range x.refused {
		return why
	}
	for id := range x.held {
		return fmt.Errorf("%s %s: %w", doing, id, ErrHeld)
	}
	return nil
}
