// Package model contains the public types of tasks: documents, options, statuses, errors and
// events.
//
// A [Task] is one document. An execution ([WorkerState]) begins when a worker claims the task,
// and is open until it succeeds or fails. Its lease ends at ping_expire_time. If that time
// passes without a ping, the lease has lapsed and another worker may take over the task.
// docs/architecture.md defines these terms.
//
// The rules that change these documents are in internal/lifecycle. The documents of
// periodic rules are in package periodic/schedule.
package model
