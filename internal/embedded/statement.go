package embedded

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// selection says which documents a write is about.
type selection struct {
	filter *query.Filter
	sort   *query.Sort
	hint   bson.RawValue
	multi  bool
}

// each calls write for every record that matches, or for one. write is given the
// version that was found; it reports whether it met a document that still
// matches when it wrote. When the only one did not, another is looked for.
func (s *selection) each(w *storage.Writer, ns string, ctx context.Context, write func(storage.Record) (bool, error)) (int, error) {
	if id, ok := plan.PointID(s.filter); ok && s.hint.Type == 0 {
		rec, ok := w.FindID(ns, id)
		if !ok || !s.filter.Match(rec.Doc) {
			return 0, nil
		}
		met, err := write(rec)
		return count(met), err
	}
	for {
		rows, err := s.find(w, ns, ctx)
		if err != nil {
			return 0, err
		}
		if s.multi {
			return writeAll(rows, write)
		}
		rec, ok := rows.Next()
		if !ok {
			return 0, rows.Err()
		}
		if met, err := write(rec); met || err != nil {
			return count(met), err
		}
	}
}

func (s *selection) find(w *storage.Writer, ns string, ctx context.Context) (*plan.Rows, error) {
	q := plan.Query{Filter: s.filter, Sort: s.sort, Hint: s.hint}
	if !s.multi {
		q.Limit = 1
	}
	p, err := plan.Choose(w.View(ns), q)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx)
}

