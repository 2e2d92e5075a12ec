package calendar

import (
	"iter"
	"math/bits"
	"time"

	"github.com/robfig/cron/v3"
)

// Shift says what the change of a zone's offset did to a wall-clock time.
type Shift string

// The shifts; "" is an ordinary time.
const (
	ShiftGap    Shift = "gap"    // the time does not exist that day
	ShiftFirst  Shift = "first"  // it comes twice, this is the first
	ShiftSecond Shift = "second" // it comes twice, this is the second
)

// Tick is one time at which a rule fires, or would, but for a shift.
type Tick struct {
	// At is the instant, in UTC. Of a time in a gap: the instant at which the gap ends.
	At time.Time
	// Wall is the wall-clock time that the rule names, as if it were UTC; for @every, that
	// of the zone at the instant.
	Wall  time.Time
	Shift Shift
	// Fires says whether the rule fires: false where its policy leaves the time out.
	Fires bool
}

// Next is the first instant after the given one at which the rule fires; zero when there
// is none until the year 9999.
func (c *Schedule) Next(after time.Time) time.Time {
	for t := range c.Ticks(after) {
		if t.Fires {
			return t.At
		}
	}
	return time.Time{}
}

// Ticks are all times after the given instant, in their order, those that a policy leaves
// out too. One gap gives one tick, however many times of the rule lie in it.
func (c *Schedule) Ticks(after time.Time) iter.Seq[Tick] {
	after = after.UTC().Truncate(time.Second)
	if c.every > 0 {
		return c.steady(after)
	}
	return func(yield func(Tick) bool) {
		s := spanAt(after, c.zone)
		from := after.Add(time.Second)
		for {
			w, more := c.inside(s, from, yield)
			if !more || w.IsZero() {
				return
			}
			// Nothing of the rule is between the span and w, but where the clocks go back first.
			if far := w.Add(-2 * day); s.after >= s.offset && far.After(s.end) {
				s, from = spanAt(far, c.zone), far
				continue
			}
			next := spanAt(s.end, c.zone)
			if !c.between(s, next, yield) {
				return
			}
			s, from = next, next.start
		}
	}
}

const (
	lastYear = 9999
	day      = 24 * time.Hour // more than the offset of any zone
)

// steady are the ticks of @every.
func (c *Schedule) steady(after time.Time) iter.Seq[Tick] {
	return func(yield func(Tick) bool) {
		k := int64(0)
		if !after.Before(c.start) {
			k = (after.Unix()-c.start.Unix())/int64(c.every/time.Second) + 1
		}
		for ; ; k++ {
			at := time.Unix(c.start.Unix()+k*int64(c.every/time.Second), 0).UTC()
			_, offset := at.In(c.zone).Zone()
			if at.Year() > lastYear || !yield(Tick{At: at, Wall: wall(at, offset), Fires: true}) {
				return
			}
		}
	}
}

// span is a time in which the offset of a zone stays the same.
type span struct {
	start, end time.Time // end exclusive; zero = without end
	offset     int       // seconds east of UTC
	before     int       // offset of the span before
	after      int       // offset of the span behind
}

func spanAt(t time.Time, zone *time.Location) span {
	local := t.In(zone)
	start, end := boundsAt(local)
	_, offset := local.Zone()
	s := span{start: start.UTC(), end: end.UTC(), offset: offset, before: offset, after: offset}
	if start.IsZero() {
		s.start = time.Time{}
	} else {
		_, s.before = start.Add(-time.Second).In(zone).Zone()
	}
	if end.IsZero() {
		s.end = time.Time{}
	} else {
		_, s.after = end.Zone()
	}
	return s
}

// boundsAt are the [time.Time.ZoneBounds] of an instant. That function takes the year to have 365 days
// where a zone's rule has no end: it ends a span when the last day of a leap year begins, although nothing
// changes then, and so for that day, too.
func boundsAt(local time.Time) (start, end time.Time) {
	start, end = local.ZoneBounds()
	if e := end.UTC(); !end.IsZero() && e.YearDay() == 366 && e.Equal(e.Truncate(day)) {
		_, before := end.Add(-time.Second).Zone()
		if _, after := end.Zone(); after == before {
			end = end.Add(day)
		}
	}
	return start, end
}

