// Package periodic turns cron rules into tasks: every tick of a rule becomes one task, or a
// record of why it did not, and neither a crash nor a second engine loses or doubles one.
//
//	rule ──tickplan (pure)─▶ decision ──one write, guarded by the rule's rev──▶ rule.planned[]
//	                                                                            │
//	        task sent, record stored (each idempotent) ◀── whoever sees it ─────┘
//
// Any number of engines ([Periodic.Run]) may work at once, without a leader. Everything that
// decides, a tick, a manual trigger, the end of a run, the start of a queued one, is one
// write on the rule's document that names the rev it was decided on, and carries what is to
// be done as a snapshot. So a tick is decided once; and a process that dies in between
// leaves it to the next that looks.
//
// internal/tickplan decides: pure functions of a rule's document and a time. This package
// carries the decisions out.
package periodic