// writeAll finds all records before it writes the first: a write must not bring
// a document before the scan again.
func writeAll(rows *plan.Rows, write func(storage.Record) (bool, error)) (n int, err error) {
	var found []storage.Record
	for {
		rec, ok := rows.Next()
		if !ok {
			break
		}
		found = append(found, rec)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, rec := range found {
		met, err := write(rec)
		n += count(met)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func count(met bool) int {
	if met {
		return 1
	}
	return 0
}

// fields reads the fields of a statement, or fails on one that is unknown.
func (r *request) fields(statement bson.Raw, list string, field func(name string, v bson.RawValue) error) error {
	for it := value.NewIter(statement); it.Next(); {
		name := string(it.Key)
		var err error
		switch {
		case name == "collation":
			err = checkCollation(it.Value)
		case !listed(list, name):
			err = mongoerr.New(40415, "BSON field '%s.%s' is an unknown field.", r.name, name)
		default:
			err = field(name, it.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deletion is one statement of a delete.
type deletion struct{ selection }

func (r *request) parseDelete(statement bson.Raw) (*deletion, error) {
	d := &deletion{}
	limited := false
	err := r.fields(statement, "q limit hint", func(name string, v bson.RawValue) (err error) {
		switch name {
		case "q":
			d.filter, err = r.statementFilter(v)
		case "limit":
			var n int64
			n, err = r.integerOf("limit", v, 0)
			if err == nil && n != 0 && n != 1 {
				err = mongoerr.New(mongoerr.FailedToParse, "The limit field in delete objects must be 0 or 1. Got %d", n)
			}
			d.multi, limited = n == 0, true
		case "hint":
			d.hint = v
		}
		return err
	})
	if err == nil && (d.filter == nil || !limited) {
		err = mongoerr.New(40414, "BSON field 'delete.deletes.q' or 'limit' is missing but a required field")
	}
	return d, err
}

// flag is true or false; numbers, which commands take for their own flags, are
// refused in statements.
func (r *request) flag(name string, v bson.RawValue) (bool, error) {
	on, ok := v.BooleanOK()
	if !ok {
		return false, r.wrongType(name, "bool", v)
	}
	return on, nil
}

func (r *request) statementFilter(v bson.RawValue) (*query.Filter, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, r.wrongType("q", "object", v)
	}
	return query.CompileFilter(bson.Raw(v.Value))
}

func (d *deletion) run(w *storage.Writer, ns string, ctx context.Context) (int, error) {
	return d.each(w, ns, ctx, func(found storage.Record) (bool, error) {
		return w.Modify(ns, found.ID, func(now storage.Record) (bson.Raw, storage.Verdict, error) {
			if !d.still(found, now) {
				return nil, storage.Skip, nil
			}
			return nil, storage.Remove, nil
		})
	})
}

// still reports whether a record that matched when it was found does so now.
func (s *selection) still(found, now storage.Record) bool {
	return found.Same(now) || s.filter.Match(now.Doc)
}

// updating is one statement of an update, or a findAndModify.
type updating struct {
	selection
	update *query.Update
	upsert bool
}

func (r *request) parseUpdate(statement bson.Raw) (*updating, error) {
	u := &updating{}
	var update bson.RawValue
	var arrayFilters []bson.Raw
	err := r.fields(statement, "q u multi upsert arrayFilters hint", func(name string, v bson.RawValue) (err error) {
		switch name {
		case "q":
			u.filter, err = r.statementFilter(v)
		case "u":
			update = v
		case "multi":
			u.multi, err = r.flag("updates.multi", v)
		case "upsert":
			u.upsert, err = r.flag("updates.upsert", v)
		case "arrayFilters":
			arrayFilters, err = r.listOf("arrayFilters", v)
		case "hint":
			u.hint = v
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if u.filter == nil || update.Type == 0 {
		return nil, mongoerr.New(40414, "BSON field 'update.updates.q' or 'u' is missing but a required field")
	}
	if u.update, err = compileUpdate(update, arrayFilters); err != nil {
		return nil, err
	}
	if u.multi && u.update.IsReplacement() {
		return nil, mongoerr.New(mongoerr.FailedToParse, "multi update is not supported for replacement-style update")
	}
	return u, nil
}

func compileUpdate(update bson.RawValue, arrayFilters []bson.Raw) (*query.Update, error) {
	switch update.Type {
	case bson.TypeArray:
		return nil, mongoerr.NotImplemented("an update with an aggregation pipeline")
	case bson.TypeEmbeddedDocument:
		return query.CompileUpdate(bson.Raw(update.Value), arrayFilters)
	}
	return nil, mongoerr.New(mongoerr.FailedToParse, "Update argument must be either an object or an array")
}

// applied is what an update made of one document.
type applied struct {
	before, after bson.Raw
	modified      bool
}

// run carries the statement out.
func (u *updating) run(w *storage.Writer, ns string, r *request) (res result, err error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		res.n, err = u.write(w, ns, r, func(a applied) {
			if a.modified {
				res.modified++
			}
		})
		if err != nil || res.n > 0 || !u.upsert {
			return res, err
		}
		var doc bson.Raw
		if doc, err = u.insert(w, ns, r); err == nil {
			id, _ := value.Lookup(doc, "_id")
			return result{n: 1, upserted: id}, nil
		}
		// Somebody inserted it between our looking and our writing: update that.
		if mongoerr.Code(err) != mongoerr.DuplicateKey || r.txn != nil || attempt == attempts {
			return res, err
		}
	}
}

// write updates what matches and tells done about each.
func (u *updating) write(w *storage.Writer, ns string, r *request, done func(applied)) (int, error) {
	return u.each(w, ns, r.ctx, func(found storage.Record) (bool, error) {
		met := false
		var a applied
		_, err := w.Modify(ns, found.ID, func(now storage.Record) (bson.Raw, storage.Verdict, error) {
			met = false
			if !u.still(found, now) {
				return nil, storage.Skip, nil
			}
			after, modified, err := u.update.Apply(now.Doc, r.applyContext(u, now.Doc))
			if err != nil {
				return nil, storage.Skip, err
			}
			met, a = true, applied{now.Doc, after, modified}
			switch {
			case !modified:
				return nil, storage.Skip, nil
			case u.update.IsReplacement():
				return after, storage.Supply, nil
			}
			return after, storage.Put, nil
		})
		if err != nil {
			return false, err
		}
		if met {
			done(a)
		}
		return met, nil
	})
}

// applyContext is what an update needs to know for doc.
func (r *request) applyContext(u *updating, doc bson.Raw) query.ApplyContext {
	c := query.ApplyContext{Positional: -1, Now: bson.NewDateTimeFromTime(r.s.opt.Now()), Timestamp: r.s.store.ClusterTime()}
	if doc != nil && u.update.NeedsPositional() {
		_, c.Positional = u.filter.MatchPositional(doc)
	}
	return c
}

// insert stores what an upsert makes when nothing matched.
func (u *updating) insert(w *storage.Writer, ns string, r *request) (bson.Raw, error) {
	doc, err := u.update.Upsert(u.filter, r.applyContext(u, nil))
	if err != nil {
		return nil, err
	}
	if doc, err = r.s.prepareInsert(doc); err != nil {
		return nil, err
	}
	return doc, w.Insert(ns, slices.Clip(doc))
}
