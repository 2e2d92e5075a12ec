// Package audit records who changed what, and from where, for the REST API and the command line.
//
//	Begin ──▶ entry "unknown" is stored ──▶ the change ──▶ End ──▶ its outcome
//
//	log.go       entries are written: before a change, and when it has ended
//	snapshot.go  a thing as it is before and after a change, and what of it has changed
//	mask.go      what callers said, without secrets and without payloads
//
// A change begins only when its entry is stored: a database that refuses entries refuses changes, too. What
// became of the change is written afterwards, and nobody waits for that. So no change is without an entry,
// and an entry that stays "unknown" is of a process that was killed in between, or that could not write any
// more.
//
// What workers do with tasks is not recorded here: the documents of the tasks say it.
package audit
