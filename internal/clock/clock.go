// Package clock is the one place of the product that reads the machine's time.
package clock

import "time"

// Clock is what code that waits or stamps takes instead of package time. Tests replace
// it to give a worker a clock that is hours off or jumps.
type Clock interface {
	// Now is the wall clock: it may be wrong and may jump.
	Now() time.Time
	// Monotonic counts from an arbitrary start and never goes back. It may stand still
	// while the machine sleeps.
	Monotonic() time.Duration
}

// System is the machine's own clock.
func System() Clock { return system{} }

type system struct{}

// start is long ago, so that zero, which stands for never, is long past: also in a bubble of testing/synctest,
// where it is the year 2000.
var start = time.Now().Add(-100 * 365 * 24 * time.Hour)

func (system) Now() time.Time           { return time.Now() }
func (system) Monotonic() time.Duration { return time.Since(start) }

// Instant is a reading of both clocks, to measure from.
type Instant struct {
	wall time.Time
	mono time.Duration
}

// Read takes an instant now.
func Read(c Clock) Instant { return Instant{wall: c.Now().Round(0), mono: c.Monotonic()} }

// Before is the instant that much earlier.
func (i Instant) Before(d time.Duration) Instant {
	return Instant{wall: i.wall.Add(-d), mono: i.mono - d}
}

// After reports whether the monotonic clock says that the instant is later than the other.
func (i Instant) After(other Instant) bool { return i.mono > other.mono }

// Since is how much time has passed since the instant for somebody who must not be
// late: the longer of what the two clocks say. The monotonic one stands still while
// the machine sleeps, the wall clock may be set back.
func (i Instant) Since(c Clock) time.Duration {
	return max(c.Monotonic()-i.mono, c.Now().Round(0).Sub(i.wall))
}

// Drift is by how much the clocks disagree about the time since the instant: positive
// when the wall clock went on faster, as after a sleep or a jump.
func (i Instant) Drift(c Clock) time.Duration {
	return c.Now().Round(0).Sub(i.wall) - (c.Monotonic() - i.mono)
}

// SinceMonotonic is what the monotonic clock alone says has passed.
func (i Instant) SinceMonotonic(c Clock) time.Duration { return c.Monotonic() - i.mono }
