package embedded

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// statement is what one write does to documents that are there: a statement of an
// update or a delete, a findAndModify, or what a TTL index lets expire.
type statement struct {
	filter *query.Filter
	sort   *query.Sort
	hint   bson.RawValue
	multi  bool
	update *query.Update // nil: delete
	upsert bool
}

// outcome is what a statement did.
type outcome struct {
	n, modified   int
	upserted      bson.RawValue // type 0: nothing
	before, after bson.Raw      // of the last document
}

// target is where statements write.
type target struct {
	*storage.Writer
	s     *Server
	ctx   context.Context
	ns    string
	inTxn bool
}

var (
	updateFields = knownFields("q u multi upsert arrayFilters hint", "")
	deleteFields = knownFields("q limit hint", "")
)

func parseUpdate(doc bson.Raw) (*statement, error) {
	f := &fields{of: "update.updates"}
	f.read(doc, updateFields, 0)
	f.required("q")
	st := &statement{filter: f.filter("q"), hint: f.get("hint"), multi: f.flag("multi"), upsert: f.flag("upsert")}
	st.update = f.update("u")
	if f.err == nil && st.multi && st.update.IsReplacement() {
		f.fail(mongoerr.New(mongoerr.FailedToParse, "multi update is not supported for replacement-style update"))
	}
	return st, f.err
}

// update compiles the update in a field, with the arrayFilters beside it.
func (f *fields) update(name string) (u *query.Update) {
	v := f.required(name)
	filters := f.documents("arrayFilters", false)
	if f.err != nil {
		return nil
	}
	var err error
	switch v.Type {
	case bson.TypeArray:
		err = mongoerr.NotImplemented("an update with an aggregation pipeline")
	case bson.TypeEmbeddedDocument:
		u, err = query.CompileUpdate(v.Value, filters)
	default:
		err = mongoerr.New(mongoerr.FailedToParse, "Update argument must be either an object or an array")
	}
	f.fail(err)
	return u
}

func parseDelete(doc bson.Raw) (*statement, error) {
	f := &fields{of: "delete.deletes"}
	f.read(doc, deleteFields, 0)
	f.required("q")
	f.required("limit")
	limit := f.integer("limit", 0)
	if limit != 0 && limit != 1 {
		f.fail(mongoerr.New(mongoerr.FailedToParse, "The limit field in delete objects must be 0 or 1. Got %d", limit))
	}
	return &statement{filter: f.filter("q"), hint: f.get("hint"), multi: limit == 0}, f.err
}

// run carries the statement out. When it fails half way the outcome does not say
// how far it came.
func (st *statement) run(t *target) (out outcome, err error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		out = outcome{}
		err = st.each(t, func(found storage.Record) (bool, error) { return st.write(t, found, &out) })
		if err != nil || out.n > 0 || !st.upsert {
			return out, err
		}
		doc, err := st.update.Upsert(st.filter, st.applyContext(t, nil))
		if err == nil {
			doc, err = t.s.prepareInsert(doc)
		}
		if err != nil {
			return out, err
		}
		if err = t.Insert(t.ns, doc); err == nil {
			id, _ := value.Lookup(doc, "_id")
			return outcome{n: 1, upserted: id, after: doc}, nil
		}
		// Somebody inserted it between our looking and our writing: update that.
		if mongoerr.Code(err) != mongoerr.DuplicateKey || t.inTxn || attempt == attempts {
			return out, err
		}
	}
}

// each calls write for every record that matches, or for one. write is given the
// version that was found; it reports whether it met a document that still
// matches when it wrote. When the only one did not, another is looked for.
func (st *statement) each(t *target, write func(storage.Record) (met bool, err error)) error {
	if id, ok := plan.PointID(st.filter); ok && st.hint.Type == 0 {
		for {
			rec, ok := t.FindID(t.ns, id)
			if !ok || !st.filter.Match(rec.Doc) {
				return nil
			}
			if met, err := write(rec); met || err != nil {
				return err
			}
		}
	}
	for {
		found, err := st.find(t)
		if err != nil || len(found) == 0 {
			return err
		}
		t.Long = t.Long || len(found) > shortBatch
		for _, rec := range found {
			met, err := write(rec)
			if err != nil || met && !st.multi {
				return err
			}
		}
		if st.multi {
			return nil
		}
	}
}

// find returns all records that match, or the first: a write must not bring a
// document before the scan again.
func (st *statement) find(t *target) (found []storage.Record, err error) {
	q := plan.Query{Filter: st.filter, Sort: st.sort, Hint: st.hint}
	if !st.multi {
		q.Limit = 1
	}
	p, err := plan.Choose(t.View(t.ns), q)
	if err != nil {
		return nil, err
	}
	rows, err := p.Run(t.ctx)
	if err != nil {
		return nil, err
	}
	for {
		rec, ok := rows.Next()
		if !ok {
			return found, rows.Err()
		}
		if found = append(found, rec); !st.multi {
			return found, nil
		}
	}
}

// write updates or deletes one record, if it matches still, and adds to out.
func (st *statement) write(t *target, found storage.Record, out *outcome) (met bool, err error) {
	var before, after bson.Raw
	var modified bool
	if st.update != nil {
		t.Paths = st.update.Paths()
	}
	_, err = t.Modify(t.ns, found.ID, func(now storage.Record) (bson.Raw, storage.Verdict, error) {
		before = now.Doc
		met = before != nil && (found.Same(now) || st.filter.Match(before))
		switch {
		case !met:
			return nil, storage.Skip, nil
		case st.update == nil:
			return nil, storage.Remove, nil
		}
		var err error
		after, modified, err = st.update.Apply(before, st.applyContext(t, before))
		switch {
		case err != nil || !modified:
			return nil, storage.Skip, err
		case st.update.IsReplacement():
			return after, storage.Supply, nil
		}
		return after, storage.Put, nil
	})
	if !met || err != nil {
		return false, err
	}
	out.n++
	if modified {
		out.modified++
	}
	out.before, out.after = before, after
	return true, nil
}

// applyContext is what an update needs to know for doc.
func (st *statement) applyContext(t *target, doc bson.Raw) query.ApplyContext {
	c := query.ApplyContext{Positional: -1, Now: bson.NewDateTimeFromTime(t.s.opt.Now()), Timestamp: t.s.store.Tick}
	if doc != nil && st.update.NeedsPositional() {
		_, c.Positional = st.filter.MatchPositional(doc)
	}
	return c
}
