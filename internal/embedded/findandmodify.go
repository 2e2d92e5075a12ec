package embedded

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// findAndModify is one such command.
type findAndModify struct {
	updating
	remove, after bool
	projection    *query.Projection
}

func runFindAndModify(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	f, err := r.parseFindAndModify()
	if err != nil {
		return nil, err
	}
	w := r.s.store.Writer(r.ctx, r.txn)
	var reply bson.Raw
	if r.txnNumber >= 0 && !r.inTxn {
		if v := r.s.store.Retry(r.session.key); v != nil && v.TxnNumber == r.txnNumber && v.Reply != nil {
			return replyOf(v.Reply), nil
		}
		w.Remember = func() (string, *storage.Retry) {
			return r.session.key, &storage.Retry{TxnNumber: r.txnNumber, Reply: reply}
		}
	}
	// The reply is made before the section ends that wrote: it is remembered with it.
	reply, err = f.run(w, ns, r)
	if e := w.Finish(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return replyOf(reply), nil
}

// replyOf makes a reply of remembered fields.
func replyOf(fields bson.Raw) *docBuilder {
	d := newDoc()
	for it := value.NewIter(fields); it.Next(); {
		d.value(string(it.Key), it.Value)
	}
	return d
}

func (r *request) parseFindAndModify() (*findAndModify, error) {
	f := &findAndModify{}
	var err error
	if f.filter, err = r.filter("query"); err != nil {
		return nil, err
	}
	if f.sort, err = r.sort("sort"); err != nil {
		return nil, err
	}
	f.hint = r.get("hint")
	for name, to := range map[string]*bool{"remove": &f.remove, "new": &f.after, "upsert": &f.upsert} {
		if *to, err = r.boolean(name); err != nil {
			return nil, err
		}
	}
	fields, err := r.document("fields")
	if err != nil {
		return nil, err
	}
	if f.projection, err = query.CompileProjection(fields); err != nil {
		return nil, err
	}
	update := r.get("update")
	switch {
	case f.remove && (update.Type != 0 || f.upsert || f.after):
		return nil, mongoerr.New(mongoerr.FailedToParse, "Cannot specify both an update, upsert or new=true and remove=true")
	case f.remove:
		return f, nil
	case update.Type == 0:
		return nil, mongoerr.New(mongoerr.FailedToParse, "Either an update or remove=true must be specified")
	}
	var arrayFilters []bson.Raw
	if v := r.get("arrayFilters"); v.Type != 0 {
		if arrayFilters, err = r.listOf("arrayFilters", v); err != nil {
			return nil, err
		}
	}
	f.update, err = compileUpdate(update, arrayFilters)
	return f, err
}

// run returns the fields of the reply.
func (f *findAndModify) run(w *storage.Writer, ns string, r *request) (bson.Raw, error) {
	if f.remove {
		return f.runRemove(w, ns, r)
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		var got applied
		n, err := f.write(w, ns, r, func(a applied) { got = a })
		if err != nil {
			return nil, err
		}
		if n > 0 {
			shown := got.before
			if f.after {
				shown = got.after
			}
			return f.reply(n, bson.RawValue{}, shown), nil
		}
		if !f.upsert {
			return f.reply(0, bson.RawValue{}, nil), nil
		}
		doc, err := f.insert(w, ns, r)
		if err == nil {
			id, _ := value.Lookup(doc, "_id")
			if !f.after {
				doc = nil
			}
			return f.reply(1, id, doc), nil
		}
		if mongoerr.Code(err) != mongoerr.DuplicateKey || r.txn != nil || attempt == attempts {
			return nil, err
		}
	}
}

func (f *findAndModify) runRemove(w *storage.Writer, ns string, r *request) (bson.Raw, error) {
	var removed bson.Raw
	n, err := f.each(w, ns, r.ctx, func(found storage.Record) (bool, error) {
		return w.Modify(ns, found.ID, func(now storage.Record) (bson.Raw, storage.Verdict, error) {
			if !f.still(found, now) {
				return nil, storage.Skip, nil
			}
			removed = now.Doc
			return nil, storage.Remove, nil
		})
	})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		removed = nil
	}
	return f.reply(n, bson.RawValue{}, removed), nil
}

func (f *findAndModify) reply(n int, upserted bson.RawValue, doc bson.Raw) bson.Raw {
	d := newDoc().openDoc("lastErrorObject").int32("n", n)
	if !f.remove {
		d.bool("updatedExisting", n > 0 && upserted.Type == 0)
		if upserted.Type != 0 {
			d.value("upserted", upserted)
		}
	}
	d.close()
	if doc == nil {
		return d.null("value").end()
	}
	return d.doc("value", f.projection.Apply(doc)).end()
}
