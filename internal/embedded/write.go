package embedded

import (
	"encoding/binary"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// target is where the command writes. Of a retryable command it returns what an
// earlier attempt did, nil for none; and what it did itself, as result tells at
// the end of each section that wrote something, is remembered with the writes.
func (r *request) target(ns string, result func() *storage.Retry) (*target, *storage.Retry) {
	t := &target{Writer: r.s.store.Writer(r.ctx, r.txn), s: r.s, ctx: r.ctx, ns: ns, inTxn: r.txn != nil}
	if r.txnNumber < 0 || r.inTxn {
		return t, nil
	}
	t.Remember = func() (string, *storage.Retry) {
		v := result()
		if v != nil {
			v.TxnNumber = r.txnNumber
		}
		return r.session.key, v
	}
	if v := r.s.store.Retry(r.session.key); v != nil && v.TxnNumber == r.txnNumber {
		return t, v
	}
	return t, nil
}

// maxErrorText bounds what the errors of a batch say together: those behind are
// only their codes, as in MongoDB, so that the answer fits a message.
const maxErrorText = 1 << 20

// shortBatch bounds the statements of a short command, and the documents of each. Short commands go before
// longer ones.
const shortBatch = 8

// batch runs the statements of an insert, update or delete one after the other
// and answers what they did.
func (r *request) batch(array string, statement func(*target, bson.Raw) (outcome, error)) (d *docBuilder, err error) {
	ns, docs := r.namespace(), r.list(array)
	ordered := r.given("ordered").Type == 0 || r.boolean("ordered")
	if r.err == nil && (len(docs) == 0 || len(docs) > wire.MaxBatch) {
		r.fail(mongoerr.New(mongoerr.InvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.",
			wire.MaxBatch, len(docs)))
	}
	if r.err != nil {
		return nil, r.err
	}
	var done storage.Retry
	t, earlier := r.target(ns, func() *storage.Retry { return &done })
	if earlier != nil {
		done.Done = slices.Clone(earlier.Done)
	}
	t.Long = len(docs) > shortBatch
	defer t.FinishWith(&err)
	n, modified := 0, 0
	upserted, failed := newDoc(), newDoc() // elements of arrays
	for i, doc := range docs {
		did, again := earlier.Find(int32(i))
		if !again {
			t.Pause()
			out, err := statement(t, doc)
			if err != nil {
				e := asMongo(err)
				if endsCommand(e) {
					return nil, e
				}
				failed.openDoc(arrayKey(failed.n)).int32("index", i).int32("code", int(e.Code))
				if len(failed.b) > maxErrorText {
					e = &mongoerr.Error{}
				}
				failed.elements(e.Details).string("errmsg", e.Message).close()
				failed.n++
				if ordered {
					break
				}
				continue
			}
			did = storage.Statement{N: int32(out.n), Modified: int32(out.modified), Upserted: out.upserted}
			if t.Remember != nil && out.n > 0 {
				done.Add(int32(i), did)
			}
		}
		n += int(did.N)
		modified += int(did.Modified)
		if did.Upserted.Type != 0 {
			upserted.openDoc(arrayKey(upserted.n)).int32("index", i).value("_id", did.Upserted).close()
			upserted.n++
		}
	}
	r.failedWrite = failed.n > 0
	d = newDoc().int32("n", n)
	if r.of == "update" {
		d.int32("nModified", modified)
	}
	return d.arrayOf("upserted", upserted).arrayOf("writeErrors", failed), nil
}

// endsCommand reports whether an error ends the command and is no single
// statement's.
func endsCommand(e *mongoerr.Error) bool {
	switch e.Code {
	case mongoerr.MaxTimeMSExpired, mongoerr.Interrupted, mongoerr.InterruptedAtShutdown, mongoerr.WriteConflict,
		mongoerr.NoSuchTransaction, mongoerr.TransactionTooLarge, mongoerr.InternalError, mongoerr.OutOfDiskSpace:
		return true
	}
	return false
}

func runInsert(r *request) (*docBuilder, error) {
	return r.batch("documents", func(t *target, doc bson.Raw) (outcome, error) {
		doc, err := t.s.prepareInsert(doc)
		if err != nil {
			return outcome{}, err
		}
		return outcome{n: 1}, t.Insert(t.ns, doc)
	})
}

func runUpdate(r *request) (*docBuilder, error) { return r.statements("updates", parseUpdate) }

func runDelete(r *request) (*docBuilder, error) { return r.statements("deletes", parseDelete) }

func (r *request) statements(array string, parse func(bson.Raw) (*statement, error)) (*docBuilder, error) {
	return r.batch(array, func(t *target, doc bson.Raw) (outcome, error) {
		st, err := parse(doc)
		if err == nil && st.multi && t.Remember != nil {
			err = mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with multi=true or limit=0")
		}
		if err != nil {
			return outcome{}, err
		}
		return st.run(t)
	})
}

// prepareInsert returns a copy of a document to be stored: with an _id, as its
// first field, and with the server's times for empty timestamps: each has its own.
func (s *Server) prepareInsert(doc bson.Raw) (bson.Raw, error) {
	size := len(doc)
	id, ok := value.Lookup(doc, "_id")
	if !ok {
		oid := bson.NewObjectID()
		id = bson.RawValue{Type: bson.TypeObjectID, Value: oid[:]}
		size += len("_id") + 2 + len(oid)
	}
	if err := query.CheckStorable(doc, id); err != nil {
		return nil, err
	}
	at, dst := value.Begin(make([]byte, 0, size))
	dst = value.AppendElement(dst, "_id", id)
	for it := value.NewIter(doc); it.Next(); {
		switch {
		case string(it.Key) == "_id":
		case it.Value.Type == bson.TypeTimestamp && binary.LittleEndian.Uint64(it.Value.Value) == 0:
			now := s.store.Tick()
			dst = bsoncore.AppendTimestampElement(dst, string(it.Key), now.T, now.I)
		default:
			dst = append(dst, it.Element()...)
		}
	}
	return value.End(dst, at), nil
}

// findAndModify is a statement about one document whose answer shows it.
type findAndModify struct {
	statement
	remove, after bool
}

func (r *request) findAndModify() (f findAndModify) {
	f.statement = statement{filter: r.filter("query"), sort: r.sort("sort"), hint: r.get("hint"), upsert: r.boolean("upsert")}
	f.remove, f.after = r.boolean("remove"), r.boolean("new")
	updates := r.get("update").Type != 0
	switch {
	case f.remove && r.get("arrayFilters").Type != 0:
		r.fail(mongoerr.New(mongoerr.FailedToParse, "Cannot specify arrayFilters and remove=true"))
	case f.remove && (updates || f.upsert || f.after):
		r.fail(mongoerr.New(mongoerr.FailedToParse, "Cannot specify both an update, upsert or new=true and remove=true"))
	case !f.remove && !updates:
		r.fail(mongoerr.New(mongoerr.FailedToParse, "Either an update or remove=true must be specified"))
	case !f.remove:
		f.update = r.update("update")
	}
	return f
}

func runFindAndModify(r *request) (_ *docBuilder, err error) {
	ns, f, projection := r.namespace(), r.findAndModify(), r.projection("fields")
	if r.err != nil {
		return nil, r.err
	}
	// The answer is made before the section ends that wrote: it is remembered with it.
	var done *storage.Retry
	t, earlier := r.target(ns, func() *storage.Retry { return done })
	if earlier != nil && earlier.Reply != nil {
		return newDoc().elements(earlier.Reply), nil
	}
	defer t.FinishWith(&err)
	out, err := f.run(t)
	shown := out.before
	if f.after {
		shown = out.after
	}
	d := newDoc().openDoc("lastErrorObject").int32("n", out.n)
	if !f.remove {
		d.bool("updatedExisting", out.n > 0 && out.upserted.Type == 0)
		if out.upserted.Type != 0 {
			d.value("upserted", out.upserted)
		}
	}
	if d.close(); shown == nil {
		d.null("value")
	} else {
		d.doc("value", projection.Apply(shown))
	}
	done = &storage.Retry{Reply: d.end()}
	return newDoc().elements(done.Reply), err
}
