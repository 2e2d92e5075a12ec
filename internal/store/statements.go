package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// How guarded writes of the hot path go out: as update and delete commands through
// RunCommand, with write concern majority and without retryable writes, whose bookkeeping
// costs the server another write for each statement (measured: 1.28 times the throughput
// without). Equal updates are one multi-document statement, so a batch of claims is one.

const (
	maxCommandBytes    = 12 << 20 // a command is one document of at most 16 MB; room for the frame
	maxStatementIDs    = 5_000
	maxStatementsShard = 1_000
	// The server carries the statements of one command out one after the other, on one of
	// its threads. So many statements are sent as several commands at once.
	manyStatements   = 250
	statementsAtOnce = 4
)

// statement is one element of a command's updates, deletes or documents.
type statement struct {
	ids    []string
	guard  func(dst []byte) []byte // appends filter fields after _id
	update bsoncore.Document       // nil = the document is deleted
	insert bson.Raw                // the new document, instead of guard and update
	upsert bool                    // the update makes the document where there is none
	byID   bool                    // the update goes by _id, although the guard has a field with an index of its own
	// undone appends what else is true of a document that the update has not changed yet, where the guard alone
	// does not tell; nil = it does, or nothing tells.
	undone func(dst []byte) []byte
}

// stores reports whether the document is stored once the statement was carried out: it counts without
// a document to match.
func (st *statement) stores() bool { return st.insert != nil || st.upsert }

// only is the statement for some of its ids.
func (st *statement) only(ids ...string) statement {
	return statement{ids: ids, guard: st.guard, update: st.update, insert: st.insert, upsert: st.upsert, byID: st.byID, undone: st.undone}
}

