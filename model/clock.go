package model

import "time"

// Clock is this machine's time, by which waits are measured. Tests replace it in a Config; the
// times of tasks are the database's.
type Clock interface {
	// Now is the wall clock: it may be wrong and may jump.
	Now() time.Time
	// Monotonic counts from an arbitrary start and never goes back. It may stand still
	// while the machine sleeps.
	Monotonic() time.Duration
}
