package embedded

import (
	"encoding/binary"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// batch runs the statements of an insert, update or delete one after the other
// and gathers what they did.
type batch struct {
	r       *request
	w       *storage.Writer
	ns      string
	ordered bool

	retry    *storage.Retry // what an earlier attempt did; nil for none
	done     []storage.Statement
	n        int
	modified int
	upserted []upsertedID
	errors   []writeError
}

type upsertedID struct {
	index int
	id    bson.RawValue
}

type writeError struct {
	index int
	err   *mongoerr.Error
}

// result is what one statement did. One that failed half way does not say how
// far it came.
type result struct {
	n, modified int
	upserted    bson.RawValue // type 0: nothing
}

func (r *request) newBatch() (*batch, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	b := &batch{r: r, ns: ns, ordered: true, w: r.s.store.Writer(r.ctx, r.txn)}
	if r.get("ordered").Type != 0 {
		if b.ordered, err = r.boolean("ordered"); err != nil {
			return nil, err
		}
	}
	if r.txnNumber >= 0 && !r.inTxn {
		if v := r.s.store.Retry(r.session.key); v != nil && v.TxnNumber == r.txnNumber {
			b.retry = v
			b.done = slices.Clip(v.Done)
		}
		b.w.Remember = func() (string, *storage.Retry) {
			return r.session.key, &storage.Retry{TxnNumber: r.txnNumber, Done: b.done}
		}
	}
	return b, nil
}

// run runs a batch of n statements.
func (b *batch) run(n int, statement func(i int) (result, error)) error {
	if n == 0 || n > wire.MaxBatch {
		return mongoerr.New(mongoerr.InvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.", wire.MaxBatch, n)
	}
	for i := range n {
		if b.replay(i) {
			continue
		}
		b.w.Pause()
		res, err := statement(i)
		if err == nil {
			b.n += res.n
			b.modified += res.modified
			if res.upserted.Type != 0 {
				b.upserted = append(b.upserted, upsertedID{i, res.upserted})
			}
			if b.w.Remember != nil && res.n > 0 {
				b.done = append(b.done, storage.Statement{ID: int32(i), N: int32(res.n), Modified: int32(res.modified), Upserted: res.upserted})
			}
			continue
		}
		e := asMongo(err)
		if fatal(e) {
			_ = b.w.Finish() // the first error says more
			return e
		}
		b.errors = append(b.errors, writeError{i, e})
		if b.ordered {
			break
		}
	}
	b.r.failedWrite = len(b.errors) > 0
	return b.w.Finish()
}

// fatal reports whether an error ends the command and is no single statement's.
func fatal(e *mongoerr.Error) bool {
	switch e.Code {
	case mongoerr.MaxTimeMSExpired, mongoerr.Interrupted, mongoerr.InterruptedAtShutdown, mongoerr.WriteConflict,
		mongoerr.NoSuchTransaction, mongoerr.TransactionTooLarge, mongoerr.InternalError, mongoerr.OutOfDiskSpace:
		return true
	}
	return false
}

// replay counts a statement that an earlier attempt of the command carried out.
func (b *batch) replay(i int) bool {
	if b.retry == nil {
		return false
	}
	s, ok := b.retry.Find(int32(i))
	if !ok {
		return false
	}
	b.n += int(s.N)
	b.modified += int(s.Modified)
	if s.Upserted.Type != 0 {
		b.upserted = append(b.upserted, upsertedID{i, s.Upserted})
	}
	return true
}

func (b *batch) reply(modified bool) *docBuilder {
	d := newDoc().int32("n", b.n)
	if modified {
		d.int32("nModified", b.modified)
	}
	if len(b.upserted) > 0 {
		d.openArray("upserted")
		for i, u := range b.upserted {
			d.openDoc(arrayKey(i)).int32("index", u.index).value("_id", u.id).close()
		}
		d.close()
	}
	if len(b.errors) > 0 {
		d.openArray("writeErrors")
		for i, e := range b.errors {
			d.openDoc(arrayKey(i)).int32("index", e.index).int32("code", int(e.err.Code)).string("errmsg", e.err.Message).close()
		}
		d.close()
	}
	return d
}

func runInsert(r *request) (*docBuilder, error) {
	docs, err := r.list("documents")
	if err != nil {
		return nil, err
	}
	b, err := r.newBatch()
	if err != nil {
		return nil, err
	}
	err = b.run(len(docs), func(i int) (result, error) {
		doc, err := r.s.prepareInsert(docs[i])
		if err != nil {
			return result{}, err
		}
		if err := b.w.Insert(b.ns, doc); err != nil {
			return result{}, err
		}
		return result{n: 1}, nil
	})
	if err != nil {
		return nil, err
	}
	return b.reply(false), nil
}

// prepareInsert returns a copy of a document to be stored: with an _id, as its
// first field, and with the server's time for empty timestamps.
func (s *Server) prepareInsert(doc bson.Raw) (bson.Raw, error) {
	if len(doc) > wire.MaxDocument {
		return nil, mongoerr.New(mongoerr.BSONObjectTooLarge, "object to insert too large. size in bytes: %d, max size: %d", len(doc), wire.MaxDocument)
	}
	id, ok := value.Lookup(doc, "_id")
	if !ok {
		oid := bson.NewObjectID()
		id = bson.RawValue{Type: bson.TypeObjectID, Value: oid[:]}
	}
	switch id.Type {
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return nil, mongoerr.New(mongoerr.InvalidIDField, "The '_id' value cannot be of type %s", id.Type)
	}
	dst := make([]byte, 0, len(doc)+len(id.Value)+6)
	at, dst := value.Begin(dst)
	dst = value.AppendElement(dst, "_id", id)
	for it := value.NewIter(doc); it.Next(); {
		switch {
		case string(it.Key) == "_id":
		case len(it.Key) > 0 && it.Key[0] == '$': // an error before MongoDB 5.0
			return nil, mongoerr.NotImplemented("a field name starting with $ (" + string(it.Key) + ") in a document")
		case it.Value.Type == bson.TypeTimestamp && binary.LittleEndian.Uint64(it.Value.Value) == 0:
			now := s.store.ClusterTime()
			dst = bsoncore.AppendTimestampElement(dst, string(it.Key), now.T, now.I)
		default:
			dst = append(dst, it.Element()...)
		}
	}
	return value.End(dst, at), nil
}

func runDelete(r *request) (*docBuilder, error) {
	statements, err := r.list("deletes")
	if err != nil {
		return nil, err
	}
	b, err := r.newBatch()
	if err != nil {
		return nil, err
	}
	err = b.run(len(statements), func(i int) (result, error) {
		d, err := r.parseDelete(statements[i])
		if err != nil {
			return result{}, err
		}
		if d.multi && b.w.Remember != nil {
			return result{}, mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with limit=0")
		}
		n, err := d.run(b.w, b.ns, r.ctx)
		return result{n: n}, err
	})
	if err != nil {
		return nil, err
	}
	return b.reply(false), nil
}

func runUpdate(r *request) (*docBuilder, error) {
	statements, err := r.list("updates")
	if err != nil {
		return nil, err
	}
	b, err := r.newBatch()
	if err != nil {
		return nil, err
	}
	err = b.run(len(statements), func(i int) (result, error) {
		u, err := r.parseUpdate(statements[i])
		if err != nil {
			return result{}, err
		}
		if u.multi && b.w.Remember != nil {
			return result{}, mongoerr.New(mongoerr.InvalidOptions, "Cannot use retryable writes with multi=true")
		}
		return u.run(b.w, b.ns, r)
	})
	if err != nil {
		return nil, err
	}
	return b.reply(true), nil
}
