package stepplan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// The oracle knows nothing of intervals, dates and time zones: it goes through time second by second and
// looks at what the clocks show.

// clocks are what the clocks of a zone are ahead of UTC by, in seconds, from one instant on.
type clocks struct {
	from, to int64
	changes  []change // the first at from
}

type change struct{ at, offset int64 }

// clocksOf asks minute by minute, and second by second where a minute's two ends differ.
func clocksOf(t *testing.T, name string, from, to int64) *clocks {
	zone, err := calendar.Zone(name)
	require.NoError(t, err)
	offset := func(at int64) int64 {
		_, o := time.Unix(at, 0).In(zone).Zone()
		return int64(o)
	}
	c := &clocks{from: from, to: to, changes: []change{{from, offset(from)}}}
	last := offset(from)
	for at := from; at < to; at += 60 {
		if offset(at+60) == last {
			continue
		}
		for s := at + 1; s <= at+60; s++ {
			if o := offset(s); o != last {
				c.changes, last = append(c.changes, change{s, o}), o
			}
		}
	}
	return c
}

// walk calls see for each second, with what the clocks show then.
func (c *clocks) walk(see func(at, shown int64)) {
	for i, change := range c.changes {
		end := c.to
		if i+1 < len(c.changes) {
			end = c.changes[i+1].at
		}
		for at := change.at; at < end; at++ {
			see(at, at+change.offset)
		}
	}
}

// times are the times of a plan in the ten years, but for no_keep and plan_repet: step k is the (k-1)th.
func (c *clocks) times(p *repeat.Plan) (out []int64) {
	start := p.Start.Unix()
	startShown := int64(0)
	for _, change := range c.changes {
		if change.at <= start {
			startShown = start + change.offset
		}
	}
	if p.PlanType == repeat.None || p.PlanType == repeat.Time {
		return []int64{start}
	}
	var is func(shown int64) bool // is what the clocks show at the time of day a time of the plan?
	timeOfDay := startShown % 86400
	switch p.PlanType {
	case repeat.Day:
		is = func(shown int64) bool {
			return shown > startShown && (shown-startShown)%(86400*int64(p.PlanValue)) == 0
		}
	case repeat.Week:
		is = func(shown int64) bool { return int(time.Unix(shown, 0).UTC().Weekday()) == p.PlanValue }
	case repeat.Month:
		is = func(shown int64) bool { return isDayOfMonth(shown, p.PlanValue) }
	default:
		interval := map[repeat.Type]int64{repeat.Second: 1, repeat.Minute: 60, repeat.Hour: 3600}[p.PlanType] * int64(p.PlanValue)
		left := interval
		c.walk(func(at, _ int64) {
			if at <= start {
				return
			}
			if left--; left == 0 {
				out, left = append(out, at), interval
			}
		})
		return out
	}
	// What comes twice is the first time; what is passed over is the second after that.
	highest := c.from + c.changes[0].offset - 1
	c.walk(func(at, shown int64) {
		for ; highest < shown; highest++ {
			if (highest+1)%86400 == timeOfDay && is(highest+1) {
				out = append(out, at)
			}
		}
	})
	return out
}

// isDayOfMonth goes through the days of the month one by one.
func isDayOfMonth(shown int64, value int) bool {
	today := time.Unix(shown, 0).UTC()
	length := 0
	for d := range 31 {
		if time.Date(today.Year(), today.Month(), 1+d, 0, 0, 0, 0, time.UTC).Month() == today.Month() {
			length++
		}
	}
	wanted := value
	switch {
	case value > length:
		wanted = length
	case value <= 0:
		wanted = length + value
	}
	if wanted < 1 {
		wanted = 1
	}
	return today.Day() == wanted
}

