package calendar

import (
	"math/bits"
	"sort"
	"time"
)

// Tally is how often a rule fires in a time.
type Tally struct {
	Count       int64
	First, Last time.Time // zero for none
}

// Tally counts the instants in (after, to] at which the rule fires: what a walk would find
// whose Ticks fire, but day by day and not one by one, so that a year of every second
// costs less than a millisecond. Nothing is counted beyond the year 9999.
func (c *Schedule) Tally(after, to time.Time) (t Tally) {
	after, to = after.UTC().Truncate(time.Second), to.UTC().Truncate(time.Second)
	if end := time.Date(lastYear, 12, 31, 23, 59, 59, 0, time.UTC); to.After(end) {
		to = end
	}
	if !to.After(after) {
		return t
	}
	if c.every > 0 {
		return c.tallySteady(after, to)
	}
	end := to.Add(time.Second) // exclusive, as the end of spans is
	for s, from := spanAt(after, c.zone), after.Add(time.Second); ; {
		last := s.end.IsZero() || !s.end.Before(end)
		until := s.end
		if last {
			until = end
		}
		c.tallySpan(&t, s, from, until)
		if last {
			return t
		}
		next := spanAt(s.end, c.zone)
		c.between(s, next, func(k Tick) bool {
			if k.Fires {
				t.add(1, k.At, k.At)
			}
			return true
		})
		s, from = next, next.start
	}
}

func (t *Tally) add(n int64, first, last time.Time) {
	if t.Count == 0 {
		t.First = first
	}
	t.Count, t.Last = t.Count+n, last
}

func (c *Schedule) tallySteady(after, to time.Time) (t Tally) {
	step, start := int64(c.every/time.Second), c.start.Unix()
	first := int64(0)
	if !after.Before(c.start) {
		first = (after.Unix()-start)/step + 1
	}
	if to.Before(c.start) {
		return t
	}
	if last := (to.Unix() - start) / step; last >= first {
		at := func(k int64) time.Time { return time.Unix(start+k*step, 0).UTC() }
		t.add(last-first+1, at(first), at(last))
	}
	return t
}

// tallySpan counts the instants of a span in [from, until).
func (c *Schedule) tallySpan(t *Tally, s span, from, until time.Time) {
	w, end := wall(from, s.offset), wall(until, s.offset)
	if again := wall(s.start, s.before); c.fold == FoldFirst && s.offset < s.before && w.Before(again) {
		w = again // what comes for the second time is left out
	}
	for w.Before(end) {
		midnight := time.Date(w.Year(), w.Month(), w.Day(), 0, 0, 0, 0, time.UTC)
		next := midnight.Add(day)
		if matchesDay(c.spec, midnight) {
			a, b := int(w.Sub(midnight)/time.Second), secondsOfDay
			if next.After(end) {
				b = int(end.Sub(midnight) / time.Second)
			}
			before := c.firesBefore(a)
			if n := c.firesBefore(b) - before; n > 0 {
				at := func(k int) time.Time { // of the kth of the day
					sec := sort.Search(secondsOfDay, func(sec int) bool { return c.firesBefore(sec+1) >= k })
					return wall(midnight.Add(time.Duration(sec)*time.Second), -s.offset)
				}
				first := t.First
				if t.Count == 0 {
					first = at(before + 1)
				}
				t.add(int64(n), first, at(before+n))
			}
		}
		w = next
	}
}

const secondsOfDay = 24 * 60 * 60

// firesBefore is how many of the first n seconds of a day that matches the fields name.
func (c *Schedule) firesBefore(n int) int {
	hour, minute, second := n/3600, n/60%60, n%60
	perMinute := count(c.spec.Second, 60)
	perHour := count(c.spec.Minute, 60) * perMinute
	fires := count(c.spec.Hour, hour) * perHour
	if c.spec.Hour&(1<<uint(hour)) == 0 {
		return fires
	}
	fires += count(c.spec.Minute, minute) * perMinute
	if c.spec.Minute&(1<<uint(minute)) == 0 {
		return fires
	}
	return fires + count(c.spec.Second, second)
}

// count is the number of values below n in the mask.
func count(mask uint64, n int) int { return bits.OnesCount64(mask & (1<<uint(n) - 1)) }
