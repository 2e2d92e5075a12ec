// Package codec reads and writes documents as BSON, and values as JSON.
//
// plan.go reads struct tags, once for each type. encode.go and decode.go write and read documents by
// them without reflection, and diff.go makes the smallest update between two documents.
// event.go tells what a write of a change stream did. value.go turns JSON values into the
// equal BSON and back. No rule lives here: see package lifecycle.
package codec
