// Package query is the query language of the embedded server: filters, updates,
// projections, sort orders and aggregation stages as pure functions of
// documents.
//
//	CompileFilter     -> Filter      Match, MatchPositional, Root (for the planner)
//	CompileUpdate     -> Update      Apply, Upsert; Describe for change events
//	CompileProjection -> Projection  Apply
//	CompileSort       -> Sort        Key, Sort
//	CompilePipeline   -> Pipeline    Source, Run, Each
//
// Everything is compiled once and then applied to any number of documents,
// from any number of goroutines. Documents are read in place (bson.Raw), never
// decoded.
//
// The rule of this package: answer as MongoDB 5.0 does, or refuse. What
// MongoDB has and this package lacks is refused with mongoerr.NotImplemented
// naming it; what MongoDB itself refuses gets MongoDB's own code. Storage,
// indexes and commands live elsewhere.
package query
