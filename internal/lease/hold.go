// Package lease keeps the leases of the executions that a process holds. A [Hold] is one lease, and
// how long the process may rely on it: pure rules over a clock. A [Keeper] extends the leases
// with pings, and says which handlers must stop because a lease could not be extended.
package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Hold is the lease of one execution, as the process that runs it knows it. It is safe for
// concurrent use.
type Hold struct {
	task   *model.Task // as it was after the claim
	execID string
	index  int           // in worker_states
	length time.Duration // of the lease that a ping earns

	alone atomic.Bool // a ping of its own is on its way
	begun atomic.Bool // the handler has been called

	mu         sync.Mutex
	proven     clock.Instant // before the last claim or ping that reached the store was sent
	left       time.Duration // what that earned
	behind     time.Duration // by how much less, at most, by the clocks of others, see [store.Stamp]
	every      time.Duration // the ping interval: a change of it counts from the next ping
	pinged     clock.Instant // when the last ping that was answered was sent
	toDeadline bool          // the lease reaches to the deadline: no ping extends it further
	many       bool          // several workers are wanted: a ping speaks for this one alone
	answerBy   time.Duration // monotonic: until when the answer to a ping is awaited; 0 = no ping is on its way
	asked      confirmation  // whether the lease holds, since it was last proven
}

// New returns the lease of a claim with that stamp. task is the claimed task.
func New(task *model.Task, execID string, eff *lifecycle.Effective, stamp store.Stamp) *Hold {
	i, w := lifecycle.ExecutionOf(task, execID)
	return &Hold{
		task: task, execID: execID, index: i, length: eff.Lease, many: lifecycle.Wanted(task) > 1,
		proven: stamp.At, pinged: stamp.At, every: eff.PingInterval, left: w.PingExpireTime.Sub(w.ClaimedAt), behind: stamp.Behind,
	}
}

// Begin records that the handler has been called.
func (h *Hold) Begin() { h.begun.Store(true) }

// entry is the element of worker_states that has the lease.
func (h *Hold) entry() *model.WorkerState { return &h.task.WorkerStates[h.index] }

// Bounded reports whether the lease reaches to the deadline already: no ping extends it.
func (h *Hold) Bounded() bool {
	w := h.entry()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !w.Deadline.IsZero() && (h.toDeadline || !w.PingExpireTime.Before(w.Deadline))
}

// Trusted is how much longer the lease may be relied on: it counts from before the
// last successful ping was sent, by the clock that says more has passed, and ends a
// tenth of the lease early, so that a partitioned worker stops before anyone takes
// over. A lease that ends at the deadline needs no margin once the handler runs: the
// handler's own timer ends it then, and this is for a machine that slept. Before that, the
// last tenth is for giving the task back: whoever else finds the deadline passed counts an error.
func (h *Hold) Trusted(c clock.Clock) time.Duration {
	margin := h.margin()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left - margin - h.proven.Since(c)
}

// margin is the end of the lease that is not relied on: its share, and what the clocks of others may be ahead.
func (h *Hold) margin() time.Duration {
	bounded, begun := h.Bounded(), h.begun.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case bounded && begun:
		return 0
	case bounded:
		return h.left / claim.MarginShare
	default:
		return h.length/claim.MarginShare + h.behind
	}
}

// confirmation is the state of the question to the database whether a lease still holds that
// has ended by the wall clock alone.
type confirmation int

const (
	unasked confirmation = iota
	asking
	answered // or the time for an answer is over
)

// askFirst reports whether to ask the database before the handler of a lapsed lease must stop:
// once, if the lease has lapsed by the wall clock alone. That clock jumps when a person sets it,
// and also when the machine has slept. rest is how long until the lease has lapsed by the other clock, too: nobody
// waits for an answer any longer.
func (h *Hold) askFirst(c clock.Clock) (was confirmation, rest time.Duration) {
	margin := h.margin()
	h.mu.Lock()
	defer h.mu.Unlock()
	was, rest = h.asked, h.left-margin-h.proven.SinceMonotonic(c)
	switch {
	case rest <= 0:
		return answered, rest
	case was == unasked:
		h.asked = asking
	}
	return was, rest
}

// confirmed records that the database had its time to answer.
func (h *Hold) confirmed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked == asking {
		h.asked = answered
	}
}

// mayHaveSlept reports whether the wall clock has advanced more than the monotonic clock since
// the last proof of the lease, by more than the margin.
func (h *Hold) mayHaveSlept(c clock.Clock) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proven.Drift(c) > h.length/claim.MarginShare
}

// pingDue is how long until the next ping is to be sent.
func (h *Hold) pingDue(c clock.Clock) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.every - h.pinged.Since(c)
}

// expect notes that a ping was sent, whose answer is awaited until that monotonic time.
func (h *Hold) expect(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answerBy = until
}

// came notes that the answer came, or will not. A later ping may be on its way.
func (h *Hold) came(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answerBy == until {
		h.answerBy = 0
	}
}

// expected is how much longer the answer to a ping is awaited.
func (h *Hold) expected(c clock.Clock) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answerBy == 0 {
		return 0
	}
	return h.answerBy - c.Monotonic()
}

// Interval is how often the lease is to be extended.
func (h *Hold) Interval() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.every
}

// Adapt makes changed options of the task count: another ping interval from the next
// ping on; and once several workers are wanted, a ping no longer speaks for them all.
func (h *Hold) Adapt(interval time.Duration, many bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.every, h.many = lifecycle.PingEvery(interval, h.length), many
}

// Many reports whether several workers are wanted on the task.
func (h *Hold) Many() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.many
}

// prove notes that a ping with that stamp earned the lease. A later ping may have been answered before.
func (h *Hold) prove(stamp store.Stamp, lease time.Duration, toDeadline bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proven.After(stamp.At) {
		return
	}
	h.proven, h.pinged, h.left, h.behind, h.toDeadline, h.asked = stamp.At, stamp.At, lease, stamp.Behind, toDeadline, unasked
}