// live goes through the life of a plan whose steps end late at random, and compares each next step with
// what the list of times says.
func live(t *testing.T, r *rand.Rand, p *repeat.Plan, times []int64, from int64) (ran int, skipped int64) {
	says := func() string {
		return fmt.Sprintf("%s %d in %q from %v, no_keep %v, after step %d", p.PlanType, p.PlanValue, p.Timezone, p.Start, p.NoKeep, p.Step)
	}
	gap := int64(1)
	if len(times) > 1 {
		gap = times[1] - times[0]
	}
	now, place, last := from, 0, int64(0) // the next is at place or behind it
	finite := p.PlanRepet >= 0            // and then the plan has no times but these
	byDate := p.PlanType == repeat.Week || p.PlanType == repeat.Month
	for {
		next, err := NextPlanTime(p, time.Unix(now, 0))
		require.NoError(t, err)
		if byDate && finite && p.Step == int64(p.PlanRepet) {
			require.True(t, next.Over && next.Skipped == 0, says())
			return ran, skipped
		}
		begin := place
		for place < len(times) {
			late := times[place] < now && !p.NoKeep
			if byDate {
				late = times[place] <= now || times[place] <= last
			}
			if !late {
				break
			}
			place++
		}
		if place == len(times) {
			if !byDate {
				require.EqualValues(t, begin, p.Step, "every time has run or was skipped")
			}
			if finite && !byDate {
				require.True(t, next.Over && next.At.IsZero(), says())
				require.EqualValues(t, place-begin, next.Skipped, says())
				skipped += next.Skipped
			}
			return ran, skipped // of others the next time is beyond the list
		}
		if !next.At.Equal(time.Unix(times[place], 0)) { // reflection takes longer than the rule
			require.Equal(t, time.Unix(times[place], 0).UTC(), next.At, says())
		}
		want := int64(place - begin)
		if byDate {
			want = 0
		}
		if next.Skipped != want || next.Step != p.Step+want+1 {
			require.Equal(t, want, next.Skipped, says())
			require.Equal(t, p.Step+want+1, next.Step, says())
		}
		place++
		p.Step, p.PlanTime = next.Step, next.At
		ran, skipped, last = ran+1, skipped+next.Skipped, next.At.Unix()
		now = max(now, last)
		switch r.IntN(8) {
		case 0, 1:
			now += r.Int64N(6 * gap)
		case 2: // just when a later step is due
			now = max(now, times[min(place+r.IntN(4), len(times)-1)])
		}
	}
}

// Ten years of each type, in zones whose clocks change by an hour, by half an hour, and over a whole day
// (Apia had no 2011-12-30).
func TestTenYearsAreWhatTheClocksShow(t *testing.T) {
	const seed, years = 20261123, 10
	r := rand.New(rand.NewPCG(seed, 1))
	for i, zone := range []string{"America/New_York", "Australia/Lord_Howe", "Pacific/Apia"} {
		first := time.Date(2006, 1, 1, 0, 0, 0, 0, time.UTC)
		from := first.Unix()
		c := clocksOf(t, zone, from, first.AddDate(years, 0, 0).Unix())
		require.Greater(t, len(c.changes), years)
		for _, typ := range []repeat.Type{repeat.Second, repeat.Minute, repeat.Hour, repeat.Day, repeat.Week, repeat.Month} {
			if _, elapsed := units[typ]; elapsed && i > 0 {
				continue // they do not look at the zone
			}
			p := repeat.Plan{PlanType: typ, Timezone: zone, PlanRepet: -1, Start: time.Unix(from+r.Int64N(86400), 0).UTC()}
			bounds := values[typ]
			p.PlanValue = bounds[0] + r.IntN(bounds[1]-bounds[0]+1)
			switch typ {
			case repeat.Second:
				p.PlanValue = 300 + r.IntN(3000) // and not a million steps
			case repeat.Minute:
				p.PlanValue = 5 + r.IntN(300)
			case repeat.Hour:
				p.PlanValue = 1 + r.IntN(30)
			case repeat.Day:
				p.PlanValue = 1 + r.IntN(3)
			}
			if typ == repeat.Day || typ == repeat.Week || typ == repeat.Month { // a time that shifts reach
				zoned, err := gridOf(&p)
				require.NoError(t, err)
				date := midnight(zoned.wall).Add(day)
				p.Start = calendar.InstantOf(date.Add(time.Duration(r.Int64N(3*3600))*time.Second), zoned.zone)
			}
			times := c.times(&p)
			require.Greater(t, len(times), 11*years)
			ran, skipped := 0, int64(0)
			for _, p.NoKeep = range []bool{false, true} {
				plan := p
				runs, skips := live(t, r, &plan, times, p.Start.Unix())
				require.False(t, p.NoKeep && skips > 0)
				ran, skipped = ran+runs, skipped+skips
			}
			t.Logf("%s %d in %s: %d times, %d steps, %d skipped", typ, p.PlanValue, zone, len(times), ran, skipped)
			require.Greater(t, ran, len(times)/2)
			require.Equal(t, typ == repeat.Week || typ == repeat.Month, skipped == 0)
		}
	}
}

