// Package callback tells receivers over HTTP that a task has ended.
//
//	end of a task ─▶ outbox: callback ─▶ Handover: a task of type mscheduler.callback
//	                                        │ a worker that delivers claims it
//	                                        ▼
//	                     Deliverer: POST or PUT, signed ─▶ 2xx: its task succeeds
//	                                        │
//	its end ───────▶ outbox: delivery ─▶ Settlement: Completed becomes Success, or, when
//	                                     it failed for good, may move to the history
//
// Each arrow is one write that can be repeated, and what has not been done is in the
// database, so a process that dies between two of them forgets nothing: the receiver is
// told at least once, by an id that stays the same. The public package callback is the
// receivers' side; secrets are sealed by internal/secret.
package callback
