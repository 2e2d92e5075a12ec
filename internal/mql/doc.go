// Package mql is the room of MongoDB's query language, by MongoDB 5.0's rules, as
// pure functions of BSON documents: what a value is less than, which documents a
// filter matches, what an update makes of one, what an aggregation answers.
//
//	mongoerr ◀── value ◀── query
//
//	mongoerr/  the codes and texts of MongoDB's errors
//	value/     order, keys and arithmetic of BSON values
//	query/     filters, updates, projections, sorting, aggregation
//
// It knows no server, no command, no index and no file: package embedded is the
// server that speaks this language. What either lacks is refused by name, and
// listed in the doc.go of query or of embedded.
package mql
