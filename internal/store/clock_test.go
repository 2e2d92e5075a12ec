package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// machine is a machine's two clocks, set by hand.
type machine struct {
	wall time.Time
	mono time.Duration
}

func (m *machine) Now() time.Time           { return m.wall }
func (m *machine) Monotonic() time.Duration { return m.mono }

func (m *machine) pass(d time.Duration) {
	m.wall, m.mono = m.wall.Add(d), m.mono+d
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// reading is one that took a round trip; the server looked at its clock in its middle.
func reading(m *machine, c *Clock, server time.Time, trip time.Duration) {
	asked := clock.Read(m)
	m.pass(trip)
	c.observe(server.Add(trip/2), asked)
}

func TestTheClockNeverRunsAheadOfTheDatabase(t *testing.T) {
	m := &machine{wall: noon.Add(-5 * time.Hour)}
	c := newClock(m)
	require.False(t, c.Known())
	require.True(t, c.Now().IsZero())
	reading(m, c, noon, 10*time.Millisecond)
	// The database's time is now noon + 10 ms; the estimate lags by what the answer took.
	require.Equal(t, noon.Add(5*time.Millisecond), c.Now())
	require.Equal(t, 10*time.Millisecond, c.Error())
	m.pass(20 * time.Second)
	require.Equal(t, noon.Add(20*time.Second+5*time.Millisecond), c.Now())
}

func TestAJumpOfTheWallClockDoesNotMoveTheEstimateButMakesItOld(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		m := &machine{wall: noon}
		c := newClock(m)
		reading(m, c, noon, 0)
		m.pass(time.Second)
		require.Equal(t, time.Second, c.Age())
		m.wall = m.wall.Add(jump)
		require.Equal(t, noon.Add(time.Second), c.Now())
		require.GreaterOrEqual(t, c.Age(), 59*time.Minute)
	}
}

func TestASurpriseIsToldOnce(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	reading(m, c, noon, 0)
	require.Zero(t, c.TakeJump(), "the first reading surprises nobody")
	m.pass(30 * time.Second)
	reading(m, c, noon.Add(30*time.Second), 0)
	require.Zero(t, c.TakeJump())
	m.pass(30 * time.Second)
	reading(m, c, noon.Add(90*time.Second), 0) // this machine slept for half a minute
	require.Equal(t, 30*time.Second, c.TakeJump())
	require.Zero(t, c.TakeJump())
	reading(m, c, noon, 0) // another primary, whose clock is behind
	require.Equal(t, 90*time.Second, c.TakeJump())
	require.Equal(t, noon, c.Now())
}

func TestASkipIsForGood(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	reading(m, c, noon, 0)
	c.Skip(time.Hour)
	require.Equal(t, noon.Add(time.Hour), c.Now())
	reading(m, c, noon, 0)
	require.Equal(t, noon.Add(time.Hour), c.Now())
	require.Zero(t, c.TakeJump(), "a skip is no surprise")
}
