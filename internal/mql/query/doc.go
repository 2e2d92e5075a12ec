// Package query is what can be asked of documents: filters, updates, projections,
// sort orders and aggregation stages as pure functions of them.
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
// Refused with code 238, as everything else MongoDB has:
//
//	filters      $expr $where $text $jsonSchema $geo... $near... $bits... $sampleRate; regular
//	             expressions Go cannot run (lookaround, backreferences, option x, \v, a `$` before the
//	             end, with option m a `^` behind which nothing needs to be)
//	updates      $bit, pipelines, arithmetic on Decimal128, field names with a leading `$` in values
//	projections  computed fields, $meta, $elemMatch beside exclusions
//	sort         $meta
//	aggregation  stages beyond $match $project $group $sort $limit $skip $count $unwind $replaceWith, and
//	             $unionWith at the end of a pipeline; expressions
//	             beyond literals, field paths, $$ROOT and documents of these; accumulators beyond
//	             $sum $avg $min $max $first $last $push $addToSet; includeArrayIndex
//
// The rule of this package: answer as MongoDB 5.0 does, or refuse. What
// MongoDB has and this package lacks is refused with mongoerr.NotImplemented
// naming it; what MongoDB itself refuses gets MongoDB's own code. Storage,
// indexes and commands are package embedded's.
package query
