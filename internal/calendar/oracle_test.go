package calendar

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oracle knows nothing of masks, spans and walks: it goes through time second by
// second and looks at what the clocks of the zone show.

// clocks are what a zone's clocks show in a time, found by asking minute by minute, and
// second by second where a minute's two ends differ.
type clocks struct {
	zone     *time.Location
	from, to int64
	changes  []change // the first at from
}

type change struct{ at, offset int64 }

func clocksOf(t *testing.T, zone string, from, to int64) *clocks {
	location, err := Zone(zone)
	require.NoError(t, err)
	offset := func(at int64) int64 {
		_, o := time.Unix(at, 0).In(location).Zone()
		return int64(o)
	}
	c := &clocks{zone: location, from: from, to: to, changes: []change{{from, offset(from)}}}
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

// match says whether the clocks' time, as if it were UTC, is one of the rule's.
func (o *rule) match(now int64) bool {
	return o.has[0][now%60] && o.minute(now)
}

func (o *rule) minute(now int64) bool {
	if !o.has[1][now/60%60] || !o.has[2][now/3600%24] {
		return false
	}
	if day := now / 86400; day != o.day {
		w := time.Unix(now, 0).UTC()
		dom, dow := o.has[3][w.Day()], o.has[5][w.Weekday()]
		either := dom || dow
		if o.star[3] || o.star[5] {
			either = dom && dow
		}
		o.day, o.isDay = day, either && o.has[4][w.Month()]
	}
	return o.isDay
}

// seen counts what the oracle has decided because of shifts.
type seen struct{ fired, ranAfter, skipped, leftOut, twice int }

// fires lists the seconds in (from, to] at which the rule fires. Unless each second is
// asked for, a whole minute without a shift of which no second can match is passed at once.
func (o *rule) fires(c *clocks, gap Gap, fold Fold, from, to int64, each bool, saw *seen) (out []int64) {
	if o.allHours() { // every so often: neither made up for nor left out
		gap, fold = orElse(gap, GapSkip), orElse(fold, FoldBoth)
	} else {
		gap, fold = orElse(gap, GapRunAfter), orElse(fold, FoldFirst)
	}
	i := 0
	upTo := func(t int64) int64 { // what the clocks are ahead by
		for i+1 < len(c.changes) && c.changes[i+1].at <= t {
			i++
		}
		return c.changes[i].offset
	}
	shown := from + upTo(from)
	highest := shown // a clock that shows less than it has shown shows it again
	for t := from + 1; t <= to; t++ {
		now := t + upTo(t)
		steady := i+1 == len(c.changes) || c.changes[i+1].at > t+59
		if !each && now == shown+1 && now%60 == 0 && t+59 <= to && steady && !o.minute(now) {
			t, shown = t+59, now+59
			highest = max(highest, shown)
			continue
		}
		fire := o.match(now)
		if again := now <= highest; fire && again {
			if fire = fold == FoldBoth; fire {
				saw.twice++
			} else {
				saw.leftOut++
			}
		} else if !fire {
			missed := false
			for missing := shown + 1; missing < now && !missed; missing++ {
				missed = o.match(missing)
			}
			if fire = missed && gap == GapRunAfter; fire {
				saw.ranAfter++
			} else if missed {
				saw.skipped++
			}
		}
		if fire {
			out = append(out, t)
		}
		shown, highest = now, max(highest, now)
	}
	saw.fired += len(out)
	return out
}

func orElse[T ~string](v, other T) T {
	if v == "" {
		return other
	}
	return v
}

// years are years of zones: those of the design, and others whose clocks do odd things.
var years = []struct {
	zone string
	year int
}{
	{"America/New_York", 2026},
	{"Australia/Lord_Howe", 2026}, // half an hour
	{"Africa/Cairo", 2026},        // no midnight
	{"Pacific/Apia", 2011},        // no 30th of December
	{"Africa/Casablanca", 2026},   // an hour back for Ramadan
	{"America/Caracas", 2016},     // half an hour forward, for good
	{"America/Sao_Paulo", 2018},   // midnight, on the southern half
	{"America/St_Johns", 2007},    // at a minute past midnight
	{"Antarctica/Troll", 2026},    // two hours
	{"Asia/Kathmandu", 2026},      // three quarters, and no shift
	{"Asia/Tehran", 2022},
	{"Europe/Dublin", 2025}, // its winter is the exception
	{"Pacific/Kwajalein", 1993},
	{"UTC", 2024},
	{"Europe/Berlin", 2028}, // a leap year, of which no change is known, but only the rule
}

var (
	gaps  = []Gap{"", GapSkip, GapRunAfter}
	folds = []Fold{"", FoldFirst, FoldBoth}
)

// walked are the seconds in (from, to] at which the walk says that the rule fires.
func walked(c *Schedule, from, to int64) (out []int64) {
	end := time.Unix(to, 0)
	for k := range c.Ticks(time.Unix(from, 0)) {
		if k.At.After(end) {
			break
		}
		if k.Fires {
			out = append(out, k.At.Unix())
		}
	}
	return out
}

// tally is what counting should find.
func tally(fires []int64) (t Tally) {
	if t.Count = int64(len(fires)); t.Count > 0 {
		t.First, t.Last = time.Unix(fires[0], 0).UTC(), time.Unix(fires[len(fires)-1], 0).UTC()
	}
	return t
}

// Two hundred rules of the whole grammar, in every zone: three days around each shift,
// other days at random, and the whole year where that are few enough ticks.
func TestTheWalkAndTheCountAreWhatTheClocksShow(t *testing.T) {
	rules := 200
	if testing.Short() {
		rules = 20
	}
	const seed, day = 20261121, 86400
	r := rand.New(rand.NewPCG(seed, 1))
	var zones []*clocks
	for _, z := range years {
		from := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		zones = append(zones, clocksOf(t, z.zone, from, time.Date(z.year+1, 1, 2, 0, 0, 0, 0, time.UTC).Unix()))
	}
	var saw seen
	wholeYears, refused := 0, 0
	for range rules {
		o := randomRule(r)
		for i, z := range zones {
			gap, fold := gaps[r.IntN(3)], folds[r.IntN(3)]
			c, err := Parse(Spec{Cron: o.expr, Timezone: years[i].zone, Gap: gap, Fold: fold})
			if err != nil {
				require.ErrorContains(t, err, "can never fire", o.expr)
				refused++
				break
			}
			says := fmt.Sprintf("seed %d: %q in %s, gap %q, fold %q", seed, o.expr, years[i].zone, gap, fold)
			check := func(from, to int64) {
				want := o.fires(z, gap, fold, from, to, false, &saw)
				got := walked(c, from, to)
				require.Len(t, got, len(want), "%s from %v", says, time.Unix(from, 0).UTC())
				for k := range want {
					if want[k] != got[k] { // one by one: to compare all by reflection takes longer than the walk
						require.Equal(t, time.Unix(want[k], 0).UTC(), time.Unix(got[k], 0).UTC(), says)
					}
				}
				require.Equal(t, tally(want), c.Tally(time.Unix(from, 0), time.Unix(to, 0)), says)
				if len(want) > 1 { // and of a part, to the second
					a := r.IntN(len(want) - 1)
					b := a + 1 + r.IntN(len(want)-a-1)
					require.Equal(t, tally(want[a+1:b+1]), c.Tally(time.Unix(want[a], 0), time.Unix(want[b], 0)), says)
				}
			}
			for _, shift := range z.changes[1:] {
				check(shift.at-day-r.Int64N(day), min(shift.at+day+r.Int64N(day), z.to))
			}
			from := z.from + r.Int64N(z.to-z.from-day)
			check(from, from+day)
			if o.perDay() <= 30 && r.IntN(3) == 0 {
				check(z.from, z.to)
				wholeYears++
			}
		}
	}
	t.Logf("%+v, %d whole years, %d rules can never fire", saw, wholeYears, refused)
	require.Less(t, refused, rules/4)
	require.Greater(t, wholeYears, rules)
	require.Greater(t, saw.fired, 1000*rules)
	for name, n := range map[string]int{"ran after": saw.ranAfter, "skipped": saw.skipped, "left out": saw.leftOut, "twice": saw.twice} {
		require.Greater(t, n, rules/4, name)
	}
}

// A year of each zone of the design, and no second passed over.
func TestTheWalkIsRightOverYearsSecondBySecond(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	r := rand.New(rand.NewPCG(20261121, 2))
	for _, z := range years[:4] {
		t.Run(z.zone, func(t *testing.T) {
			from, to := time.Date(z.year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(z.year+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
			clocks := clocksOf(t, z.zone, from, to)
			var saw seen
			o := randomRule(r)
			for o.perDay() > 5000 || o.perDay() < 100 {
				o = randomRule(r)
			}
			c, err := Parse(Spec{Cron: o.expr, Timezone: z.zone})
			require.NoError(t, err)
			want := o.fires(clocks, "", "", from, to, true, &saw)
			require.NotEmpty(t, want)
			require.Equal(t, want, walked(c, from, to), o.expr)
		})
	}
}

func TestEverySoOftenCountsFromTheStart(t *testing.T) {
	r := rand.New(rand.NewPCG(20261121, 3))
	now := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC).Unix()
	for range 100 {
		every, start := 1+r.Int64N(20_000), now-50_000+r.Int64N(100_000)
		c, err := Parse(Spec{Cron: fmt.Sprintf("@every %ds", every), Timezone: "America/New_York", Start: time.Unix(start, 5)})
		require.NoError(t, err)
		from, to := now-r.Int64N(40_000), now+r.Int64N(40_000)
		var want []int64
		for at := from + 1; at <= to; at++ {
			if at >= start && (at-start)%every == 0 {
				want = append(want, at)
			}
		}
		require.Equal(t, want, walked(c, from, to))
		require.Equal(t, tally(want), c.Tally(time.Unix(from, 0), time.Unix(to, 0)))
	}
}

// What enabling a rule of every second after a year's pause needs.
func BenchmarkTallyOfAYear(b *testing.B) {
	c, err := Parse(Spec{Cron: "* * * * * *", Timezone: "America/New_York"})
	require.NoError(b, err)
	from := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		require.Equal(b, int64(365*86400), c.Tally(from, from.AddDate(1, 0, 0)).Count)
	}
}

func at(t *testing.T, s string) time.Time {
	v, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return v
}
