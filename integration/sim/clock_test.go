package sim

import (
	"sync/atomic"
	"time"
)

// machine is the clock of one machine: its wall clock is wrong and jumps, and both clocks drift.
type machine struct {
	start time.Time
	drift float64      // by how much a second is too long, or too short
	off   atomic.Int64 // nanoseconds
}

func newMachine(drift float64, off time.Duration) *machine {
	m := &machine{start: time.Now(), drift: drift}
	m.off.Store(int64(off))
	return m
}

func (m *machine) Monotonic() time.Duration {
	passed := time.Since(m.start)
	return passed + time.Duration(float64(passed)*m.drift)
}

func (m *machine) Now() time.Time {
	return m.start.Add(m.Monotonic() + time.Duration(m.off.Load())).Round(0)
}

func (m *machine) jump(by time.Duration) { m.off.Add(int64(by)) }
