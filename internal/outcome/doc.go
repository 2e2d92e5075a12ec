// Package outcome carries out what must follow the end of a task.
//
//	the update that ends a task ──▶ outbox: [{kind, rev}] in the same write
//	                                   │
//	  who ended it, at once ───────────┤ Kind.Carry ──▶ entry removed
//	  a sweeper, what is left over ────┘
//
// The entry is written by the very update that ends the task, and removed only when its
// [Kind] has carried it out. So a crash anywhere leaves it to the sweeper, and carrying
// out must be idempotent by the entry's id: it happens at least once. There is a kind for
// each follower: callbacks here, periodic rules, flows and plans in their own packages.
package outcome
