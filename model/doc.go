// Package model holds what users of mscheduler see of tasks: documents, options, statuses,
// errors and events.
//
// The words are those of docs/architecture.md. A [Task] is one document. An execution is
// one worker's hold on a task ([WorkerState]). It is open until it succeeds or fails. Its
// lease is ping_expire_time: once that time has passed without a ping, the lease has
// lapsed and another worker may take the task over.
//
// The rules that change these documents are in internal/lifecycle. The documents of
// periodic rules are in package periodic/schedule.
package model
