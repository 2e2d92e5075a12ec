package embedded

import (
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
)

// defaultBatch is how many documents a first batch has unless the client says.
const defaultBatch = 101

// rowsSource delivers what a plan reads, as find wants it.
type rowsSource struct {
	rows       *plan.Rows
	projection *query.Projection
	skip       int
	limit      int // left; -1: no limit
}

func (s *rowsSource) next() (bson.Raw, bool, error) {
	if s.limit == 0 {
		return nil, false, nil
	}
	for ; s.skip > 0; s.skip-- {
		if _, ok := s.rows.Next(); !ok {
			s.skip = 0
			return nil, false, nil
		}
	}
	rec, ok := s.rows.Next()
	if !ok {
		return nil, false, nil
	}
	if s.limit > 0 {
		s.limit--
	}
	return s.projection.Apply(rec.Doc), true, nil
}

func (s *rowsSource) close() {}

// findArgs is what a find, or a part of another command like it, asks for.
type findArgs struct {
	query       plan.Query
	projection  *query.Projection
	skip, limit int
}

func (r *request) parseFind() (f findArgs, err error) {
	if f.query.Filter, err = r.filter("filter"); err != nil {
		return f, err
	}
	if f.query.Sort, err = r.sort("sort"); err != nil {
		return f, err
	}
	spec, err := r.document("projection")
	if err != nil {
		return f, err
	}
	if f.projection, err = query.CompileProjection(spec); err != nil {
		return f, err
	}
	if f.skip, err = r.count("skip"); err != nil {
		return f, err
	}
	if f.limit, err = r.count("limit"); err != nil {
		return f, err
	}
	f.query.Hint = r.get("hint")
	if f.limit > 0 {
		f.query.Limit = f.skip + f.limit
	}
	return f, nil
}

func (r *request) filter(name string) (*query.Filter, error) {
	doc, err := r.document(name)
	if err != nil {
		return nil, err
	}
	return query.CompileFilter(orEmpty(doc))
}

func (r *request) sort(name string) (*query.Sort, error) {
	doc, err := r.document(name)
	if err != nil || len(doc) <= 5 {
		return nil, err
	}
	return query.CompileSort(doc)
}

var emptyDoc = bson.Raw{5, 0, 0, 0, 0}

func orEmpty(doc bson.Raw) bson.Raw {
	if doc == nil {
		return emptyDoc
	}
	return doc
}

// batchSize returns the client's batch size, or the default.
func (r *request) batchSize(v bson.RawValue) (int, error) {
	n, err := r.integerOf("batchSize", v, defaultBatch)
	if err == nil && n < 0 {
		err = mongoerr.New(51024, "BSON field 'batchSize' value must be >= 0, actual value '%d'", n)
	}
	return int(n), err
}

func runFind(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	f, err := r.parseFind()
	if err != nil {
		return nil, err
	}
	batchSize, err := r.batchSize(r.get("batchSize"))
	if err != nil {
		return nil, err
	}
	single, err := r.boolean("singleBatch")
	if err != nil {
		return nil, err
	}
	rows, err := r.read(ns, f.query)
	if err != nil {
		return nil, err
	}
	src := &rowsSource{rows: rows, projection: f.projection, skip: f.skip, limit: f.limit}
	if f.limit == 0 {
		src.limit = -1
	}
	return r.firstBatch(&cursor{ns: ns, src: src}, batchSize, single)
}

// read plans a query and begins it.
func (r *request) read(ns string, q plan.Query) (*plan.Rows, error) {
	p, err := plan.Choose(r.collection(ns), q)
	if err != nil {
		return nil, err
	}
	return p.Run(r.ctx)
}

