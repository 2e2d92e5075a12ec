package store

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
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
	require.True(t, c.Now().IsZero())
	reading(m, c, noon, 10*time.Millisecond)
	// The database's time is now noon + 10 ms; the estimate lags by what the answer took.
	require.Equal(t, noon.Add(5*time.Millisecond), c.Now())
	require.Equal(t, 10*time.Millisecond, c.Error())
	m.pass(20 * time.Second)
	require.Equal(t, noon.Add(20*time.Second+5*time.Millisecond), c.Now())
}

// While the machine sleeps its monotonic clock stands still, so the estimate lags by the sleep. A wall clock that is
// adjusted does not matter.
func TestAReadingFromBeforeASleepIsOld(t *testing.T) {
	for _, c := range []struct {
		drift time.Duration
		old   bool
	}{{0, false}, {60 * time.Millisecond, false}, {-60 * time.Millisecond, false}, {200 * time.Millisecond, true}, {12 * time.Second, true}, {-12 * time.Second, true}} {
		m := &machine{wall: noon}
		k := newClock(m)
		reading(m, k, noon, 0)
		m.pass(time.Second)
		m.wall = m.wall.Add(c.drift)
		require.Equal(t, c.old, k.Age() >= MaxClockAge, c.drift)
		reading(m, k, noon, 0)
		require.Zero(t, k.Age(), "the next reading counts")
	}
}

func TestASleepWhileTheClockIsReadMakesTheReadingVague(t *testing.T) {
	m := &machine{wall: noon}
	k := newClock(m)
	asked := clock.Read(m)
	m.pass(10 * time.Millisecond)
	m.wall = m.wall.Add(12 * time.Second)
	k.observe(noon, asked)
	require.GreaterOrEqual(t, k.Error(), 12*time.Second)
}

func TestAStampSaysByHowMuchItMayLag(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	require.True(t, c.Stamp().Now.IsZero())
	reading(m, c, noon, 2*time.Second)
	m.pass(time.Second)
	s := c.Stamp()
	require.Equal(t, c.Now(), s.Now)
	require.Equal(t, 2*time.Second, s.Behind)
	m.pass(time.Second)
	require.Equal(t, time.Second, s.At.Since(m))
}

