// Package codec reads and writes documents as BSON, and values as JSON.
//
// plan.go reads the struct tags of package model, once. encode.go and decode.go write and read
// tasks by them without reflection, and diff.go makes the smallest update between two tasks.
// event.go tells what a write of a change stream did. value.go turns JSON values into the
// equal BSON and back. No rule lives here: see package lifecycle.
package codec
