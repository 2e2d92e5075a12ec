package store

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
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

// again sends a command once more whose majority lagged, without a time limit. What is done matches nothing, and the
// answer waits for all of it, as long as the caller does. It tells of the refused statements once more. What ran out of
// time is returned: it may be held.
func (b *batch) again(ctx context.Context, c command, we mongo.WriteException) (late command, err error) {
	for _, e := range we.WriteErrors {
		if e.Index >= 0 && e.Index < len(c.parts) && slices.Contains(ranOutCodes, e.Code) {
			late.add(&c, e.Index)
		}
	}
	rest := c
	if late.ids > 0 {
		rest = command{ordered: c.ordered}
		for i := range c.parts {
			if !slices.ContainsFunc(we.WriteErrors, func(e mongo.WriteError) bool { return e.Index == i && slices.Contains(ranOutCodes, e.Code) }) {
				rest.add(&c, i)
			}
		}
	}
	if rest.ids > 0 {
		_, err = b.sendOnce(ctx, rest, 0)
	}
	return late, err
}

// add adds a statement of another command.
func (c *command) add(from *command, i int) {
	c.parts, c.encoded, c.ids = append(c.parts, from.parts[i]), append(c.encoded, from.encoded[i]), c.ids+len(from.parts[i].ids)
}

// afterRouter finds the statements of a command that ran out of a router's time, and that the primaries have carried
// out all the same. These are sent again, see [batch.again]. The others are returned. Index: _id.
func (b *batch) afterRouter(ctx context.Context, late command) (left command, err error) {
	pending := map[string]bool{}
	for from := 0; from < len(late.parts); from += perLookAfter {
		if err := b.pending(ctx, late.parts[from:min(from+perLookAfter, len(late.parts))], pending); err != nil {
			return command{}, err
		}
	}
	done := command{ordered: late.ordered}
	for i := range late.parts {
		if pending[late.parts[i].ids[0]] {
			left.add(&late, i)
		} else {
			done.add(&late, i)
		}
	}
	if done.ids > 0 {
		_, err = b.sendOnce(ctx, done, 0)
	}
	return left, err
}

// perLookAfter is how many statements one look of [batch.afterRouter] is about.
const perLookAfter = 100

// pending adds the ids for which the primaries have not carried the statements out. Behind a router each statement has
// one id.
func (b *batch) pending(ctx context.Context, statements []statement, to map[string]bool) error {
	arr, clauses := bsoncore.AppendArrayStart(nil)
	var stored []string
	for i := range statements {
		st := &statements[i]
		if st.stores() { // done as soon as the document is there
			stored = append(stored, st.ids[0])
			to[st.ids[0]] = true
			if st.insert != nil {
				continue
			}
		}
		var clause int32
		clause, clauses = bsoncore.AppendDocumentElementStart(clauses, codec.Index(i))
		clauses = bsoncore.AppendStringElement(clauses, "_id", st.ids[0])
		clauses = st.guard(clauses)
		if st.undone != nil {
			clauses = st.undone(clauses)
		}
		clauses, _ = bsoncore.AppendDocumentEnd(clauses, clause)
	}
	clauses, _ = bsoncore.AppendArrayEnd(clauses, arr)
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
	if len(clauses) <= emptyArray {
		return nil
	}
	return look(bson.D{d("$or", bson.RawValue{Type: bson.TypeArray, Value: clauses})}, func(id string) { to[id] = true })
}

// emptyArray is the size of an array without elements.
const emptyArray = 5