func runCount(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	filter, err := r.filter("query")
	if err != nil {
		return nil, err
	}
	limit, err := r.integer("limit", 0)
	if err != nil {
		return nil, err
	}
	limit = max(limit, -limit)
	skip, err := r.count("skip")
	if err != nil {
		return nil, err
	}
	n := 0
	if doc, _ := r.document("query"); len(doc) <= 5 && r.get("hint").Type == 0 {
		if c := r.collection(ns); c != nil {
			n = c.Len()
		}
	} else {
		rows, err := r.read(ns, plan.Query{Filter: filter, Hint: r.get("hint")})
		if err != nil {
			return nil, err
		}
		for limit == 0 || n < skip+int(limit) {
			if _, ok := rows.Next(); !ok {
				break
			}
			n++
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	n = max(0, n-skip)
	if limit > 0 {
		n = min(n, int(limit))
	}
	return newDoc().int32("n", n), nil
}

func runDistinct(r *request) (*docBuilder, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	key := r.get("key")
	if key.Type != bson.TypeString {
		return nil, r.wrongType("key", "string", key)
	}
	filter, err := r.filter("query")
	if err != nil {
		return nil, err
	}
	rows, err := r.read(ns, plan.Query{Filter: filter, Hint: r.get("hint")})
	if err != nil {
		return nil, err
	}
	values := query.Distinct(func(yield func(bson.Raw) bool) {
		for {
			rec, ok := rows.Next()
			if !ok || !yield(rec.Doc) {
				return
			}
		}
	}, key.StringValue())
	if err := rows.Err(); err != nil {
		return nil, err
	}
	d := newDoc().openArray("values")
	for i, v := range values {
		if d.value(arrayKey(i), v); len(d.b) > batchBytes {
			return nil, mongoerr.New(17217, "distinct too big, 16mb cap")
		}
	}
	return d.close(), nil
}

// pipelineSource delivers the result of an aggregation.
type pipelineSource struct {
	pull func() (bson.Raw, error, bool)
	stop func()
}

func (s *pipelineSource) next() (bson.Raw, bool, error) {
	doc, err, ok := s.pull()
	return doc, ok && err == nil, err
}

func (s *pipelineSource) close() { s.stop() }

func runAggregate(r *request) (*docBuilder, error) {
	stages, err := r.list("pipeline")
	if err != nil {
		return nil, err
	}
	if explain, err := r.boolean("explain"); err != nil || explain {
		if err == nil {
			err = mongoerr.NotImplemented("the field explain of aggregate (use the command explain)")
		}
		return nil, err
	}
	options := r.get("cursor")
	if options.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument")
	}
	batch, _ := bson.Raw(options.Value).LookupErr("batchSize")
	batchSize, err := r.batchSize(batch)
	if err != nil {
		return nil, err
	}
	if len(stages) > 0 {
		if spec, err := stages[0].LookupErr("$changeStream"); err == nil {
			return r.openTail(spec, stages[1:], batchSize)
		}
	}
	if r.args[0].value.Type != bson.TypeString {
		return nil, mongoerr.New(mongoerr.InvalidNamespace, "{aggregate: 1} is not valid for this pipeline: its first stage must be one that needs no collection")
	}
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	pipeline, err := query.CompilePipeline(stages)
	if err != nil {
		return nil, err
	}
	q, rest := sourceOf(pipeline)
	q.Hint = r.get("hint")
	rows, err := r.read(ns, q)
	if err != nil {
		return nil, err
	}
	docs := func(yield func(bson.Raw, error) bool) {
		for n := 0; q.Limit == 0 || n < q.Limit; n++ {
			rec, ok := rows.Next()
			if !ok || !yield(rec.Doc, nil) {
				break
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
	src := &pipelineSource{}
	src.pull, src.stop = iter.Pull2(rest.Run(docs))
	return r.firstBatch(&cursor{ns: ns, src: src}, batchSize, false)
}

// sourceOf splits off what of a pipeline a plan can do.
func sourceOf(p *query.Pipeline) (q plan.Query, rest *query.Pipeline) {
	filter, sort, limit, rest := p.Source()
	if filter == nil {
		filter, _ = query.CompileFilter(emptyDoc) // an empty filter is valid
	}
	return plan.Query{Filter: filter, Sort: sort, Limit: int(limit)}, rest
}
