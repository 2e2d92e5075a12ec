package claim

import (
	"math"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Trust decides whether a lapsed lease means that its worker is gone. A healthy worker may have
// been unable to ping: the database was away, elected another primary, or its clock jumped. Then
// no process pre-empts until every healthy worker has had the time to ping. Each process judges
// by its own observations of the database, and each task by its own lease.
//
// An observation is an answer. Between two answers the database may have been away for as long
// as the gap between them, which harms only shorter leases. So a process that queries rarely knows
// little about short leases: it must observe for a while before it pre-empts them.
//
// A Trust is safe for concurrent use.
type Trust struct {
	local clock.Clock
	db    Estimate

	mu       sync.Mutex
	down     bool
	answered bool
	last     clock.Instant // of the answers
	inexact  time.Duration // the error for which the clock was wanted again, and how often
	repeated int
	troubles clock.Marks // how long the database may have been away until then
	primary  string
}

// Estimate of the database's time, as far as it matters here; a [store.Clock] is one.
type Estimate interface {
	Age() time.Duration
	Error() time.Duration
	Jumped(over time.Duration) (ago time.Duration, ok bool)
}

// Notice is how long a healthy worker may take to ping once the database is back. The
// driver looks for a lost server twice a second, and its first look may meet one that does
// not yet take writes. The worker's own loops try again within [RetryPings]. The rest is for
// new connections, encrypted and authenticated, and for the ping itself.
const Notice = 2 * time.Second

// RetryPings is the longest pause before a ping that the database did not answer is sent
// again.
const RetryPings = 250 * time.Millisecond

// MarginShare is the share of a lease that its worker does not rely on: a tenth. It covers
// errors of the estimated time.
const MarginShare = 10

const (
	// shortestGap between two answers never counts as an outage: a process of a small fleet
	// looks for lapsed leases about once a second. It may hide an outage that costs a worker
	// a lease of less than two seconds.
	shortestGap = 1500 * time.Millisecond
	// unknown is how long the database may have been away without any evidence.
	unknown = math.MaxInt64
	// inexact is an error of the estimate that a quicker answer would make smaller. That is tried a few times.
	inexact     = 100 * time.Millisecond
	maxRepeated = 3
	// soon is the pause before the next question if the time is not known.
	soon = 100 * time.Millisecond
)

// NewTrust returns the Trust of a process that has observed no trouble. db is the estimate of
// the database's time, local the machine's clock.
func NewTrust(db Estimate, local clock.Clock) *Trust {
	return &Trust{db: db, local: local}
}

// Answered records an answer of the database.
func (t *Trust) Answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gap := t.gap(); t.answered && gap > shortestGap {
		t.troubles.Add(gap, clock.Read(t.local))
	}
	if t.down {
		t.troubles.Add(unknown, clock.Read(t.local))
	}
	t.down, t.answered, t.last = false, true, clock.Read(t.local)
}

// gap returns the time since the last answer, by the clock that shows more.
func (t *Trust) gap() time.Duration { return t.last.Since(t.local) }

// Failed records that the database cannot be reached, until it answers again.
func (t *Trust) Failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = true
}

// Doubt records that workers may have been unable to ping until now.
func (t *Trust) Doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.troubles.Add(unknown, clock.Read(t.local))
}

// DoubtBefore is [Trust.Doubt] of the time up to that long ago.
func (t *Trust) DoubtBefore(ago time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.troubles.Add(unknown, clock.Read(t.local).Before(max(ago, 0)))
}

// SawPrimary records the name of the primary's term, see [store.Store.Primary]. A changed name
// is a reason for doubt; the first name is the baseline.
func (t *Trust) SawPrimary(name string) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.primary != "" && t.primary != name
	t.primary = name
	if changed {
		t.troubles.Add(unknown, clock.Read(t.local))
	}
	return changed
}

// Primary is the name that was recorded last; "" = none.
func (t *Trust) Primary() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.primary
}

// WantsClock reports whether to read the database's clock again, because another server may
// have answered since the last reading, or because that was slow: leases are that much shorter. Of a network that
// is always slow it wants no more than a few readings in a row.
func (t *Trust) WantsClock() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down || t.wantsClock() {
		return !t.down
	}
	err := t.db.Error()
	if err <= inexact || err > t.inexact { // a quick reading, or one that is slower than those before
		t.inexact, t.repeated = err, 0
	}
	if err <= inexact {
		return false
	}
	t.repeated++
	return t.repeated <= maxRepeated
}

func (t *Trust) wantsClock() bool {
	at, ok := t.troubles.Last(unknown - 1)
	return ok && t.db.Age() > at.Since(t.local)
}

// Wait returns how long no task with these terms may be pre-empted; zero or less = it may be
// now. The result is valid until the next observation.
func (t *Trust) Wait(eff *lifecycle.Effective) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	quiet := eff.PingInterval + Notice
	if t.db.Error() > eff.Lease/MarginShare {
		quiet = max(quiet, eff.Lease)
	}
	if t.down || !t.answered || t.gap() > harmless(eff) {
		return quiet
	}
	var left time.Duration
	if t.wantsClock() || t.db.Age() >= store.MaxClockAge {
		left = soon
	}
	if at, ok := t.troubles.Last(harmless(eff)); ok {
		left = max(left, quiet-at.SinceMonotonic(t.local))
	}
	// A healthy worker pings by its old idea of the time until it reads the clock again.
	if ago, ok := t.db.Jumped(eff.Lease / MarginShare); ok {
		left = max(left, max(eff.Lease, store.MaxClockAge+eff.PingInterval+Notice)-ago)
	}
	return left
}

// LeftAlone describes the lapsed tasks that a scan did not touch because their owners may be
// healthy.
type LeftAlone struct {
	Wait  time.Duration // until the first of it may be pre-empted; 0 = nothing was left alone
	Every time.Duration // how often the database must answer until then
}

// Add adds what else was left alone.
func (l *LeftAlone) Add(other LeftAlone) {
	switch {
	case other.Wait == 0:
	case l.Wait == 0:
		*l = other
	default:
		l.Wait, l.Every = min(l.Wait, other.Wait), min(l.Every, other.Every)
	}
}

// Allows reports whether a task with these terms may be pre-empted now. If not, it adds the
// task to what is left alone.
func (t *Trust) Allows(eff *lifecycle.Effective, left *LeftAlone) bool {
	wait := t.Wait(eff)
	if wait <= 0 {
		return true
	}
	left.Add(LeftAlone{Wait: wait, Every: harmless(eff) / 3})
	return false
}

// harmless returns how long the database may have been away without costing a healthy worker
// its lease: the rest of the lease when the next ping is due, less the time to notice.
func harmless(eff *lifecycle.Effective) time.Duration {
	return max(eff.Lease-eff.PingInterval-Notice, shortestGap)
}
