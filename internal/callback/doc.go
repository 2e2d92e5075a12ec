// Package callback calls receivers over HTTP when a task has ended.
//
//	end of a task ─▶ outbox: callback ─▶ Handover: a task of type mscheduler.callback
//	                                        │ a worker that delivers claims it
//	                                        ▼
//	                     Deliverer: POST or PUT, signed ─▶ 2xx: its task succeeds
//	                                        │
//	its end ───────▶ outbox: delivery ─▶ Settlement: Completed becomes Success, or, when
//	                                     it failed for good, may move to the history
//
// A flow has no outbox: what it tells is planned in its document, with the decision, and becomes a
// task of the same type. The same Deliverer calls its receiver.
//
// Each arrow is one write that can be repeated, and the database knows which are left. So a process
// that dies between two of them loses nothing: the receiver is called at least once, with an id that
// never changes. The public package callback is the receivers' side, internal/httpcall makes the
// calls, and internal/secret seals the secrets.
package callback
