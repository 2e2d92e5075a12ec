package query

import (
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Docs is a stream of documents; the first error ends it.
type Docs = iter.Seq2[bson.Raw, error]

// Pipeline is a compiled aggregation pipeline. It may be run many times.
type Pipeline struct {
	stages []stage
}

// stage turns a stream into another.
type stage interface {
	run(Docs) Docs
}

var stages = map[string]func(bson.RawValue) stage{
	"$match": parseMatchStage, "$project": parseProjectStage, "$sort": parseSortStage,
	"$limit": parseLimitStage, "$skip": parseSkipStage, "$count": parseCountStage,
	"$unwind": parseUnwindStage, "$group": parseGroupStage,
}

// lackingStages are those of MongoDB 5.0 that are refused.
var lackingStages = strings.Fields(`$addFields $bucket $bucketAuto $changeStream $collStats
	$currentOp $densify $documents $facet $fill $geoNear $graphLookup $indexStats
	$listLocalSessions $listSessions $lookup $merge $out $planCacheStats $redact $replaceRoot
	$replaceWith $sample $search $searchMeta $set $setWindowFields $sortByCount $unionWith $unset`)

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
		p.stages = append(p.stages, parse(args[0]))
	}
	return p, nil
}

// Source takes apart what a pipeline starts with, so that the caller may serve
// it from an index: a filter (which matches everything when there is none),
// then, unless nil, a sort order, then, unless 0, a limit. rest is to be run
// over the result.
func (p *Pipeline) Source() (f *Filter, s *Sort, limit int64, rest *Pipeline) {
	left := p.stages
	m, _ := take[matchStage](&left)
	if f = m.filter; f == nil {
		f = compileFilter(nil)
	}
	o, _ := take[sortStage](&left)
	l, _ := take[limitStage](&left)
	return f, o.sort, int64(l), &Pipeline{left}
}

// take removes the first stage if it is an S.
func take[S stage](stages *[]stage) (s S, ok bool) {
	if len(*stages) > 0 {
		if s, ok = (*stages)[0].(S); ok {
			*stages = (*stages)[1:]
		}
	}
	return s, ok
}

// Run passes docs through the stages.
func (p *Pipeline) Run(docs Docs) Docs {
	for i, s := range p.stages {
		if o, ok := s.(sortStage); ok {
			rest := p.stages[i+1:]
			limit, _ := take[limitStage](&rest)
			o.limit = int(limit)
			s = o
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
	for _, s := range p.stages {
		name := ""
		switch s.(type) {
		case matchStage:
			name = "$match"
		case projectStage:
			name = "$project"
		}
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}
