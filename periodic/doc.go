// Package periodic turns cron rules into tasks. Every tick of a rule becomes one task, or a
// record of why it was skipped. Crashes and concurrent engines neither lose nor duplicate a
// tick.
//
//	rule ──tickplan (pure)─▶ decision ──one write, guarded by the rule's rev──▶ rule.planned[]
//	                                                                            │
//	        task sent, record stored (each idempotent) ◀── whoever sees it ─────┘
//
// Any number of engines ([Periodic.Run]) may run concurrently, without a leader. Each decision
// (a tick, a manual trigger, the end of a run, the start of a queued run) is one write to the
// rule's document. The write is conditional on the rev that the decision read, and stores the
// resulting actions as a snapshot. Therefore each tick is decided once. If a process dies
// before it applies the actions, another engine applies them.
//
// internal/tickplan decides, with pure functions of a rule's document and a time. This package
// applies the decisions.
package periodic
