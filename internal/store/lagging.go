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

// A primary that has carried a command out may wait for the majority until the time limit passes. It says so: the error
// is that of the write concern, and nothing holds a document. A router whose own time ends first does not know that, and
// answers for each statement of the shard that its time ran out.

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

// again sends a command once more whose majority lagged. What is done matches nothing, and the answer waits for all of
// it. It tells of the refused statements once more. What ran out of time is returned: it may be held.
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

// awaitMajority sends a command that the primaries have carried out once more: its answer waits for the majority. On a
// replica set it waits for as long as the caller does. Behind a router one shard that has lost its majority must not
// cost the others their leases: what takes too long is left out.
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
	late.each(b.leaveOut)
	return err
}

// add adds a statement of another command.
func (c *command) add(from *command, i int) {
	c.parts, c.encoded, c.ids = append(c.parts, from.parts[i]), append(c.encoded, from.encoded[i]), c.ids+len(from.parts[i].ids)
}

// afterRouter finds the statements of a command that ran out of a router's time, and that the primaries have carried
// out all the same. Their majority is waited for. The others are returned. Index: _id.
func (b *batch) afterRouter(ctx context.Context, late command) (left command, err error) {
	pending := map[string]bool{}
	for from := 0; from < len(late.parts); from += perLookAfter {
		if err := b.pending(ctx, late.parts[from:min(from+perLookAfter, len(late.parts))], pending); err != nil {
			return command{}, err
		}
	}
	done := command{ordered: late.ordered}
	for i := range late.parts {
		if slices.ContainsFunc(late.parts[i].ids, func(id string) bool { return pending[id] }) {
			left.add(&late, i)
		} else {
			done.add(&late, i)
		}
	}
	return left, b.awaitMajority(ctx, done)
}

// perLookAfter is how many statements one look of [batch.afterRouter] is about.
const perLookAfter = 100

// pending adds the ids for which the primaries have not carried the statements out.
func (b *batch) pending(ctx context.Context, statements []statement, to map[string]bool) error {
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
		return readEach(ctx, b.coll, "looking at what ran out of time", filter, options.Find().SetProjection(fields("_id")), func(doc bson.Raw) bool {
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
