package claim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// machine is this machine's clock and the estimate of the database's, set by hand.
type machine struct {
	wall  time.Time
	mono  time.Duration
	read  clock.Instant
	err   time.Duration
	jumps clock.Marks
}

func (m *machine) Now() time.Time           { return m.wall }
func (m *machine) Monotonic() time.Duration { return m.mono }
func (m *machine) Age() time.Duration       { return m.read.Since(m) }
func (m *machine) Error() time.Duration     { return m.err }

func (m *machine) Jumped(over time.Duration) (time.Duration, bool) {
	at, ok := m.jumps.Last(over)
	return at.SinceMonotonic(m), ok
}

func (m *machine) pass(d time.Duration) { m.wall, m.mono = m.wall.Add(d), m.mono+d }

// watcher is a process that has watched the database for a minute.
type watcher struct {
	*machine
	*Trust
}

func newWatcher() watcher {
	m := &machine{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w := watcher{m, NewTrust(m, m)}
	w.SawPrimary("") // a router
	w.SawPrimary("one")
	w.watch(time.Minute)
	return w
}

// watch lets time pass while the database answers, and the clock is read.
func (w watcher) watch(d time.Duration) {
	const step = 100 * time.Millisecond
	for ; d > 0; d -= step {
		w.pass(min(step, d))
		w.Answered()
		w.readClock()
	}
}

func (w watcher) readClock() { w.read = clock.Read(w) }

func terms(lease, ping time.Duration) *lifecycle.Effective {
	return &lifecycle.Effective{Lease: lease, PingInterval: ping}
}

var (
	short = terms(2*time.Second, 500*time.Millisecond)
	usual = terms(30*time.Second, 10*time.Second)
)

func TestWhoHasWatchedMayPreempt(t *testing.T) {
	w := newWatcher()
	require.LessOrEqual(t, w.Wait(short), time.Duration(0))
	require.LessOrEqual(t, w.Wait(usual), time.Duration(0))
}

func TestAfterAnOutageHealthyWorkersHaveTheirPingIntervalAndTheTimeToNotice(t *testing.T) {
	w := newWatcher()
	w.Failed()
	require.Positive(t, w.Wait(short))
	w.pass(time.Hour)
	require.Positive(t, w.Wait(short), "it is still away")
	require.False(t, w.WantsClock(), "nobody could read it")
	w.Answered()
	require.True(t, w.WantsClock(), "another server may answer now")
	w.readClock()
	require.False(t, w.WantsClock())
	require.Equal(t, short.PingInterval+Notice, w.Wait(short))
	require.Equal(t, usual.PingInterval+Notice, w.Wait(usual))
	w.watch(short.PingInterval + Notice)
	require.LessOrEqual(t, w.Wait(short), time.Duration(0))
	require.Equal(t, usual.PingInterval-short.PingInterval, w.Wait(usual), "each task by its own terms")
	w.watch(usual.PingInterval)
	require.LessOrEqual(t, w.Wait(usual), time.Duration(0))
}

func TestAfterAnOutageTheClockIsReadBeforeAnybodyIsPreempted(t *testing.T) {
	w := newWatcher()
	w.Failed()
	w.Answered()
	for range 100 {
		w.pass(time.Second)
		w.Answered()
	}
	require.Positive(t, w.Wait(short))
	w.readClock()
	require.LessOrEqual(t, w.Wait(short), time.Duration(0))
}

func TestAnotherPrimaryIsAReasonToWaitAndTheFirstIsNone(t *testing.T) {
	w := newWatcher()
	require.False(t, w.SawPrimary("one"))
	require.Equal(t, "one", w.Primary())
	require.LessOrEqual(t, w.Wait(short), time.Duration(0))
	require.True(t, w.SawPrimary("two"))
	w.readClock()
	require.Equal(t, short.PingInterval+Notice, w.Wait(short))
	require.Equal(t, usual.PingInterval+Notice, w.Wait(usual), "whatever the lease")
}

// Where nobody tells of elections, what happened between two answers is not known.
func TestAGapBetweenAnswersCountsForLeasesThatAreShorter(t *testing.T) {
	for name, c := range map[string]struct {
		gap          time.Duration
		short, usual bool // whether their tasks wait
	}{
		"a second":     {time.Second, false, false},
		"ten seconds":  {10 * time.Second, true, false},
		"half an hour": {30 * time.Minute, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher()
			w.pass(c.gap)
			waits := func() {
				t.Helper()
				require.Equal(t, c.short, w.Wait(short) > 0)
				require.Equal(t, c.usual, w.Wait(usual) > 0)
			}
			w.readClock()
			waits() // before the answer
			w.Answered()
			waits() // and after it
			w.watch(short.PingInterval + Notice)
			require.LessOrEqual(t, w.Wait(short), time.Duration(0))
			require.Equal(t, c.usual, w.Wait(usual) > 0)
			w.watch(usual.PingInterval)
			require.LessOrEqual(t, w.Wait(usual), time.Duration(0))
		})
	}
}

