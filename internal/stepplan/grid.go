package stepplan

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const day = 24 * time.Hour

// latest is the last time that a step may have.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)

// units are those of the intervals that are elapsed time.
var units = map[repeat.Type]time.Duration{repeat.Second: time.Second, repeat.Minute: time.Minute, repeat.Hour: time.Hour}

// grid are the times of a plan, without a look at the clock.
type grid struct {
	*repeat.Plan
	zone *time.Location
	wall time.Time // Start, as the clocks of the zone show it, as if it were UTC
}

// gridOf checks what the times of a plan follow from. The error joins everything that is wrong.
func gridOf(p *repeat.Plan) (*grid, error) {
	var e problems
	zone := e.times(p)
	if err := e.joined(); err != nil {
		return nil, err
	}
	g := &grid{Plan: p, zone: zone}
	if !p.Start.IsZero() {
		g.wall = calendar.WallOf(p.Start, zone)
	}
	return g, nil
}

// at is the time of step k of a plan with a time or an interval. The second result is false if that is
// after the year 9999.
func (g *grid) at(k int64) (time.Time, bool) {
	interval := int64(g.PlanValue)
	if interval == 0 || g.PlanType == repeat.Time {
		return g.Start, true
	}
	if unit, elapsed := units[g.PlanType]; elapsed { // in milliseconds: a time.Duration ends after 292 years
		interval *= unit.Milliseconds()
		start := g.Start.UnixMilli()
		if k > (latest.UnixMilli()-start)/interval {
			return time.Time{}, false
		}
		return time.UnixMilli(start + k*interval).UTC(), true
	}
	if k > (latest.Unix()-g.wall.Unix())/secondsOfDay/interval+1 {
		return time.Time{}, false
	}
	at := calendar.InstantOf(g.wall.AddDate(0, 0, int(k*interval)), g.zone)
	return at, !at.After(latest)
}

const secondsOfDay = int64(day / time.Second)

// from is the first step, of k and those after it, of a plan with an interval that is not 0, whose time is
// not before now. It may be after the year 9999.
func (g *grid) from(k int64, now time.Time) int64 {
	interval := int64(g.PlanValue)
	if unit, elapsed := units[g.PlanType]; elapsed {
		interval *= unit.Milliseconds()
		passed := now.UnixMilli() - g.Start.UnixMilli()
		return max(k, (passed+interval-1)/interval)
	}
	// Where clocks change, a day more or less may have passed: the last few steps are looked at.
	passed := (calendar.WallOf(now, g.zone).Unix()-g.wall.Unix())/secondsOfDay - 2
	for k = max(k, passed/interval); ; k++ {
		if at, ok := g.at(k); !ok || !at.Before(now) {
			return k
		}
	}
}

// after is the first time of a plan by week or month that is after the given one. The second result is
// false if that is after the year 9999.
func (g *grid) after(last time.Time) (time.Time, bool) {
	clocks := time.Duration(0)
	if !g.wall.IsZero() {
		clocks = g.wall.Sub(midnight(g.wall))
	}
	today := midnight(calendar.WallOf(last, g.zone))
	for {
		date, next := g.date(today)
		at := calendar.InstantOf(date.Add(clocks), g.zone)
		if at.After(latest) {
			return time.Time{}, false
		}
		if at.After(last) {
			return at, true
		}
		today = next
	}
}

// date is the day of the plan in the seven days from today on, or in today's month, and the day after
// which to look for the next.
func (g *grid) date(today time.Time) (date, next time.Time) {
	if g.PlanType == repeat.Week {
		date = today.AddDate(0, 0, (g.PlanValue-int(today.Weekday())+7)%7)
		return date, date.AddDate(0, 0, 1)
	}
	first := today.AddDate(0, 0, 1-today.Day())
	next = first.AddDate(0, 1, 0)
	last := next.AddDate(0, 0, -1).Day()
	n := g.PlanValue
	if n < 1 {
		n += last
	}
	return first.AddDate(0, 0, min(max(n, 1), last)-1), next
}

func midnight(wall time.Time) time.Time {
	return time.Date(wall.Year(), wall.Month(), wall.Day(), 0, 0, 0, 0, time.UTC)
}
