package lifecycle

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
)

// A rate is granted as start times, evenly spaced, that are reserved: ahead of their time,
// since a reservation and a claim are round trips to the database. Each is good for a while
// from its time on and then lost. The rules are pure; internal/limits carries them out.
//
//	reserved at ─▶ the claim is written ─▶ its time ── the handler begins ── lost
//
// Why no span of Per holds more than Count: a start s may be used from s until s+w by the
// database's clock. Starts that are Count apart are at least Per+w apart, so the later one
// begins at least Per after the earlier.

// Bounds of [Tolerance].
const (
	toleranceShare = 13 // of per: so much of the rate is given up
	minTolerance   = 20 * time.Millisecond
	maxTolerance   = 5 * time.Second
)

// Tolerance is what the spacing leaves between the last moment of one start and the first of
// that which is Count later.
func Tolerance(r model.RateLimit) time.Duration {
	return min(max(r.Per/toleranceShare, min(minTolerance, r.Per/4)), maxTolerance)
}

// Spacing is the time between two starts: a span of Per and the tolerance holds Count.
func Spacing(r model.RateLimit) time.Duration {
	n := time.Duration(r.Count)
	return ((r.Per+Tolerance(r)+n-1)/n + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Pace is what a process knows of itself and of its way to the database.
type Pace struct {
	// Error is by how much its estimate of the database's time may be behind; it is never
	// ahead.
	Error time.Duration
	// Claim is how long it takes from the reservation of starts until their claims are
	// written, mostly at most.
	Claim time.Duration
}

// GoodFor is for how long after its time a start of this process is good, by its own estimate
// of the database's time: what is left of the tolerance, and a third of it at least.
func GoodFor(r model.RateLimit, p Pace) time.Duration {
	return max(Tolerance(r)-p.Error, Tolerance(r)/3)
}

// gap is what a process leaves free behind the starts that it reserves: nothing, unless it
// knows the time so badly that its starts may be used after the tolerance has passed. So who
// knows it badly pays for it, and the others do not.
func gap(r model.RateLimit, p Pace) time.Duration {
	return max(GoodFor(r, p)+p.Error-Tolerance(r), 0).Truncate(time.Microsecond)
}

// EarliestStart is the first start that the process can still use when it reserves it now.
func EarliestStart(r model.RateLimit, p Pace, now time.Time) time.Time {
	return now.Add(p.Claim - GoodFor(r, p)/2)
}

// Ahead is how far ahead of its time the process reserves a start: it has to look for tasks
// and to claim them once more before those that it has are used up.
func (p Pace) Ahead() time.Duration { return 2 * p.Claim }

// MostStarts is how many starts the process reserves at a time: for as long as it takes to come
// back for more, and never so many that the first and the last are Count apart.
func MostStarts(r model.RateLimit, p Pace) int {
	return min(int(max(Tolerance(r), p.Ahead())/Spacing(r))+1, r.Count)
}

// StartsAhead is how many starts the process can reserve by now, at most [MostStarts]; next is the first that nobody has
// reserved, zero = none ever was.
func StartsAhead(r model.RateLimit, p Pace, next, now time.Time) int {
	left := p.Ahead() - ReserveStarts(r, p, next, now, time.Time{}, 0).First.Sub(now)
	if left < 0 {
		return 0
	}
	return min(int(left/Spacing(r))+1, MostStarts(r, p))
}

// Starts are consecutive start times that were reserved.
type Starts struct {
	First time.Time
	Count int
	Next  time.Time // the first that is not reserved
}

// TakeStarts is the reservation of n starts, at most [MostStarts], from first on.
func TakeStarts(r model.RateLimit, p Pace, first time.Time, n int) Starts {
	n = min(max(n, 0), MostStarts(r, p))
	s := Starts{First: first, Count: n, Next: first}
	if n > 0 {
		s.Next = first.Add(time.Duration(n)*Spacing(r) + gap(r, p))
	}
	return s
}

// ReserveStarts takes up to want starts, none before from; next is the first that nobody has
// reserved, zero = none ever was. With none to be had Count is 0, and Next says which comes
// next. A rate is never saved up: what the process can no longer use is left out.
func ReserveStarts(r model.RateLimit, p Pace, next, now, from time.Time, want int) Starts {
	first := next
	if earliest := EarliestStart(r, p, now); first.Before(earliest) {
		first = clock.Later(earliest, now)
	}
	first = clock.Later(first, from)
	if first.After(clock.Later(now.Add(p.Ahead()), from)) {
		want = 0
	}
	return TakeStarts(r, p, first.Truncate(time.Microsecond), want)
}

// StartAt is the time of the i-th of the starts.
func StartAt(r model.RateLimit, s Starts, i int) time.Time {
	return s.First.Add(time.Duration(i) * Spacing(r))
}

// FollowRate is the first start that is free when the rate has become r, where next was by the
// rate old: the new spacing counts from the last start that was reserved. So a rate that is
// raised acts at once, and one that is lowered, too.
func FollowRate(r model.RateLimit, old model.RateLimit, next time.Time) time.Time {
	if next.IsZero() || old.Count <= 0 || old == r {
		return next
	}
	return next.Add(Spacing(r) - Spacing(old) + max(Tolerance(old)-Tolerance(r), 0))
}
