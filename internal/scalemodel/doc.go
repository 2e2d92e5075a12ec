// Package scalemodel predicts what a fleet asks of its MongoDB: how large documents and indexes
// become, which commands workers send, how many claims a crowd loses, and when one server is full.
// It is a model. It does no I/O, and docs/scale.md shows its numbers.
//
//	sizes.go     the documents of a task's life, as the product encodes them, and their index keys
//	commands.go  what workers send a second, from the pauses that the product's packages export
//	crowd.go     a crowd on one queue in virtual time; each worker is the real fetchplan.Plan
//	fleet.go     a fleet and what is estimated of it; costs.go the measured costs behind that
//
// measured_test.go compares the model with real workers and the embedded server in virtual time.
package scalemodel
