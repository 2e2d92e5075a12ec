// Package query (API sketch; being filled in)
package query

import (
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

var todo = mongoerr.NotImplemented("todo")

// Op is what a Node tests.
type Op uint8

// The nodes of a filter.
const (
	OpAnd       Op = iota // all Children
	OpOr                  // at least one of Children
	OpNor                 // none of Children
	OpNot                 // not Children[0]; $ne is OpNot of OpEq, $nin is OpNot of OpIn
	OpEq                  // Path = Value
	OpLt                  // Path < Value
	OpLte                 // Path <= Value
	OpGt                  // Path > Value
	OpGte                 // Path >= Value
	OpIn                  // Path is one of Values (sorted, distinct) or matches one of Regexes
	OpRegex               // Path matches Regexes[0]
	OpExists              // Path exists ($exists: false is OpNot of it)
	OpType                // Path has one of a set of types
	OpSize                // Path is an array of a length
	OpMod                 // Path is a number with a remainder
	OpElemMatch           // an array at Path has an element that matches; Children[0] has paths relative to the element
	OpElemValue           // an array at Path has an element that matches all Children, whose Path is empty
	OpFalse               // nothing ($all: [])
)

// Node is a node of a compiled filter. $all becomes an OpAnd. Only what lies
// below OpAnd and OpOr alone (not below OpNor, OpNot, OpElemMatch,
// OpElemValue) narrows down the documents in the way its Path says.
type Node struct {
	Op       Op
	Path     string          // dotted; empty for OpAnd, OpOr, OpNor, OpNot
	Value    bson.RawValue   // of comparisons
	Values   []bson.RawValue // of OpIn
	Regexes  []Regex         // of OpIn and OpRegex
	Children []*Node
}

// Regex is a regular expression as it was written.
type Regex struct {
	Pattern, Options string
}

// Prefix returns the literal text every match starts with ("" when unknown),
// for a range of an index; exact: the expression tests nothing more.
func (r Regex) Prefix() (prefix string, exact bool) { return "", false }

// Filter is a compiled filter.
type Filter struct{}

// CompileFilter checks and compiles a filter.
func CompileFilter(filter bson.Raw) (*Filter, error) { return nil, todo }

// Root is the filter's tree (OpAnd at the top), for a planner to walk; not to be changed.
func (f *Filter) Root() *Node { return nil }

// Match reports whether doc matches.
func (f *Filter) Match(doc bson.Raw) bool { return false }

// MatchPositional is Match and the array index that the positional operator
// `$` stands for, -1 for none.
func (f *Filter) MatchPositional(doc bson.Raw) (matched bool, pos int) { return false, -1 }

// ApplyContext is what an update needs to know beside the document.
type ApplyContext struct {
	Insert     bool           // the document is being upserted: $setOnInsert works, _id may be set
	Positional int            // what `$` stands for (MatchPositional); -1 for none
	Now        bson.DateTime  // of $currentDate
	Timestamp  bson.Timestamp // of $currentDate with {$type: "timestamp"}
}

// Update is a compiled update; it may be applied to any number of documents, concurrently.
type Update struct{}

// CompileUpdate checks and compiles an update of operators or a replacement.
func CompileUpdate(update bson.Raw, arrayFilters []bson.Raw) (*Update, error) { return nil, todo }

// IsReplacement reports whether the update replaces the whole document.
func (u *Update) IsReplacement() bool { return false }

// NeedsPositional reports whether a path has `$`, so that Apply needs ApplyContext.Positional.
func (u *Update) NeedsPositional() bool { return false }

// TopFields are the top-level fields the update may touch; an index on none of
// them keeps its keys. nil for a replacement: all of them.
func (u *Update) TopFields() []string { return nil }

// Apply returns doc changed; modified is false (and the result is doc itself) when nothing changes.
func (u *Update) Apply(doc bson.Raw, ctx ApplyContext) (newDoc bson.Raw, modified bool, err error) {
	return nil, false, todo
}

// Upsert returns the document an upsert inserts when nothing matches f. It has
// an _id only if filter or update give one; the caller adds it otherwise (as the first field).
func (u *Update) Upsert(f *Filter, ctx ApplyContext) (bson.Raw, error) { return nil, todo }

// Description is the updateDescription of a change event.
type Description struct {
	Updated   bson.Raw    // updatedFields: dotted path -> new value
	Removed   []string    // removedFields: dotted paths
	Truncated []Truncated // truncatedArrays
}

// Truncated is one entry of truncatedArrays.
type Truncated struct {
	Field   string
	NewSize int32
}

// Describe says how old became new.
func Describe(old, new bson.Raw) Description { return Description{} }

// Projection is a compiled projection; the zero value (or nil) keeps everything.
type Projection struct{}

// CompileProjection checks and compiles a projection; filter is the query's,
// needed by the positional `.$`, and may be nil.
func CompileProjection(spec bson.Raw, filter *Filter) (*Projection, error) { return nil, todo }

// Apply returns what the projection keeps of doc.
func (p *Projection) Apply(doc bson.Raw) (bson.Raw, error) { return nil, todo }

// Sort is a compiled sort order.
type Sort struct {
	Fields  []value.Field
	Natural int // 1 or -1 for {$natural: ...}, then Fields is empty
}

// CompileSort checks and compiles a sort order; nil for an empty one.
func CompileSort(spec bson.Raw) (*Sort, error) { return nil, todo }

// Key returns doc's sort key: bytes.Compare of two keys orders their documents.
// Parallel arrays are refused (BadValue), as MongoDB does.
func (s *Sort) Key(doc bson.Raw) ([]byte, error) { return nil, todo }

// Sort sorts docs in place, stably.
func (s *Sort) Sort(docs []bson.Raw) error { return todo }

// Distinct returns the distinct values of key in docs, in their order of comparison.
func Distinct(docs iter.Seq[bson.Raw], key string) []bson.RawValue { return nil }

// Pipeline is a compiled aggregation pipeline.
type Pipeline struct{}

// CompilePipeline checks and compiles the stages (without $changeStream).
func CompilePipeline(stages []bson.Raw) (*Pipeline, error) { return nil, todo }

// Source returns the filter and, if Sort != nil, the sort order and limit (0: none) that the
// pipeline starts with: a caller may serve them by an index and then run the remaining
// pipeline, Rest, over the result.
func (p *Pipeline) Source() (f *Filter, s *Sort, limit int64, rest *Pipeline) { return }

// Run passes docs through the stages. The first error ends it.
func (p *Pipeline) Run(docs iter.Seq2[bson.Raw, error]) iter.Seq2[bson.Raw, error] { return nil }

// Each passes one document through a pipeline of only $match and $project
// (behind $changeStream); keep is false when a $match drops it.
func (p *Pipeline) Each(doc bson.Raw) (out bson.Raw, keep bool, err error) { return nil, false, todo }
