package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// machine has a wall clock that jumps, and a monotonic one that does not.
type machine struct{ wall, mono time.Duration }

func (m *machine) Now() time.Time           { return time.Unix(0, 0).Add(m.wall) }
func (m *machine) Monotonic() time.Duration { return m.mono }
func (m *machine) pass(d time.Duration)     { m.wall, m.mono = m.wall+d, m.mono+d }

func stamp(m *machine, behind time.Duration) store.Stamp {
	return store.Stamp{Now: m.Now(), At: clock.Read(m), Behind: behind}
}

// held is a lease of ten seconds that was claimed just now; deadline zero = none.
func held(m *machine, deadline time.Duration) *Hold {
	now := m.Now()
	w := model.WorkerState{ExecID: "x", ClaimedAt: now, PingExpireTime: now.Add(10 * time.Second)}
	if deadline > 0 {
		w.Deadline = now.Add(deadline)
	}
	return New(&model.Task{WorkerStates: []model.WorkerState{w}}, "x", &lifecycle.Effective{Lease: 10 * time.Second, PingInterval: 3 * time.Second}, stamp(m, 0))
}

func TestALeaseIsTrustedForAllButATenthAndLongerWithEachPing(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	require.Equal(t, 9*time.Second, h.Trusted(m))
	m.pass(4 * time.Second)
	require.Equal(t, 5*time.Second, h.Trusted(m))
	require.Negative(t, h.pingDue(m))
	h.prove(stamp(m, 0), 10*time.Second, false)
	require.Equal(t, 9*time.Second, h.Trusted(m))
	require.Equal(t, 3*time.Second, h.pingDue(m))
}

// The database's time may be later than this process knows, and others may know.
func TestALeaseIsTrustedForLessWhereTheClockIsInexactUnlessItEndsAtTheDeadline(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	h.prove(stamp(m, 2*time.Second), 10*time.Second, false)
	require.Equal(t, 7*time.Second, h.Trusted(m))
	require.Equal(t, 3*time.Second, h.pingDue(m), "pings come as often as ever")
	h = held(m, 20*time.Second)
	h.Begin()
	h.prove(stamp(m, 2*time.Second), 20*time.Second, true)
	require.Equal(t, 20*time.Second, h.Trusted(m), "the handler's own timer ends it")
}

func TestALeaseThatReachesToTheDeadlineHasNoMarginAndNeedsNoPing(t *testing.T) {
	m := &machine{}
	h := held(m, 20*time.Second)
	h.Begin()
	require.False(t, h.Bounded())
	h.prove(stamp(m, 0), 20*time.Second, true)
	require.True(t, h.Bounded())
	require.Equal(t, 20*time.Second, h.Trusted(m))
	require.True(t, held(m, 10*time.Second).Bounded(), "from the claim on")
}

// Whoever finds a deadline passed counts an error, also of a handler that was never called.
func TestALeaseThatReachesToTheDeadlineHasAMarginUntilTheHandlerIsCalled(t *testing.T) {
	m := &machine{}
	h := held(m, 10*time.Second)
	require.True(t, h.Bounded())
	require.Equal(t, 9*time.Second, h.Trusted(m))
	h.Begin()
	require.Equal(t, 10*time.Second, h.Trusted(m), "its own timer ends it")
}

func TestALeaseThatHasEndedByBothClocksIsNotAskedFor(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	m.pass(9500 * time.Millisecond) // within the margin
	require.Negative(t, h.Trusted(m))
	require.Equal(t, answered, asked(h, m))
}

// asked is the answer of askFirst without how long nobody needs an answer.
func asked(h *Hold, c clock.Clock) confirmation {
	was, _ := h.askFirst(c)
	return was
}

// The question is on its way to a server that does not answer while the lease ends.
func TestALeaseThatEndsByBothClocksIsWaitedForNoLonger(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	m.pass(8 * time.Second)
	m.wall += time.Hour
	require.Equal(t, unasked, asked(h, m))
	was, rest := h.askFirst(m)
	require.Equal(t, asking, was)
	require.Equal(t, time.Second, rest)
	m.pass(rest)
	require.Equal(t, answered, asked(h, m), "others may take over soon")
}

func TestALeaseThatHasEndedByTheWallClockAloneIsAskedForOnce(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	m.wall += time.Hour
	require.Negative(t, h.Trusted(m))
	require.True(t, h.mayHaveSlept(m))
	require.Equal(t, unasked, asked(h, m))
	require.Equal(t, asking, asked(h, m))
	h.confirmed()
	require.Equal(t, answered, asked(h, m), "the database did not confirm it in time")

	h.prove(stamp(m, 0), 10*time.Second, false)
	require.Equal(t, 9*time.Second, h.Trusted(m))
	m.wall += time.Hour
	require.Equal(t, unasked, asked(h, m), "a later jump is another question")
}

func TestAPingIntervalThatBecomesLongerThanHalfTheLeaseIsAThirdOfIt(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	require.False(t, h.Many())
	h.Adapt(5*time.Second, true)
	require.Equal(t, 5*time.Second, h.Interval())
	h.Adapt(time.Minute, true)
	require.Equal(t, 10*time.Second/3, h.Interval())
	require.True(t, h.Many())
}

func TestAnAnswerThatComesAfterThatOfALaterPingProvesNothing(t *testing.T) {
	m := &machine{}
	h := held(m, 0)
	first := stamp(m, 0)
	m.pass(5 * time.Second)
	h.prove(stamp(m, 0), 10*time.Second, false)
	require.Equal(t, 9*time.Second, h.Trusted(m))
	h.prove(first, 10*time.Second, false)
	require.Equal(t, 9*time.Second, h.Trusted(m))
}
