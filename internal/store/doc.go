// Package store holds every MongoDB query of the project. It carries out what the pure
// rules of package model decided, each decision as one guarded update, and knows
// nothing of why.
//
//	tasks_find.go    what is due, lapsed, next           (indexes due and lapse)
//	tasks_write.go   batches of guarded writes, takeovers            (index _id)
//	tasks_keep.go    pings, checkpoints, progress                    (index _id)
//	steps.go         steps of handlers, in batches                   (index _id)
//	held.go          documents that somebody's open transaction holds
//	head.go          where a queue began when it was last looked at
//	statements.go    how such a batch becomes update commands
//	tasks_change.go  inserts, single changes, lives, listing
//	history.go       lives that are over, and for how long they are kept
//	history_archive.go  how ended tasks move there
//	history_find.go  pages over tasks and history
//	workers.go       heartbeats: who lives, and what time it is
//	control.go       the control document, pauses, signals
//	term.go          since when the primary is known
//	permits.go, stream.go   change streams, and the right to hold one
//	clock.go         the database's time, estimated
//	schema.go        indexes and the schema's version
//	sentinel.go      the live key at the right end of the indexes
//	errors.go        what a caller can do about an error
//
// Every query names the index that serves it in its comment; a test of package
// integration asks the server to explain the hot ones.
package store
