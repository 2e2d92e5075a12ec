// Package producer creates tasks and commands them: send, await, cancel, retry, resolve,
// release, update, and the completion of executions from outside. Package admin has types,
// pauses and queries; package pull fetches tasks for workers that do not use this library.
//
//	Send ──▶ Middleware ──▶ group commit ──▶ one insert for all that gathered
//	SendMany ▶ Middleware ──────────────────▶ one insert for each 5,000
//	with a session in ctx ▶ Middleware ─────▶ upserts in the caller's transaction
//
// The primary key of a task is tenant/type/key, so a key is sent once: a second send
// of it finds the task and leaves it alone, or does what [OnExisting] says.
//
// # Errors
//
// Bad input is found before anything is written: the error is model.ErrInvalid
// (errors.Is) and an *model.InvalidError (errors.As) that names the field. A state that
// forbids a command is a *model.RefusedError. Every other error comes from the
// database and is returned wrapped, so that its labels and codes can be looked at.
//
// After such an error a send may or may not have happened: the connection may have
// broken before or after the server stored the task. Whoever sends again with the same
// key is safe in both cases, since the key is stored once; that is what keys are for.
// A send without [Key] makes up a key, and [Sent] holds it even when an error is
// returned, so that a careful caller can repeat with it.
//
// Where to look: options.go for what a send can say, insert.go for how tasks reach the
// database, again.go for keys that exist, await.go for waiting, commands.go for what is
// done to a task later, subscribe.go for what happens to tasks anywhere.
package producer
