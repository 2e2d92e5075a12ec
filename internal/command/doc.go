// Package command is the room that the doors share (producer, admin, pull): what they do to a
// task or a type passes through it.
//
//	Prepare ──▶ Tasks.Change(read ─▶ rule ─▶ guarded write) ──▶ limits, what follows an end, signals
//
// prepare.go checks schema, clock and types before the first write. change.go carries a rule
// out on one task; named.go has it spare a life that is not the one that was meant. finish.go ends an execution for those who have its handle; keep.go saves what it says of itself, and parks it. committed.go tells
// workers of what a caller's transaction changed, once that has committed.
//
// How tasks are sent, fetched and found lives in the doors.
package command
