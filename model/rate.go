package model

import "time"

// A rate is granted as start times, evenly spaced, that are reserved: ahead of their time,
// since a reservation and a claim are round trips to the database. Each is good for a while
// from its time on and then lost. The rules are pure; internal/limits carries them out.
//
//	reserved at ─▶ the claim is written ─▶ its time ── the handler begins ── lost
//
// Why no span of Per holds more than Count: a start s may be used from s until s+w by the
// database's clock. Starts that are Count apart are at least Per+w apart, so the later one
// begins at least Per after the earlier.

// Bounds of [RateLimit.Tolerance].
const (
	toleranceShare = 13 // of per: so much of the rate is given up
	minTolerance   = 20 * time.Millisecond
	maxTolerance   = 5 * time.Second
)

// Tolerance is what the spacing leaves between the last moment of one start and the first of
// that which is Count later.
func (r RateLimit) Tolerance() time.Duration {
	return min(max(r.Per/toleranceShare, min(minTolerance, r.Per/4)), maxTolerance)
}

// Spacing is the time between two starts: a span of Per and the tolerance holds Count.
func (r RateLimit) Spacing() time.Duration {
	n := time.Duration(r.Count)
	return ((r.Per+r.Tolerance()+n-1)/n + time.Microsecond - 1).Truncate(time.Microsecond)
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

// Good is for how long after its time a start of this process is good, by its own estimate
// of the database's time: what is left of the tolerance, and a third of it at least.
func (r RateLimit) Good(p Pace) time.Duration { return max(r.Tolerance()-p.Error, r.Tolerance()/3) }

// gap is what a process leaves free behind the starts that it reserves: nothing, unless it
// knows the time so badly that its starts may be used after the tolerance has passed. So who
// knows it badly pays for it, and the others do not.
func (r RateLimit) gap(p Pace) time.Duration {
	return max(r.Good(p)+p.Error-r.Tolerance(), 0).Truncate(time.Microsecond)
}

// Earliest is the first start that the process can still use when it reserves it now.
func (r RateLimit) Earliest(p Pace, now time.Time) time.Time {
	return now.Add(p.Claim - r.Good(p)/2)
}

// Ahead is how far ahead of its time the process reserves a start: it has to look for tasks
// and to claim them once more before those that it has are used up.
func (p Pace) Ahead() time.Duration { return 2 * p.Claim }

// Most is how many starts the process reserves at a time: for as long as it takes to come
// back for more, and never so many that the first and the last are Count apart.
func (r RateLimit) Most(p Pace) int {
	return min(int(max(r.Tolerance(), p.Ahead())/r.Spacing())+1, r.Count)
}

// Starts are consecutive start times that were reserved.
type Starts struct {
	First time.Time
	Count int
	Next  time.Time // the first that is not reserved
}

// Take is the reservation of n starts, at most [RateLimit.Most], from first on.
func (r RateLimit) Take(p Pace, first time.Time, n int) Starts {
	n = min(max(n, 0), r.Most(p))
	s := Starts{First: first, Count: n, Next: first}
	if n > 0 {
		s.Next = first.Add(time.Duration(n)*r.Spacing() + r.gap(p))
	}
	return s
}

// Reserve takes up to want starts, none before from; next is the first that nobody has
// reserved, zero = none ever was. With none to be had Count is 0, and Next says which comes
// next. A rate is never saved up: what the process can no longer use is left out.
func (r RateLimit) Reserve(p Pace, next, now, from time.Time, want int) Starts {
	first := next
	if earliest := r.Earliest(p, now); first.Before(earliest) {
		first = later(earliest, now)
	}
	first = later(first, from)
	if first.After(later(now.Add(p.Ahead()), from)) {
		want = 0
	}
	return r.Take(p, first.Truncate(time.Microsecond), want)
}

// At is the time of the i-th of the starts.
func (r RateLimit) At(s Starts, i int) time.Time {
	return s.First.Add(time.Duration(i) * r.Spacing())
}

// Follow is the first start that is free when the rate has become r, where next was by the
// rate old: the new spacing counts from the last start that was reserved. So a rate that is
// raised acts at once, and one that is lowered, too.
func (r RateLimit) Follow(old RateLimit, next time.Time) time.Time {
	if next.IsZero() || old.Count <= 0 || old == r {
		return next
	}
	return next.Add(r.Spacing() - old.Spacing() + max(old.Tolerance()-r.Tolerance(), 0))
}