func TestWhoAsksAsOftenAsItShouldMayPreemptInTheEnd(t *testing.T) {
	for _, eff := range []*lifecycle.Effective{terms(time.Second, 300*time.Millisecond), short, usual, terms(time.Hour, time.Minute)} {
		w := newWatcher()
		w.Doubt()
		w.pass(time.Hour)
		for range 100 {
			w.Answered()
			w.readClock()
			var left LeftAlone
			if w.Allows(eff, &left) {
				break
			}
			w.pass(min(left.Wait, left.Every))
		}
		require.LessOrEqual(t, w.Wait(eff), time.Duration(0), "%+v", eff)
	}
}

func TestWhatIsLeftAloneWaitsForTheFirstAndIsWatchedForTheShortest(t *testing.T) {
	w := newWatcher()
	w.Doubt()
	w.readClock()
	var all, one LeftAlone
	require.False(t, w.Allows(usual, &all))
	require.False(t, w.Allows(short, &all))
	require.False(t, w.Allows(usual, &all))
	require.False(t, w.Allows(short, &one))
	require.Equal(t, one, all)
	require.Equal(t, w.Wait(short), all.Wait)
	require.Less(t, all.Every, shortestGap)
}

// A small lease suffers from a jump that a long one has in its margin; it waits, and whoever
// asks for the long one first changes nothing.
func TestAJumpOfTheClockIsJudgedForEachLease(t *testing.T) {
	w := newWatcher()
	w.jumps.Add(time.Second, clock.Read(w))
	require.LessOrEqual(t, w.Wait(usual), time.Duration(0), "its margin is three seconds")
	require.Positive(t, w.Wait(short))
	require.Positive(t, w.Wait(short), "asked again")
	long := terms(time.Hour, time.Minute)
	w.jumps.Add(2*time.Hour, clock.Read(w))
	require.Equal(t, long.Lease, w.Wait(long), "a lease, at least")
}

// The owner goes by its old clock until its next reading; only the ping after that is right.
func TestAfterAJumpTheOwnerHasItsNextReadingAndItsPing(t *testing.T) {
	w := newWatcher()
	w.jumps.Add(time.Minute, clock.Read(w))
	want := store.MaxClockAge + usual.PingInterval + Notice
	require.Equal(t, want, w.Wait(usual))
	w.watch(want - time.Second)
	require.Equal(t, time.Second, w.Wait(usual))
	w.watch(time.Second)
	require.LessOrEqual(t, w.Wait(usual), time.Duration(0))
}

func TestALaterTroubleNeverShortensTheWait(t *testing.T) {
	for name, later := range map[string]func(w watcher){
		"an outage":       func(w watcher) { w.Failed(); w.Answered() },
		"another primary": func(w watcher) { w.SawPrimary("two") },
		"a gap":           func(w watcher) { w.pass(20 * time.Second); w.Answered() },
		"a smaller jump":  func(w watcher) { w.jumps.Add(4*time.Second, clock.Read(w)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher()
			w.jumps.Add(time.Minute, clock.Read(w))
			w.watch(10 * time.Second)
			before, at := w.Wait(usual), w.mono
			later(w)
			w.readClock()
			require.GreaterOrEqual(t, w.Wait(usual), before-(w.mono-at))
		})
	}
}

func TestAWallClockThatJumpsNeverShortensTheWait(t *testing.T) {
	w := newWatcher()
	w.Failed()
	w.Answered()
	w.readClock()
	w.wall = w.wall.Add(time.Hour)
	w.Answered()
	w.readClock()
	require.Equal(t, usual.PingInterval+Notice, w.Wait(usual))
}

func TestAnOldReadingOfTheClockIsNoGroundToPreempt(t *testing.T) {
	w := newWatcher()
	for range 120 {
		w.pass(time.Second)
		w.Answered()
	}
	require.Positive(t, w.Wait(usual))
	w.readClock()
	require.LessOrEqual(t, w.Wait(usual), time.Duration(0))
}

func TestAnInexactClockMakesTheWaitAWholeLease(t *testing.T) {
	w := newWatcher()
	w.err = 4 * time.Second
	w.Failed()
	w.Answered()
	w.readClock()
	require.Equal(t, usual.Lease, w.Wait(usual))
}

func TestASlowReadingOfTheClockIsRepeated(t *testing.T) {
	w := newWatcher()
	w.Answered()
	require.False(t, w.WantsClock())
	w.err = 2 * time.Second
	for range maxRepeated {
		require.True(t, w.WantsClock(), "leases are that much shorter")
	}
	require.False(t, w.WantsClock(), "a network that is always slow is not asked all the time")
	w.err = 5 * time.Second
	require.True(t, w.WantsClock(), "one was slower still")
	w.err = 10 * time.Millisecond
	require.False(t, w.WantsClock())
	w.err = 2 * time.Second
	require.True(t, w.WantsClock(), "another reading was slow")
}