// wall is the wall-clock time of an instant, as if it were UTC: what arithmetic is done in.
func wall(t time.Time, offset int) time.Time {
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// inside yields the ticks of one span from an instant on. It returns the first wall-clock
// time of the rule behind the span, zero for none, and false when nobody wants more.
func (c *Schedule) inside(s span, from time.Time, yield func(Tick) bool) (time.Time, bool) {
	for w := c.nextWall(wall(from, s.offset)); !w.IsZero(); w = c.nextWall(w.Add(time.Second)) {
		at := wall(w, -s.offset)
		if !s.end.IsZero() && !at.Before(s.end) {
			return w, true
		}
		if at.Year() > lastYear {
			return w, false
		}
		t := Tick{At: at, Wall: w, Fires: true}
		switch {
		case s.offset < s.before && w.Before(wall(s.start, s.before)):
			t.Shift, t.Fires = ShiftSecond, c.fold == FoldBoth
		case s.after < s.offset && !s.end.IsZero() && !w.Before(wall(s.end, s.after)):
			t.Shift = ShiftFirst
		}
		if !yield(t) {
			return w, false
		}
	}
	return time.Time{}, false
}

// between yields the tick of the gap between two spans, if there is one. Where the rule
// fires at the end of the gap anyway, that is one tick and not two.
func (c *Schedule) between(s, next span, yield func(Tick) bool) bool {
	if next.offset <= s.offset {
		return true
	}
	over := wall(next.start, next.offset)
	w := c.nextWall(wall(next.start, s.offset))
	if w.IsZero() || !w.Before(over) {
		return true
	}
	fires := c.gap == GapRunAfter
	if fires && c.nextWall(over).Equal(over) {
		return true // run after the gap, which is what it does
	}
	return yield(Tick{At: next.start, Wall: w, Shift: ShiftGap, Fires: fires})
}

// horizon is how many years the walk looks for a day: a 29th of February of one day of the
// week is at most forty away, over a century without one.
const horizon = 40

// nextWall is the first wall-clock time at or after w that the fields match; zero when
// there is none within the horizon.
func (c *Schedule) nextWall(w time.Time) time.Time {
	f := c.spec
	last := w.Year() + horizon
	sec, ok := nextIn(f.Second, w.Second())
	minute, hour := w.Minute(), w.Hour()
	if !ok {
		minute++
	}
	m, ok := nextIn(f.Minute, minute)
	if m != w.Minute() || !ok {
		sec, _ = nextIn(f.Second, 0)
	}
	if !ok {
		hour++
		m, _ = nextIn(f.Minute, 0)
	}
	h, ok := nextIn(f.Hour, hour)
	if h != w.Hour() || !ok {
		m, _ = nextIn(f.Minute, 0)
		sec, _ = nextIn(f.Second, 0)
	}
	day := time.Date(w.Year(), w.Month(), w.Day(), 0, 0, 0, 0, time.UTC)
	if !ok || !matchesDay(f, day) {
		if day = nextDay(f, day.AddDate(0, 0, 1), last); day.IsZero() {
			return day
		}
		h, _ = nextIn(f.Hour, 0)
		m, _ = nextIn(f.Minute, 0)
		sec, _ = nextIn(f.Second, 0)
	}
	return time.Date(day.Year(), day.Month(), day.Day(), h, m, sec, 0, time.UTC)
}

// nextIn is the lowest bit of the mask that is not below n.
func nextIn(mask uint64, n int) (int, bool) {
	rest := mask &^ starBit >> n << n
	if rest == 0 {
		return 0, false
	}
	return bits.TrailingZeros64(rest), true
}

func nextDay(f *cron.SpecSchedule, day time.Time, last int) time.Time {
	for day.Year() <= last {
		if f.Month&(1<<uint(day.Month())) == 0 {
			day = time.Date(day.Year(), day.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if matchesDay(f, day) {
			return day
		}
		day = day.AddDate(0, 0, 1)
	}
	return time.Time{}
}

// matchesDay is cron's rule: when both day of month and day of week are given, either will
// do; when one of them begins with *, both must match.
func matchesDay(f *cron.SpecSchedule, day time.Time) bool {
	if f.Month&(1<<uint(day.Month())) == 0 {
		return false
	}
	dom := f.Dom&(1<<uint(day.Day())) != 0
	dow := f.Dow&(1<<uint(day.Weekday())) != 0
	if f.Dom&starBit != 0 || f.Dow&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}
