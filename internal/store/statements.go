package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// How guarded writes of the hot path go out: as update commands through RunCommand,
// with write concern majority and without retryable writes, whose bookkeeping costs
// the server another write for each statement (measured: 1.28 times the throughput
// without). Equal updates are one multi-document statement, so a batch of claims is one.

const (
	maxCommandBytes    = 12 << 20 // a command is one document of at most 16 MB; room for the frame
	maxStatementIDs    = 5_000
	maxStatementsShard = 1_000
	// The parts of a group that somebody's open transaction blocks get a quarter of the
	// group's time within these bounds: ten halvings of a thousand ids take less than the
	// ping interval, of which the group's time is a quarter.
	shortestHalf = 20 * time.Millisecond
	longestHalf  = 200 * time.Millisecond
)

// statement is one element of an update command's updates.
type statement struct {
	ids    []string
	guard  func(dst []byte) []byte // appends filter fields after _id
	update bsoncore.Document
}

func (st *statement) encode(dst []byte, ids []string) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	q, dst := bsoncore.AppendDocumentElementStart(dst, "q")
	if len(ids) == 1 {
		dst = bsoncore.AppendStringElement(dst, "_id", ids[0])
	} else {
		var inDoc, arr int32
		inDoc, dst = bsoncore.AppendDocumentElementStart(dst, "_id")
		arr, dst = bsoncore.AppendArrayElementStart(dst, "$in")
		for i, id := range ids {
			dst = bsoncore.AppendStringElement(dst, model.Index(i), id)
		}
		dst, _ = bsoncore.AppendArrayEnd(dst, arr)
		dst, _ = bsoncore.AppendDocumentEnd(dst, inDoc)
	}
	dst = st.guard(dst)
	dst, _ = bsoncore.AppendDocumentEnd(dst, q)
	dst = bsoncore.AppendDocumentElement(dst, "u", st.update)
	dst = bsoncore.AppendBooleanElement(dst, "multi", len(ids) > 1)
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// executed is what is known of statements that were sent.
type executed struct {
	// clean: every id was matched and nothing went wrong, which is all that an update
	// command's answer can tell; otherwise the caller must look.
	clean bool
	// refused says why the server does not do it, by id: it would not do the same again,
	// because the document would become too large, say. The others of the command are done.
	refused map[string]error
}

func (x *executed) refuse(id string, err error) {
	if x.refused == nil {
		x.refused = map[string]error{}
	}
	x.refused[id] = err
}

// execute sends the statements. Behind a router counts are not to be trusted, so nothing
// is ever clean there, and statements name one id each. An error means that nothing is
// known of any of them.
func (s *Store) execute(ctx context.Context, statements []statement, maxTime time.Duration) (x executed, err error) {
	t, err := s.Topology(ctx)
	if err != nil {
		return executed{}, err
	}
	size := maxStatementIDs
	if t.Sharded {
		size = 1
	}
	x.clean = !t.Sharded
	var worst error
	send := func(statements []statement, maxTime time.Duration) {
		for _, part := range commands(statements, size) {
			if err := s.send(ctx, part, maxTime, &x); err != nil && (worst == nil || Classify(err) > Classify(worst)) {
				worst = err
			}
		}
	}
	if maxTime == 0 {
		send(statements, 0)
		return x, worst
	}
	free, apart := s.held.apart(statements, s.local)
	send(free, maxTime)
	send(apart, min(maxTime, longestHalf))
	return x, worst
}

// command is what fits one update command: encoded statements and how many ids they name.
type command struct {
	encoded [][]byte
	parts   []statement // each with the ids it names here
	ids     int
}

func commands(statements []statement, size int) []command {
	var out []command
	var cur command
	bytes := 0
	for _, st := range statements {
		for ids := range slices.Chunk(st.ids, size) {
			enc := st.encode(nil, ids)
			if len(cur.encoded) > 0 && (bytes+len(enc) > maxCommandBytes || len(cur.encoded) >= maxStatementsShard) {
				out, cur, bytes = append(out, cur), command{}, 0
			}
			cur.encoded = append(cur.encoded, enc)
			cur.parts = append(cur.parts, statement{ids: ids, guard: st.guard, update: st.update})
			cur.ids += len(ids)
			bytes += len(enc) + 16
		}
	}
	if len(cur.encoded) > 0 {
		out = append(out, cur)
	}
	return out
}

// send carries out one command and adds to x what is known then. Where a document is held,
// by somebody's open transaction say, the others must not wait for it: halves isolate it,
// and it is simply not written. What was written before is not matched again.
func (s *Store) send(ctx context.Context, c command, maxTime time.Duration, x *executed) error {
	late, err := s.sendOnce(ctx, c, maxTime, x)
	if err != nil || late.ids == 0 {
		return err
	}
	return s.sendHalves(ctx, late, min(max(maxTime/4, shortestHalf), longestHalf), x)
}

