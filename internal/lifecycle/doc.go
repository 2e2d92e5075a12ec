// Package lifecycle holds the rules of a task's life, as pure functions over the documents
// of package model.
//
// A rule takes a task as it was read, what is wanted, the options that apply and a time.
// It returns the task as it must become, or the reason why not. It never changes its
// input, does no I/O and reads no clock. codec.Diff turns the two documents into one small
// MongoDB update. Package store writes it, guarded by what the rule had read.
//
//	        Send                      Claim                    Finish
//	Draft ───────▶ New / Wait / due ───────▶ Executing ───────────────▶ Success
//	                     ▲  ▲                  │   │  Expire (lease lapsed)
//	                     │  └── release ───────┘   ├──▶ Error ──(retry due)──▶ Claim
//	                     └───── RetryNow ──────────┴──▶ Failure, Pending, Cancelled
//
// Where to look: settle.go alone decides a task's state. claim.go says who may claim,
// finish.go what an end makes of a task, command.go what a person's command does, send.go
// what a second send of a key does, and applied.go which options judge an execution.
// limit.go and rate.go hold the rules of limits; internal/limits carries them out.
package lifecycle