func (st *statement) encode(ids []string) []byte {
	if st.insert != nil {
		return st.insert
	}
	start, dst := bsoncore.AppendDocumentStart(nil)
	q, dst := bsoncore.AppendDocumentElementStart(dst, "q")
	dst = st.appendIDs(dst, ids)
	dst = st.guard(dst)
	dst, _ = bsoncore.AppendDocumentEnd(dst, q)
	if st.update != nil {
		dst = bsoncore.AppendDocumentElement(dst, "u", st.update)
		dst = bsoncore.AppendBooleanElement(dst, "multi", len(ids) > 1)
		if st.upsert {
			dst = bsoncore.AppendBooleanElement(dst, "upsert", true)
		}
		if st.byID {
			dst = bsoncore.AppendStringElement(dst, "hint", "_id_")
		}
	} else {
		dst = bsoncore.AppendInt32Element(dst, "limit", 0)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// appendIDs adds the condition on the ids.
func (st *statement) appendIDs(dst []byte, ids []string) []byte {
	if len(ids) == 1 {
		return bsoncore.AppendStringElement(dst, "_id", ids[0])
	}
	inDoc, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	arr, dst := bsoncore.AppendArrayElementStart(dst, "$in")
	for i, id := range ids {
		dst = bsoncore.AppendStringElement(dst, codec.Index(i), id)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, arr)
	dst, _ = bsoncore.AppendDocumentEnd(dst, inDoc)
	return dst
}

// command is what fits one command of the server: encoded statements and how many ids
// they name.
type command struct {
	encoded [][]byte
	parts   []statement // each with the ids it names here
	ids     int
	ordered bool // a statement that fails ends it
	awaited bool // the primaries have carried it out: its answer is to wait for the majority
}

func (c *command) bytes() (n int) {
	for _, enc := range c.encoded {
		n += len(enc)
	}
	return n
}

func (c *command) each(f func(id string)) {
	for _, st := range c.parts {
		for _, id := range st.ids {
			f(id)
		}
	}
}

// mayBeDone says whether a part of the command may be carried out, if the error is its answer. A router may have errors of
// single statements, those of one shard.
func (c *command) mayBeDone(err error) bool {
	var we mongo.WriteException
	if !errors.As(err, &we) || we.WriteConcernError != nil {
		return Classify(err) != Retry
	}
	began := func(e mongo.WriteError) bool { return !slices.Contains(notBegunCodes, e.Code) }
	return len(we.WriteErrors) < len(c.parts) || slices.ContainsFunc(we.WriteErrors, began)
}

func commands(statements []statement, size int) []command {
	var out []command
	var cur command
	bytes := 0
	for _, st := range statements {
		most := maxStatementsShard
		if st.insert != nil {
			most = maxStatementIDs
		}
		for ids := range slices.Chunk(st.ids, size) {
			enc := st.encode(ids)
			if len(cur.encoded) > 0 && (bytes+len(enc) > maxCommandBytes || len(cur.encoded) >= most) {
				out, cur, bytes = append(out, cur), command{}, 0
			}
			cur.encoded = append(cur.encoded, enc)
			cur.parts = append(cur.parts, st.only(ids...))
			cur.ids += len(ids)
			bytes += len(enc) + 16
		}
	}
	if len(cur.encoded) > 0 {
		out = append(out, cur)
	}
	return out
}

// spread divides updates of many statements among the server's threads. Inserts have no
// statement each.
func spread(all []command) []command {
	var out []command
	for _, c := range all {
		n := max(1, min(len(c.parts)/manyStatements, statementsAtOnce))
		if c.parts[0].update == nil {
			n = 1
		}
		size := (len(c.parts) + n - 1) / n
		for from := 0; from < len(c.parts); from += size {
			to := min(from+size, len(c.parts))
			part := command{encoded: c.encoded[from:to], parts: c.parts[from:to]}
			for _, st := range part.parts {
				part.ids += len(st.ids)
			}
			out = append(out, part)
		}
	}
	return out
}

// split divides the command's ids among at most n commands of about equal size. With apart, each statement has one
// id, as behind a router.
func (c command) split(n int, apart bool) []command {
	size := max((c.ids+n-1)/n, 1)
	var out []command
	for _, st := range c.parts {
		for _, id := range st.ids {
			if len(out) == 0 || out[len(out)-1].ids >= size {
				out = append(out, command{})
			}
			part := &out[len(out)-1]
			if n := len(part.parts); n > 0 && !apart && sameStatement(&part.parts[n-1], &st) {
				part.parts[n-1].ids = append(part.parts[n-1].ids, id)
			} else {
				part.parts = append(part.parts, st.only(id))
			}
			part.ids++
		}
	}
	for i := range out {
		for j := range out[i].parts {
			out[i].encoded = append(out[i].encoded, out[i].parts[j].encode(out[i].parts[j].ids))
		}
	}
	return out
}

// sameStatement compares by identity: parts of one statement share its update's bytes.
func sameStatement(a, b *statement) bool {
	return len(a.update) > 0 && len(b.update) > 0 && &a.update[0] == &b.update[0]
}

// executed is the knowledge about statements that were sent.
type executed struct {
	// clean: every id was matched and nothing went wrong, which is all that an update
	// command's answer can tell; otherwise the caller must look at the unsure.
	clean bool
	// matched is how many documents the commands matched or deleted that were carried out
	// as a whole.
	matched int
	// exact: what matched counts was written, which a router does not vouch for.
	exact bool
	// unsure are the ids that are not known to be written; nil = all of them.
	unsure map[string]bool
	// held are the ids that were not written because somebody else holds the document, or
	// because the time ran out in which that was to be found out.
	held map[string]bool
	// refused is why the server refuses the write, by id. It would refuse it again,
	// because the document would become too large, say. The others of the command are done.
	refused map[string]error
	// exists are the ids of inserts whose documents existed, perhaps since a command that
	// ran out of time; late are the ids that were in such a command.
	exists, late map[string]bool
}

// done reports whether the write of the id is known to be carried out.
func (x *executed) done(id string) bool {
	return x.clean || x.unsure != nil && !x.unsure[id]
}

// sendOnce sends the command, and returns what of it ran out of the time it was given, and was not carried
// out as far as is known. limit 0 = as long as it takes.
func (b *batch) sendOnce(ctx context.Context, c command, limit time.Duration) (late command, err error) {
	late, err = b.sendWithin(ctx, c, limit)
	if err == nil && late.ids > 0 && b.sharded {
		return b.afterRouter(ctx, late)
	}
	return late, err
}

// sendWithin is sendOnce, but for what a router answers before its shard does.
func (b *batch) sendWithin(ctx context.Context, c command, limit time.Duration) (late command, err error) {
	call := naming(ctx, c.ids)
	if limit > 0 {
		bounded, cancel := context.WithTimeout(call, limit+answerPatience)
		defer cancel()
		call = ownTimeLimit{bounded}
	}
	began := b.s.local.Monotonic()
	n, err := b.run(call, c, limit)
	took := b.s.local.Monotonic() - began
	b.mayBegin(&c, err)
	clean := err == nil && n == c.ids && (!b.sharded || c.parts[0].stores()) // those are not counted
	b.answered(&c, clean)
	limited := limit > 0 && ctx.Err() == nil
	var we mongo.WriteException
	switch {
	case err == nil:
		b.matched(n)
		b.s.pace.saw(c.ids, took)
		b.s.held.free(b.coll, &c)
		return command{}, nil
	case limit > 0 && isTimeLimit(err): // an answer of the server, also where the caller gives up
		b.ranOut(&c)
		return c, nil
	case !errors.As(err, &we) || we.WriteConcernError == nil && len(we.WriteErrors) == 0:
		return command{}, explain(err, b.doing+"s")
	case limited && b.lags(we) && c.parts[0].insert != nil && onlyDuplicates(we) && !b.sharded:
		return command{}, b.insertedLate(ctx, c, we)
	case we.WriteConcernError == nil: // the command was carried out; single statements were not
		return b.refused(ctx, c, we, limit)
	case limited && b.lags(we) && c.awaited: // on one shard, perhaps: the others have their majority
		late, done, err := b.divide(ctx, b.s.durable(b.coll), c)
		if c.parts[0].insert != nil {
			done.each(b.existed) // it was there before this command
		}
		return late, err
	case limited && b.lags(we):
		return b.again(ctx, c, we)
	default:
		// Not known to last: to be repeated, and that tells of the statements.
		return command{}, explain(mongo.WriteException{WriteConcernError: we.WriteConcernError, Labels: we.Labels}, b.doing+"s")
	}
}

// run sends the command and returns how many documents it matched, inserted or deleted.
func (b *batch) run(ctx context.Context, c command, limit time.Duration) (n int, err error) {
	defer func() { err = timeUp(ctx, err) }()
	verb, elements := "update", "updates"
	switch first := c.parts[0]; {
	case first.insert != nil && b.coll.Name() == b.s.tasks.Name():
		return b.insertTasks(ctx, c, limit)
	case first.insert != nil:
		verb, elements = "insert", "documents"
	case first.update == nil:
		verb, elements = "delete", "deletes"
	}
	arr, statements := bsoncore.AppendArrayStart(nil)
	for i, enc := range c.encoded {
		statements = bsoncore.AppendDocumentElement(statements, codec.Index(i), enc)
	}
	statements, _ = bsoncore.AppendArrayEnd(statements, arr)
	cmd := bson.D{
		d(verb, b.coll.Name()), d(elements, bson.RawValue{Type: bson.TypeArray, Value: statements}), d("ordered", c.ordered),
		d("writeConcern", bson.D{d("w", "majority")}),
	}
	if limit > 0 {
		cmd = append(cmd, d("maxTimeMS", ms(limit)))
	}
	var reply struct {
		N int `bson:"n"`
	}
	err = b.s.db.RunCommand(ctx, cmd).Decode(&reply)
	return reply.N, err
}

// answerPatience is how much longer than its time limit a command may take on its way,
// the selection of a server included.
const answerPatience = 40 * time.Second

// ranOut says whether an error says, in any form, that the time ran out: of a router it may come with the
// statement, and of the driver before the command is sent.
func ranOut(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &server) && slices.ContainsFunc(ranOutCodes, server.HasErrorCode)
}

// isTimeLimit says whether a whole command ran out of its maxTimeMS.
func isTimeLimit(err error) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && slices.Contains(ranOutCodes, int(command.Code))
}

