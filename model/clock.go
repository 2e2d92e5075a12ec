package model

import "time"

// Clock measures waits by this machine's time. Tests replace it in a Config. The times of tasks
// come from the database's clock.
type Clock interface {
	// Now is the wall clock: it may be wrong and may jump.
	Now() time.Time
	// Monotonic counts from an arbitrary start and never goes back. It may stand still
	// while the machine sleeps.
	Monotonic() time.Duration
}
