// Package producer sends tasks and controls them: send, await, cancel, retry, resolve, release,
// update, and external completion of executions. Package admin manages types, pauses and
// queries. Package pull fetches tasks for workers that do not use this library.
//
//	Send ──▶ Middleware ──▶ group commit ──▶ one insert for all that gathered
//	SendMany ▶ Middleware ──────────────────▶ one insert for each 5,000
//	in a transaction ▶ Middleware ──────────▶ upserts in the caller's transaction
//
// The primary key of a task is tenant/type/key, which makes sends idempotent. A second send of
// a key finds the existing task. By default it changes nothing; [OnExisting] selects another
// behaviour.
//
// # Errors
//
// All input is validated before anything is written: an error matches model.ErrInvalid
// (errors.Is) and is a *model.InvalidError (errors.As) that names the field. If the state of
// the task forbids a command, the error is a *model.RefusedError. All other errors come from
// the database. They are returned wrapped, so that you can inspect their labels and codes.
//
// After a database error, the task may or may not be stored: the connection may have broken
// before or after the write. Sending again with the same key is safe in both cases, because a
// key is stored once. A send without [Key] generates a key. [Sent] contains it even if an error
// is returned, so that the caller can repeat the send with it.
//
// Where to look: options.go has the options of a send, insert.go writes tasks to the database,
// again.go handles existing keys, await.go waits for results, commands.go changes tasks later,
// and subscribe.go streams events.
package producer
