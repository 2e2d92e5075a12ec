package query

import (
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
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

var stages = map[string]func(bson.RawValue) (stage, error){
	"$match": parseMatchStage, "$project": parseProjectStage, "$sort": parseSortStage,
	"$limit": parseLimitStage, "$skip": parseSkipStage, "$count": parseCountStage,
	"$unwind": parseUnwindStage, "$group": parseGroupStage,
}

// unsupportedStages are those of MongoDB 5.0 that are refused.
var unsupportedStages = strings.Fields(`$addFields $bucket $bucketAuto $changeStream $collStats
	$currentOp $densify $documents $facet $fill $geoNear $graphLookup $indexStats
	$listLocalSessions $listSessions $lookup $merge $out $planCacheStats $redact $replaceRoot
	$replaceWith $sample $search $searchMeta $set $setWindowFields $sortByCount $unionWith $unset`)

// CompilePipeline checks and compiles the stages of a pipeline. It keeps parts
// of them, which must not change afterwards. ($changeStream is the caller's.)
func CompilePipeline(specs []bson.Raw) (*Pipeline, error) {
	p := &Pipeline{}
	for _, spec := range specs {
		it := value.NewIter(spec)
		if !it.Next() || arrayLen(spec) != 1 {
			return nil, mongoerr.New(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		name := string(it.Key)
		parse, ok := stages[name]
		switch {
		case slices.Contains(unsupportedStages, name):
			return nil, mongoerr.NotImplemented("the stage " + name)
		case !ok:
			return nil, mongoerr.New(40324, "Unrecognized pipeline stage name: '%s'", name)
		}
		s, err := parse(it.Value)
		if err != nil {
			return nil, err
		}
		p.stages = append(p.stages, s)
	}
	return p, nil
}

// Source takes apart what a pipeline starts with, so that the caller may serve
// it from an index: a filter (which matches everything when there is none),
// then, unless nil, a sort order, then, unless 0, a limit. rest is to be run
// over the result.
func (p *Pipeline) Source() (f *Filter, s *Sort, limit int64, rest *Pipeline) {
	left := p.stages
	f = &Filter{&Node{Op: OpAnd}}
	if len(left) > 0 {
		if m, ok := left[0].(matchStage); ok {
			f, left = m.filter, left[1:]
		}
	}
	if len(left) > 0 {
		if o, ok := left[0].(sortStage); ok {
			s, left = o.sort, left[1:]
		}
	}
	if len(left) > 0 {
		if l, ok := left[0].(limitStage); ok {
			limit, left = int64(l), left[1:]
		}
	}
	return f, s, limit, &Pipeline{left}
}

// Run passes docs through the stages.
func (p *Pipeline) Run(docs Docs) Docs {
	for i, s := range p.stages {
		if o, ok := s.(sortStage); ok && i+1 < len(p.stages) {
			if limit, ok := p.stages[i+1].(limitStage); ok {
				o.limit = int(limit)
				s = o
			}
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