func TestWhatWasSentHasBeenSent(t *testing.T) {
	const behind = 10 * time.Millisecond
	at := func(after time.Duration) *model.Task { return &model.Task{CreatedAt: noon.Add(after)} }
	s := Stamp{Now: noon, Behind: behind}
	for sent, want := range map[time.Duration]time.Duration{
		-time.Second:              0,
		0:                         0,
		behind:                    behind,
		behind + 2*clockGrain:     behind + 2*clockGrain,
		behind + 2*clockGrain + 1: 0, // a clock that is wrong
		24 * time.Hour:            0,
	} {
		require.Equal(t, noon.Add(want), s.After(at(sent)).Now, sent)
	}
	require.Equal(t, noon.Add(behind), s.After(at(behind), at(2*behind), at(1)).Now, "all by the same estimate")
	require.Equal(t, noon, s.After().Now)
	require.True(t, Stamp{}.After(at(0)).Now.IsZero(), "the clock was never read")
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

func TestSkipsAreRefusedBeforeTheyOverflow(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	reading(m, c, noon, 0)
	require.True(t, c.Skip(maxSkipped-time.Hour))
	require.False(t, c.Skip(math.MaxInt64))
	require.False(t, c.Skip(time.Hour+1))
	require.Equal(t, noon.Add(maxSkipped-time.Hour), c.Now())
	require.True(t, c.Skip(time.Hour))
	require.Equal(t, noon.Add(maxSkipped), c.Now())
}

func TestTheClockRemembersWhenAJumpOfEachSizeLastHappened(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	jumped := func(over, ago time.Duration) {
		t.Helper()
		got, ok := c.Jumped(over)
		require.True(t, ok)
		require.Equal(t, ago, got)
	}
	reading(m, c, noon, 0)
	requireSteady(t, c) // the first reading contradicts nothing
	m.pass(30 * time.Second)
	reading(m, c, noon.Add(30*time.Second), 0)
	requireSteady(t, c)
	m.pass(30 * time.Second)
	reading(m, c, noon.Add(90*time.Second), 0) // this machine slept for half a minute
	m.pass(10 * time.Second)
	reading(m, c, noon.Add(90*time.Second), 0) // another primary, whose clock is behind
	m.pass(5 * time.Second)
	for range 2 { // nobody's question changes the next answer
		jumped(29*time.Second, 15*time.Second)
		jumped(10*time.Second, 15*time.Second)
		jumped(9*time.Second, 5*time.Second)
	}
	_, ok := c.Jumped(30 * time.Second)
	require.False(t, ok, "none was larger")
	require.Equal(t, noon.Add(95*time.Second), c.Now())
}

func requireSteady(t require.TestingT, c *Clock) {
	_, jumped := c.Jumped(0)
	require.False(t, jumped)
}

// readingAt is one that took a round trip, in which the server looked at its clock after the
// part of it.
func readingAt(m *machine, c *Clock, began time.Time, trip, part time.Duration) (now time.Time) {
	asked := clock.Read(m)
	m.pass(trip)
	c.observe(began.Add(part).Truncate(time.Millisecond), asked)
	return began.Add(trip)
}

func TestASlowReadingAmongQuickOnesMakesTheEstimateNoWorse(t *testing.T) {
	for name, part := range map[string]time.Duration{"the answer was slow": 0, "the question was slow": time.Second, "both were": time.Second / 2} {
		t.Run(name, func(t *testing.T) {
			m := &machine{wall: noon}
			c := newClock(m)
			now := readingAt(m, c, noon, 2*time.Millisecond, time.Millisecond)
			m.pass(30 * time.Second)
			now = readingAt(m, c, now.Add(30*time.Second), time.Second, part)
			requireSteady(t, c)
			require.False(t, c.Now().After(now))
			require.Less(t, now.Sub(c.Now()), 10*time.Millisecond)
			require.Less(t, c.Error(), 10*time.Millisecond)
			require.Zero(t, c.Age(), "it is a reading all the same")
		})
	}
}

func TestAQuickReadingMendsWhatASlowOneSaid(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	now := readingAt(m, c, noon, time.Second, 0)
	require.Equal(t, time.Second, c.Error())
	now = readingAt(m, c, now, 2*time.Millisecond, time.Millisecond)
	require.LessOrEqual(t, c.Error(), 2*time.Millisecond)
	require.LessOrEqual(t, now.Sub(c.Now()), 2*time.Millisecond)
}

func TestInDoubtTheNextReadingCounts(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	readingAt(m, c, noon, 0, 0)
	const behind = 30 * time.Millisecond // of another primary: less than its answer takes
	trip := 100 * time.Millisecond
	readingAt(m, c, noon.Add(-behind), trip, trip/2)
	require.Equal(t, noon.Add(trip).Add(-trip/clockRates).Truncate(time.Millisecond), c.Now(), "it allows what was known")
	c.Doubt()
	readingAt(m, c, noon.Add(trip-behind), trip, trip/2)
	require.Equal(t, noon.Add(trip-behind+trip/2), c.Now())
	require.Equal(t, trip, c.Error())
}

// Whatever the ways, and whichever of the two clocks is the faster.
func TestTheDatabaseIsNeverBehindTheEstimateNorAheadOfItByMoreThanItsError(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := &machine{wall: noon}
		c := newClock(m)
		now := noon
		faster := rapid.Int64Range(-90, 90).Draw(r, "faster, in millionths")
		pass := func(d time.Duration) {
			m.pass(d)
			now = now.Add(d + d*time.Duration(faster)/1_000_000)
		}
		span := func(most time.Duration, what string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(r, what))
		}
		for range rapid.IntRange(1, 20).Draw(r, "readings") {
			asked := clock.Read(m)
			pass(span(time.Second, "way there"))
			said := now.Truncate(time.Millisecond)
			pass(span(time.Second, "way back"))
			c.observe(said, asked)
			requireSteady(r, c)
			require.False(r, c.Now().After(now))
			require.LessOrEqual(r, now.Sub(c.Now()), c.Error()+2*time.Millisecond, "a reading and the estimate are cut")
			pass(span(time.Hour, "until the next"))
		}
	})
}

func TestASkipIsForGood(t *testing.T) {
	m := &machine{wall: noon}
	c := newClock(m)
	reading(m, c, noon, 0)
	c.Skip(time.Hour)
	require.Equal(t, noon.Add(time.Hour), c.Now())
	reading(m, c, noon, 0)
	require.Equal(t, noon.Add(time.Hour), c.Now())
	requireSteady(t, c) // a skip is no jump
}