// sendOnce sends the command, and returns what of it ran out of the time it was given.
func (s *Store) sendOnce(ctx context.Context, c command, maxTime time.Duration, x *executed) (late command, err error) {
	arr, updates := bsoncore.AppendArrayStart(nil)
	for i, enc := range c.encoded {
		updates = bsoncore.AppendDocumentElement(updates, model.Index(i), enc)
	}
	updates, _ = bsoncore.AppendArrayEnd(updates, arr)
	cmd := bson.D{
		d("update", s.tasks.Name()), d("updates", bson.RawValue{Type: bson.TypeArray, Value: updates}), d("ordered", false),
		d("writeConcern", bson.D{d("w", "majority")}),
	}
	call := naming(ctx, c.ids)
	if maxTime > 0 {
		cmd = append(cmd, d("maxTimeMS", ms(maxTime)))
		call = ownTimeLimit{call}
	}
	var reply struct {
		N int `bson:"n"`
	}
	err = s.db.RunCommand(call, cmd).Decode(&reply)
	x.clean = x.clean && err == nil && reply.N == c.ids
	limited := maxTime > 0 && ctx.Err() == nil
	var we mongo.WriteException
	switch {
	case limited && isTimeLimit(err):
		return c, nil
	case !errors.As(err, &we) || we.WriteConcernError == nil && len(we.WriteErrors) == 0:
		return command{}, explain(err, "writing tasks")
	case we.WriteConcernError == nil: // the command was carried out; single statements were not
		return s.refused(ctx, c, we, maxTime, x)
	case limited && we.WriteConcernError.Code == maxTimeExpired && len(we.WriteErrors) == 0:
		// Nothing held it: the primary has done it, and the time passed while the majority
		// lagged. The same again matches nothing that is done, and its answer waits for all
		// of it, as long as the caller does.
		return s.sendOnce(ctx, c, 0, x)
	default:
		// Not known to last: to be repeated, and that tells of the statements.
		return command{}, explain(mongo.WriteException{WriteConcernError: we.WriteConcernError, Labels: we.Labels}, "writing tasks")
	}
}

// ownTimeLimit is the context of a command that says its maxTimeMS itself. The driver
// writes a second one wherever the context has a deadline, or the caller's client a
// timeout, and MongoDB refuses a field that is there twice (40413). It leaves it out for
// a deadline beyond what maxTimeMS can say; the context still ends when it ends.
type ownTimeLimit struct{ context.Context }

// Far beyond 25 days, near enough for the driver to subtract from.
var beyondMaxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Deadline implements [context.Context].
func (ownTimeLimit) Deadline() (time.Time, bool) { return beyondMaxTime, true }

func (s *Store) sendHalves(ctx context.Context, c command, maxTime time.Duration, x *executed) error {
	if c.ids == 1 {
		s.held.note(c.parts[0].ids[0], s.local)
		return nil
	}
	var worst error
	for _, h := range c.halve() {
		late, err := s.sendOnce(ctx, h, maxTime, x)
		if err == nil && late.ids > 0 {
			err = s.sendHalves(ctx, late, maxTime, x)
		}
		if err != nil {
			worst = err
		}
	}
	return worst
}

// halve splits the command's ids in two; nil when there is only one.
func (c command) halve() []command {
	if c.ids < 2 {
		return nil
	}
	var a, b command
	for _, st := range c.parts {
		for _, id := range st.ids {
			half := &a
			if a.ids >= c.ids/2 {
				half = &b
			}
			if n := len(half.parts); n > 0 && sameStatement(half.parts[n-1], st) {
				half.parts[n-1].ids = append(half.parts[n-1].ids, id)
			} else {
				half.parts = append(half.parts, statement{ids: []string{id}, guard: st.guard, update: st.update})
			}
			half.ids++
		}
	}
	for _, half := range []*command{&a, &b} {
		for i := range half.parts {
			half.encoded = append(half.encoded, half.parts[i].encode(nil, half.parts[i].ids))
		}
	}
	return []command{a, b}
}

// sameStatement compares by identity: parts of one statement share its update's bytes.
func sameStatement(a, b statement) bool { return &a.update[0] == &b.update[0] }

// isTimeLimit says whether a whole command ran out of its maxTimeMS.
func isTimeLimit(err error) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && command.Code == maxTimeExpired
}

// refused takes in that single statements of a command were not carried out. What a second
// look settles is left to that. What the server would say of any statement is the error.
// What it says of one document is for that one: halves of the statement find it, and
// the others of the statement are written. A router says of each statement what its shard
// says of the whole command, so what ran out of time is returned.
func (s *Store) refused(ctx context.Context, c command, we mongo.WriteException, maxTime time.Duration, x *executed) (late command, err error) {
	var everybodys mongo.WriteErrors
	var apart []command
	for _, e := range we.WriteErrors {
		inside := e.Index >= 0 && e.Index < len(c.parts)
		switch {
		case inside && maxTime > 0 && e.Code == maxTimeExpired:
			late.parts = append(late.parts, c.parts[e.Index])
			late.ids += len(c.parts[e.Index].ids)
		case inside && maxTime > 0 && e.Code == writeConflict: // looked at again
		case !inside || ofDeployment(e.Code):
			everybodys = append(everybodys, e)
		default:
			st := c.parts[e.Index]
			if len(st.ids) == 1 {
				x.refuse(st.ids[0], &FatalError{Reason: "writing task " + st.ids[0], Err: e})
				continue
			}
			apart = append(apart, command{parts: []statement{st}, ids: len(st.ids)}.halve()...)
		}
	}
	if len(everybodys) > 0 {
		return command{}, explain(mongo.WriteException{WriteErrors: everybodys, Labels: we.Labels}, "writing tasks")
	}
	for _, half := range apart {
		if err := s.send(ctx, half, maxTime, x); err != nil {
			return command{}, err
		}
	}
	return late, nil
}