// Each interval of less than five minutes for some hours, in a time that has not come or has long passed.
// Plans with an end have the steps that it allows: by dates those that ran, else also those skipped.
func TestShortIntervalsAndPlansWithAnEndAreWhatTheClocksShow(t *testing.T) {
	r := rand.New(rand.NewPCG(20261125, 1))
	const zone = "America/New_York"
	try := func(p repeat.Plan, hours int64, repet int) (ran int, skipped int64) {
		from := p.Start.Unix()
		times := clocksOf(t, zone, from, from+hours*3600).times(&p)
		if p.PlanRepet = repet; repet > 0 && p.PlanType != repeat.Week && p.PlanType != repeat.Month {
			require.Greater(t, len(times), repet)
			times = times[:repet]
		}
		for _, p.NoKeep = range []bool{false, true} {
			plan, begin := p, from
			if r.IntN(4) == 0 && p.PlanType != repeat.None { // it is published late
				begin = times[r.IntN(len(times))] + 1
			}
			runs, skips := live(t, r, &plan, times, begin)
			if n := len(times); p.NoKeep {
				require.Zero(t, skips)
				require.True(t, runs == n || runs == repet && plan.PlanType != repeat.Time, "%s: %d of %d ran", p.PlanType, runs, n)
			}
			ran, skipped = ran+runs, skipped+skips
		}
		return ran, skipped
	}
	start := time.Date(2011, 3, 12, 23, 0, 0, 0, time.UTC) // clocks change in the night after
	ran, skipped := map[repeat.Type]int{}, map[repeat.Type]int64{}
	count := func(typ repeat.Type, value int, hours int64, repet int) {
		p := repeat.Plan{PlanType: typ, PlanValue: value, Timezone: zone, Start: start.Add(time.Duration(r.IntN(3600)) * time.Second)}
		runs, skips := try(p, hours, repet)
		ran[typ], skipped[typ] = ran[typ]+runs, skipped[typ]+skips
	}
	for value := 1; value < 300; value++ {
		count(repeat.Second, value, 1, -1)
		count(repeat.Second, value, 1, 1+r.IntN(10))
	}
	for value := 1; value < 5; value++ {
		count(repeat.Minute, value, 48, -1)
	}
	for range 50 {
		count(repeat.None, 0, 1, 0)
		count(repeat.Time, 0, 1, 0)
		count(repeat.Minute, 1+r.IntN(300), 60, 1+r.IntN(10))
		count(repeat.Hour, 1+r.IntN(5), 60, 1+r.IntN(10))
	}
	for range 3 {
		count(repeat.Day, 1+r.IntN(3), 40*24, 1+r.IntN(10))
		count(repeat.Week, r.IntN(7), 100*24, 1+r.IntN(10))
		count(repeat.Month, 31-r.IntN(63), 400*24, 1+r.IntN(5))
	}
	for typ := range values {
		require.Positive(t, ran[typ], typ)
		require.Equal(t, typ == repeat.None || typ == repeat.Week || typ == repeat.Month, skipped[typ] == 0, typ)
	}
	require.Len(t, ran, 8)
}

// Every value of the types by the calendar at some times of the day, a year in each zone.
func TestEveryDayOfTheWeekAndTheMonth(t *testing.T) {
	const clockTimes = 6
	r := rand.New(rand.NewPCG(20261123, 2))
	for _, zone := range []string{"America/New_York", "Australia/Lord_Howe", "Pacific/Apia"} {
		from := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC)
		c := clocksOf(t, zone, from.Unix(), from.AddDate(1, 1, 0).Unix())
		located, err := calendar.Zone(zone)
		require.NoError(t, err)
		type clock struct{ at, shown int64 }
		var seconds []clock // those at which clocks show what they have not shown before, at the times of day below
		for i := range clockTimes {
			timeOfDay := int64(i*4*3600 + r.IntN(4*3600))
			seconds = seconds[:0]
			highest := c.from + c.changes[0].offset - 1
			c.walk(func(at, shown int64) {
				for ; highest < shown; highest++ {
					if (highest+1)%86400 == timeOfDay {
						seconds = append(seconds, clock{at, highest + 1})
					}
				}
			})
			start := calendar.InstantOf(from.Add(48*time.Hour+time.Duration(timeOfDay)*time.Second), located)
			for _, typ := range []repeat.Type{repeat.Week, repeat.Month} {
				for value := values[typ][0]; value <= values[typ][1]; value++ {
					p := &repeat.Plan{PlanType: typ, PlanValue: value, PlanRepet: -1, Timezone: zone, Start: start}
					var times []int64
					for _, s := range seconds {
						if s.at <= start.Unix() {
							continue
						}
						if typ == repeat.Month && isDayOfMonth(s.shown, value) || typ == repeat.Week && int(time.Unix(s.shown, 0).UTC().Weekday()) == value {
							times = append(times, s.at)
						}
					}
					require.Greater(t, len(times), 11)
					ran, _ := live(t, r, p, times, start.Unix())
					require.Positive(t, ran)
				}
			}
		}
	}
}
