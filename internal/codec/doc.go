// Package codec reads and writes documents as BSON, and values as JSON.
//
// encode.go and decode.go write and read a task without reflection, and leave to the
// driver what few tasks have. diff.go makes the smallest update between two tasks.
// event.go tells what a write of a change stream did. value.go turns JSON values into the
// equal BSON and back. No rule lives here: see package lifecycle.
package codec
