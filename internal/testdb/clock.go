package testdb

import (
	"sync/atomic"
	"time"
)

// Clock stands still until a test moves it: however long the machine does not get on, no time passes.
type Clock struct {
	began time.Time
	moved atomic.Int64
}

// NewClock makes a clock that shows the machine's time.
func NewClock() *Clock { return &Clock{began: time.Now().Round(0)} }

// Move sets the clock forward.
func (c *Clock) Move(d time.Duration) { c.moved.Add(int64(d)) }

// Now is the time that it shows.
func (c *Clock) Now() time.Time { return c.began.Add(time.Duration(c.moved.Load())) }

// Monotonic counts from long ago, so that zero, which stands for never, is long past.
func (c *Clock) Monotonic() time.Duration { return c.Now().Sub(c.began.AddDate(-100, 0, 0)) }

// Sleeper is the clock of a machine that sleeps now and then: meanwhile its monotonic clock stands still.
type Sleeper struct {
	began time.Time
	slept atomic.Int64
}

// NewSleeper makes the clock of a machine that has not slept.
func NewSleeper() *Sleeper { return &Sleeper{began: time.Now()} }

// Sleep has the machine sleep for so long, at once.
func (s *Sleeper) Sleep(d time.Duration) { s.slept.Add(int64(d)) }

// Now is the machine's time.
func (*Sleeper) Now() time.Time { return time.Now() }

// Monotonic counts from long ago, as that of a [Clock].
func (s *Sleeper) Monotonic() time.Duration {
	return time.Since(s.began) - time.Duration(s.slept.Load()) + s.began.Sub(s.began.AddDate(-100, 0, 0))
}
