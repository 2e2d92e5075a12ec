package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A primary may carry a command out and then wait for the majority until the time limit passes. Its answer is then an
// error of the write concern, and no document is held. Behind a router the limit may pass before the shard answers. The
// router then answers that each statement of that shard ran out of time.

// lags says whether the error is that the majority lagged: the primaries have done what the write errors leave. A router
// that hears this of several shards has a code of its own for that.
func (b *batch) lags(we mongo.WriteException) bool {
	c := we.WriteConcernError
	return c != nil && (c.Code == maxTimeExpired || b.sharded && c.Code == writeConcernFailed)
}

// lagsAlone says whether the error of a single write is that the majority lagged, and nothing else.
func lagsAlone(err error) bool {
	var we mongo.WriteException
	return errors.As(err, &we) && we.WriteConcernError != nil && we.WriteConcernError.Code == maxTimeExpired && len(we.WriteErrors) == 0
}

// again repeats a command whose majority lagged. Statements that are carried out match nothing, and the answer waits for
// their majority. It names the refused statements once more. Statements that ran out of time are returned: another
// client may hold their documents.
func (b *batch) again(ctx context.Context, c command, we mongo.WriteException) (late command, err error) {
	ranOut := map[int]bool{}
	for _, e := range we.WriteErrors {
		ranOut[e.Index] = ranOut[e.Index] || slices.Contains(ranOutCodes, e.Code)
	}
	rest := command{ordered: c.ordered}
	for i := range c.parts {
		if ranOut[i] {
			late.add(&c, i)
		} else {
			rest.add(&c, i)
		}
	}
	b.ranOut(&c) // documents of these inserts may be there
	return late, b.awaitMajority(ctx, rest)
}

// lagPatience is how long statements on one shard of several may wait for their majority, and the others with them.
const lagPatience = 10 * time.Second

// awaitMajority repeats a command that the primaries have carried out, because its answer waits for the majority. On a
// replica set it waits as long as the caller does. Behind a router, a shard that has lost its majority must not cost the
// others their leases, so statements that take too long are left out.
func (b *batch) awaitMajority(ctx context.Context, c command) error {
	if c.ids == 0 {
		return nil
	}
	c.awaited = true
	var limit time.Duration
	if b.sharded {
		limit = beforeEnd(ctx, lagPatience, partShare)
	}
	late, err := b.sendWithin(ctx, c, limit)
	late.each(func(id string) { // from now on it is asked about alone, so that the others do not wait again
		b.s.held.suspect(b.coll, id, b.s.local)
		b.leaveOut(id)
	})
	return err
}

// add adds a statement of another command.
func (c *command) add(from *command, i int) {
	c.parts, c.encoded, c.ids = append(c.parts, from.parts[i]), append(c.encoded, from.encoded[i]), c.ids+len(from.parts[i].ids)
}

// afterRouter finds the statements of a command that ran out of a router's time, and that the primaries have carried
// out all the same. Their majority is waited for. The others are returned, and all of them if the primaries cannot be
// asked. Index: _id.
func (b *batch) afterRouter(ctx context.Context, late command) (left command, err error) {
	left, done, err := b.divide(ctx, b.coll, late)
	if err != nil {
		return command{}, err
	}
	return left, b.awaitMajority(ctx, done)
}

// divide divides a command by a look at the documents: left are the statements that are not carried out there.
func (b *batch) divide(ctx context.Context, coll *mongo.Collection, c command) (left, done command, err error) {
	look, cancel := context.WithTimeout(ctx, beforeEnd(ctx, lagPatience, partShare))
	defer cancel()
	pending := map[string]bool{}
	for from := 0; from < len(c.parts); from += perLookAfter {
		err := b.pending(look, coll, c.parts[from:min(from+perLookAfter, len(c.parts))], pending)
		if err != nil && (Final(err) || ctx.Err() != nil) {
			return command{}, command{}, err
		}
		if err != nil { // a shard has no primary, perhaps
			return c, command{}, nil
		}
	}
	left.ordered, done.ordered = c.ordered, c.ordered
	for i := range c.parts {
		if slices.ContainsFunc(c.parts[i].ids, func(id string) bool { return pending[id] }) {
			left.add(&c, i)
		} else {
			done.add(&c, i)
		}
	}
	return left, done, nil
}

// perLookAfter is how many statements one look of [batch.divide] is about.
const perLookAfter = 100

// pending adds the ids for which the statements are not carried out, as the collection is read.
func (b *batch) pending(ctx context.Context, coll *mongo.Collection, statements []statement, to map[string]bool) error {
	var stored []string // done as soon as the document is there, and no filter finds it
	var filters bson.A
	for i := range statements {
		st := &statements[i]
		if st.stores() {
			for _, id := range st.ids {
				stored = append(stored, id)
				to[id] = true
			}
			if st.insert != nil {
				continue
			}
		}
		start, filter := bsoncore.AppendDocumentStart(nil)
		filter = st.appendIDs(filter, st.ids)
		filter = st.guard(filter)
		if st.undone != nil {
			filter = st.undone(filter)
		}
		filter, _ = bsoncore.AppendDocumentEnd(filter, start)
		filters = append(filters, bson.Raw(filter))
	}
	look := func(filter bson.D, each func(id string)) error {
		return readEach(ctx, coll, "looking at what ran out of time", filter, options.Find().SetProjection(fields("_id")), func(doc bson.Raw) bool {
			if id, ok := doc.Lookup("_id").StringValueOK(); ok {
				each(id)
			}
			return true
		})
	}
	if len(stored) > 0 {
		if err := look(bson.D{d("_id", in(stored))}, func(id string) { delete(to, id) }); err != nil {
			return err
		}
	}
	if len(filters) == 0 {
		return nil
	}
	return look(bson.D{d("$or", filters)}, func(id string) { to[id] = true })
}