// refused takes in that single statements of a command were not carried out. What a second
// look settles is left to that. What the server would say of any statement is the error.
// What it says of one document is for that one: halves of the statement find it, and
// the others of the statement are written. A router says of each statement what its shard
// says of the whole command, so what ran out of time is returned.
func (b *batch) refused(ctx context.Context, c command, we mongo.WriteException, limit time.Duration) (late command, err error) {
	var everybodys mongo.WriteErrors
	var apart []command
	failed := map[int]bool{}
	for _, e := range we.WriteErrors {
		inside := e.Index >= 0 && e.Index < len(c.parts)
		failed[e.Index] = true
		switch {
		case inside && limit > 0 && slices.Contains(ranOutCodes, e.Code):
			late.add(&c, e.Index)
		case inside && c.parts[e.Index].insert != nil && e.Code == duplicateKey:
			b.existed(c.parts[e.Index].ids[0])
		case inside && limit > 0 && e.Code == writeConflict: // looked at again
		case !inside || ofDeployment(e.Code):
			everybodys = append(everybodys, e)
		default:
			st := c.parts[e.Index]
			if len(st.ids) == 1 {
				b.refuse(st.ids[0], &FatalError{Reason: b.doing + " " + st.ids[0], Err: e})
				continue
			}
			apart = append(apart, command{parts: []statement{st}, ids: len(st.ids)}.split(2, b.sharded)...)
		}
	}
	if len(everybodys) > 0 {
		return command{}, explain(mongo.WriteException{WriteErrors: everybodys, Labels: we.Labels}, b.doing+"s")
	}
	b.inserted(&c, failed)
	b.ranOut(&late)
	for _, half := range apart {
		slow, err := b.sendOnce(ctx, half, limit)
		if err != nil {
			return command{}, err
		}
		late.parts, late.encoded, late.ids = append(late.parts, slow.parts...), append(late.encoded, slow.encoded...), late.ids+slow.ids
	}
	return late, nil
}
