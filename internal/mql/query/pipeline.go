package query

import (
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Docs is a stream of documents; the first error ends it.
type Docs = iter.Seq2[bson.Raw, error]

// Pipeline is a compiled aggregation pipeline. It may be run many times.
type Pipeline struct {
	stages []stage
}

// stage turns a stream into another.
type stage struct {
	name  string
	run   func(Docs) Docs
	holds bool // it keeps documents until it has seen all

	filter *Filter // of $match, else nil
	sort   *Sort   // of $sort, else nil
	limit  int64   // of $limit, else 0
}

// lackingStages are those of MongoDB 5.0 that are refused.
var lackingStages = strings.Fields(`$addFields $bucket $bucketAuto $changeStream $collStats
	$currentOp $densify $documents $facet $fill $geoNear $graphLookup $indexStats
	$listLocalSessions $listSessions $lookup $merge $out $planCacheStats $redact $replaceRoot
	$sample $search $searchMeta $set $setWindowFields $sortByCount $unionWith $unset`)

// CompilePipeline checks and compiles the stages of a pipeline. It keeps parts
// of them, which must not change afterwards. ($changeStream is the caller's.)
func CompilePipeline(specs []bson.Raw) (p *Pipeline, err error) {
	defer catch(&err)
	p = &Pipeline{}
	for _, spec := range specs {
		args := value.Elements(spec)
		check(len(args) == 1, 40323, "A pipeline stage specification object must contain exactly one field.")
		name := firstKey(value.Document(spec))
		parse := entry(stages, name, lackingStages, "the stage ", func() {
			fail(40324, "Unrecognized pipeline stage name: '%s'", name)
		})
		st := parse(args[0])
		st.name = name
		p.stages = append(p.stages, st)
	}
	return p, nil
}

// Source takes apart what a pipeline starts with, so that the caller may serve
// it from an index: a filter (which matches everything when there is none),
// then, unless nil, a sort order, then, unless 0, a limit. rest is to be run
// over the result.
func (p *Pipeline) Source() (f *Filter, s *Sort, limit int64, rest *Pipeline) {
	rest = &Pipeline{p.stages}
	if f = rest.take("$match").filter; f == nil {
		f = compileFilter(nil)
	}
	s = rest.take("$sort").sort
	limit = rest.take("$limit").limit
	return f, s, limit, rest
}

// take removes the first stage if it has that name.
func (p *Pipeline) take(name string) (first stage) {
	if len(p.stages) > 0 && p.stages[0].name == name {
		first, p.stages = p.stages[0], p.stages[1:]
	}
	return first
}

// Run passes docs through the stages.
func (p *Pipeline) Run(docs Docs) Docs {
	for i, s := range p.stages {
		if s.sort != nil { // with the $limit that follows, it keeps no more
			next := Pipeline{p.stages[i+1:]}
			s.run = s.sort.first(int(next.take("$limit").limit))
		}
		docs = s.run(docs)
	}
	return docs
}

// Each passes a single document through the stages: keep is false when
// nothing comes out.
func (p *Pipeline) Each(doc bson.Raw) (out bson.Raw, keep bool, err error) {
	for out, err := range p.Run(func(yield func(bson.Raw, error) bool) { yield(doc, nil) }) {
		return out, err == nil, err
	}
	return nil, false, nil
}

// Only reports whether the pipeline consists of the named stages ("$match");
// what stands behind $changeStream is restricted so.
func (p *Pipeline) Only(names ...string) bool {
	return !slices.ContainsFunc(p.stages, func(s stage) bool { return !slices.Contains(names, s.name) })
}

// Holds reports whether a stage keeps documents until it has seen all of them.
func (p *Pipeline) Holds() bool {
	return slices.ContainsFunc(p.stages, func(s stage) bool { return s.holds })
}
