// Package model holds the documents of mscheduler and the pure rules over them.
//
// A rule takes a task as it was read, what is wanted, the options that apply and a
// time, and returns the task as it shall be, or the reason why not. It never changes
// its input, does no I/O and reads no clock. [Diff] turns the two documents into one
// small MongoDB update; internal/store writes it, guarded by what the rule had read.
//
//	        Send                      Claim                    Finish
//	Draft ───────▶ New / Wait / due ───────▶ Executing ───────────────▶ Success
//	                     ▲  ▲                  │   │  Expire (lease lapsed)
//	                     │  └── release ───────┘   ├──▶ Error ──(retry due)──▶ Claim
//	                     └───── RetryNow ──────────┴──▶ Failure, Pending, Cancelled
//
// Where to look: a task's state is decided in settle.go and nowhere else; who may
// claim in claim.go; what an end makes of a task in finish.go; what a person's command
// does in command.go; what a second send of a key does in send.go; by which options an
// execution is judged in applied.go.
//
// The words are those of docs/reference.md. An execution is one worker's hold on a
// task; it is open until it succeeds or fails; its lease is ping_expire_time; a lease
// that passed without a ping has lapsed.
package model
