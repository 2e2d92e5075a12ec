package embedded

import (
	"iter"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// defaultBatch is how many documents a first batch has unless the client says.
const defaultBatch = 101

var emptyDoc = bson.Raw{5, 0, 0, 0, 0}

// reading is the part of a command that a plan answers.
type reading struct {
	plan.Query
	skip, limit int             // limit 0: none
	rest        *query.Pipeline // what the documents go through then; nil for nothing
}

// rows plans a query and begins it, unless something is wrong with the command.
func (r *request) rows(ns string, q plan.Query) (*plan.Plan, *plan.Rows, error) {
	if r.err != nil {
		return nil, nil, r.err
	}
	p, err := plan.Choose(r.collection(ns), q)
	if err != nil {
		return nil, nil, err
	}
	rows, err := p.Run(r.ctx)
	return p, rows, err
}

// each calls fn with the documents asked for, until it returns false.
func (q reading) each(rows *plan.Rows, fn func(bson.Raw) bool) error {
	for n := 0; q.limit == 0 || n < q.skip+q.limit; n++ {
		rec, ok := rows.Next()
		if !ok || n >= q.skip && !fn(rec.Doc) {
			break
		}
	}
	return rows.Err()
}

// run reads what is asked for and passes it on to the rest, which may want less.
// n counts what was read.
func (q reading) run(rows *plan.Rows, n *int) query.Docs {
	docs := func(yield func(bson.Raw, error) bool) {
		if err := q.each(rows, func(doc bson.Raw) bool { *n++; return yield(doc, nil) }); err != nil {
			yield(nil, err)
		}
	}
	if q.rest == nil {
		return docs
	}
	return q.rest.Run(docs)
}

// snapshotTime tells a session with snapshot reads the time to ask for next, which
// is refused (atClusterTime): better than to be answered at another.
func (r *request) snapshotTime(d *docBuilder) *docBuilder {
	if r.readConcernLevel() == "snapshot" && !r.inTxn {
		d.timestamp("atClusterTime", r.s.store.ClusterTime())
	}
	return d
}

func (r *request) findReading() reading {
	q := reading{skip: r.count("skip", 0), limit: r.count("limit", 0)}
	q.Query = plan.Query{Filter: r.filter("filter"), Sort: r.sort("sort"), Hint: r.get("hint")}
	if q.limit > 0 {
		q.Limit = q.skip + q.limit
	}
	return q
}

func (r *request) queryReading() reading {
	return reading{Query: plan.Query{Filter: r.filter("query"), Hint: r.get("hint")}}
}

func runFind(r *request) (*docBuilder, error) {
	ns, q, projection := r.namespace(), r.findReading(), r.projection("projection")
	batchSize, single, forever := r.count("batchSize", defaultBatch), r.boolean("singleBatch"), r.boolean("noCursorTimeout")
	p, rows, err := r.rows(ns, q.Query)
	if err != nil {
		return nil, err
	}
	n := 0
	return r.firstBatch(&cursor{ns: ns, holds: p.Sorts(), rows: rows, forever: forever, next: func() (bson.Raw, bool, error) {
		for ; q.limit == 0 || n < q.skip+q.limit; n++ {
			rec, ok := rows.Next()
			if !ok {
				break
			}
			if n >= q.skip {
				n++
				return projection.Apply(rec.Doc), true, nil
			}
		}
		return nil, false, rows.Err()
	}}, batchSize, single)
}

func (r *request) countReading() reading {
	q := r.queryReading()
	limit := r.integer("limit", 0)
	if limit == math.MinInt64 {
		r.fail(mongoerr.New(mongoerr.BadValue, "limit value for count cannot be min long"))
	}
	q.skip, q.limit = r.count("skip", 0), int(min(max(limit, -limit), math.MaxInt64/2))
	return q
}

// countsAll reports whether a count needs to read nothing.
func (r *request) countsAll() bool {
	return r.of == "count" && len(r.document("query")) <= len(emptyDoc) && r.get("hint").Type == 0
}

func runCount(r *request) (*docBuilder, error) {
	ns, q := r.namespace(), r.countReading()
	if r.err != nil {
		return nil, r.err
	}
	if c := r.collection(ns); c != nil && r.countsAll() {
		n := max(0, c.Len()-q.skip)
		if q.limit > 0 {
			n = min(n, q.limit)
		}
		return newDoc().int32("n", n), nil
	}
	_, rows, err := r.rows(ns, q.Query)
	if err != nil {
		return nil, err
	}
	n := 0
	err = q.each(rows, func(bson.Raw) bool { n++; return true })
	return newDoc().int32("n", n), err
}

func runDistinct(r *request) (*docBuilder, error) {
	ns, q := r.namespace(), r.queryReading()
	key, ok := r.get("key").StringValueOK()
	if !ok {
		r.wrongType("key", "string", r.get("key"))
	}
	missing, absent := plan.MissingIsNothing, bson.RawValue{}
	if r.err == nil {
		var index *storage.Index
		if missing, index = plan.DistinctMissing(r.collection(ns), q.Query, key); missing == plan.MissingIsNull {
			absent = value.Null
		}
		if index != nil {
			q.Hint = value.String(index.Spec.Name)
		}
	}
	_, rows, err := r.rows(ns, q.Query)
	if err != nil {
		return nil, err
	}
	values, lacking := query.Distinct(func(yield func(bson.Raw) bool) { err = q.each(rows, yield) }, key, absent)
	if err != nil {
		return nil, err
	}
	hasNull := slices.ContainsFunc(values, func(v bson.RawValue) bool { return v.Type == bson.TypeNull })
	if lacking && (missing == plan.MissingIsEither && !hasNull || missing == plan.MissingHidesNull && hasNull) {
		return nil, mongoerr.NotImplemented("distinct over an index whose keys make a missing field null")
	}
	d := r.snapshotTime(newDoc()).openArray("values")
	for i, v := range values {
		if d.value(arrayKey(i), v); len(d.b) > batchBytes {
			return nil, mongoerr.New(17217, "distinct too big, 16mb cap")
		}
	}
	return d.close(), nil
}

// aggregateReading splits off what of a pipeline a plan can do.
func (r *request) aggregateReading(stages []bson.Raw) (q reading) {
	p, err := query.CompilePipeline(stages)
	if r.fail(err); err != nil {
		return q
	}
	q.Hint = r.get("hint")
	var limit int64
	q.Filter, q.Sort, limit, q.rest = p.Source()
	q.Limit, q.limit = int(limit), int(limit)
	return q
}

// union is one stage $unionWith.
type union struct {
	ns string
	q  reading
}

// unions splits off the stages $unionWith at the end of a pipeline. Elsewhere, and inside of
// each other, they are refused.
func (r *request) unions(stages []bson.Raw) (before []bson.Raw, unions []union) {
	n := slices.IndexFunc(stages, func(s bson.Raw) bool { return s.Lookup("$unionWith").Type != 0 })
	if n < 0 {
		return stages, nil
	}
	for _, s := range stages[n:] {
		spec := s.Lookup("$unionWith")
		if spec.Type == 0 {
			r.fail(mongoerr.NotImplemented("a stage after $unionWith"))
			return stages, nil
		}
		name, pipeline, err := query.UnionWith(spec)
		if r.fail(err); err != nil {
			return stages, nil
		}
		u := union{ns: r.db + "." + name}
		r.fail(storage.CheckNamespace(u.ns))
		if u.q = r.aggregateReading(pipeline); r.err != nil {
			return stages, nil
		}
		u.q.Hint = bson.RawValue{} // is the first collection's
		unions = append(unions, u)
	}
	return stages[:n], unions
}

// append puts what unions read after docs. The caller's cursor must hold the result: later
// calls do not extend the time of these readings.
func (r *request) append(docs query.Docs, unions []union) (query.Docs, error) {
	all := []query.Docs{docs}
	for _, u := range unions {
		_, rows, err := r.rows(u.ns, u.q.Query)
		if err != nil {
			return nil, err
		}
		all = append(all, u.q.run(rows, new(int)))
	}
	return func(yield func(bson.Raw, error) bool) {
		for _, docs := range all {
			for doc, err := range docs {
				if !yield(doc, err) || err != nil {
					return
				}
			}
		}
	}, nil
}

func runAggregate(r *request) (*docBuilder, error) {
	stages, batchSize := r.list("pipeline"), r.cursorBatch(true)
	if r.err != nil {
		return nil, r.err
	}
	if len(stages) > 0 {
		if spec, err := stages[0].LookupErr("$changeStream"); err == nil {
			return r.openTail(spec, stages[1:], batchSize)
		}
	}
	if r.subject().Type != bson.TypeString {
		return nil, mongoerr.New(mongoerr.InvalidNamespace,
			"{aggregate: 1} is not valid for this pipeline: its first stage must be one that needs no collection")
	}
	ns := r.namespace()
	stages, unions := r.unions(stages)
	q := r.aggregateReading(stages)
	p, rows, err := r.rows(ns, q.Query)
	if err != nil {
		return nil, err
	}
	docs, err := r.append(q.run(rows, new(int)), unions)
	if err != nil {
		return nil, err
	}
	next, stop := iter.Pull2(docs)
	return r.firstBatch(&cursor{ns: ns, holds: p.Sorts() || q.rest.Holds() || len(unions) > 0, rows: rows, stop: stop,
		next: func() (bson.Raw, bool, error) {
			doc, err, ok := next()
			if len(doc) > wire.MaxDocument {
				err = mongoerr.New(mongoerr.BSONObjectTooLarge, "a document of %d bytes in the result, max size: %d", len(doc), wire.MaxDocument)
			}
			return doc, ok && err == nil, err
		}}, batchSize, false)
}
