package calendar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oracle knows nothing of masks, spans and walks: it goes through time second by
// second and asks the zone what its clocks show.

// fields are a random rule: for each field the set of its values, or nil for *.
type fields [6]map[int]bool

var fieldBounds = [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

func randomFields(r *rand.Rand) (f fields, expr string) {
	parts := make([]string, 6)
	for i, b := range fieldBounds {
		low, high := b[0], b[1]
		switch k := r.IntN(6); {
		case k == 0 || k == 1 && i > 2:
			parts[i] = "*"
			continue
		case k == 1:
			from, step := low+r.IntN(high-low+1), 2+r.IntN(15)
			parts[i], f[i] = fmt.Sprintf("%d/%d", from, step), map[int]bool{}
			for v := from; v <= high; v += step {
				f[i][v] = true
			}
		case k == 2:
			from := low + r.IntN(high-low+1)
			to := from + r.IntN(high-from+1)
			step := 1 + r.IntN(4)
			parts[i], f[i] = fmt.Sprintf("%d-%d/%d", from, to, step), map[int]bool{}
			for v := from; v <= to; v += step {
				f[i][v] = true
			}
		default:
			f[i] = map[int]bool{}
			var list []string
			for range 1 + r.IntN(3) {
				v := low + r.IntN(high-low+1)
				if i == 2 && r.IntN(2) == 0 {
					v = r.IntN(4) // where zones shift
				}
				f[i][v] = true
				list = append(list, fmt.Sprint(v))
			}
			parts[i] = strings.Join(list, ",")
		}
	}
	return f, strings.Join(parts, " ")
}

func (f fields) match(w time.Time) bool {
	has := func(i, v int) bool { return f[i] == nil || f[i][v] }
	if !has(0, w.Second()) || !has(1, w.Minute()) || !has(2, w.Hour()) || !has(4, int(w.Month())) {
		return false
	}
	dom, dow := has(3, w.Day()), has(5, int(w.Weekday()))
	if f[3] == nil || f[5] == nil {
		return dom && dow
	}
	return dom || dow
}

// clockAt is what the clocks of the zone show, as if it were UTC.
func clockAt(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.Add(time.Duration(offset) * time.Second)
}

// fires lists the instants in (from, to] at which the rule fires.
func (f fields) fires(zone *time.Location, gap Gap, fold Fold, from, to time.Time) (out []time.Time) {
	before := clockAt(from, zone)
	highest := before // a clock that shows less than it has shown shows it again
	for t := from.Add(time.Second); !t.After(to); t = t.Add(time.Second) {
		now := clockAt(t, zone)
		jumped := now.Sub(before) != time.Second
		if sec := int(now.Unix() % 60); !jumped && f[0] != nil && !f[0][sec] {
			if before = now; now.After(highest) { // most seconds of most rules
				highest = now
			}
			continue
		}
		fire := f.match(now) && (fold == FoldBoth || now.After(highest))
		if gap == GapRunAfter && !f.match(now) {
			for missing := before.Add(time.Second); missing.Before(now); missing = missing.Add(time.Second) {
				fire = fire || f.match(missing)
			}
		}
		if fire {
			out = append(out, t)
		}
		if before = now; now.After(highest) {
			highest = now
		}
	}
	return out
}

// shifts are spans around changes of offset in the zones of the design, and one far from any.
var shifts = []struct {
	zone     string
	from, to string
}{
	{"America/New_York", "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z"},
	{"America/New_York", "2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z"},
	{"Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-06T00:00:00Z"},
	{"Africa/Cairo", "2026-04-22T12:00:00Z", "2026-04-25T12:00:00Z"},
	{"Africa/Cairo", "2026-10-29T00:00:00Z", "2026-10-31T00:00:00Z"},
	{"Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z"},
	{"Asia/Kathmandu", "2026-02-27T00:00:00Z", "2026-03-01T06:00:00Z"},
	{"UTC", "2024-02-28T00:00:00Z", "2024-03-01T12:00:00Z"},
}

func TestTheWalkFiresWhenTheClocksShowIt(t *testing.T) {
	rules := 200
	if testing.Short() {
		rules = 20
	}
	seed := uint64(20261121)
	r := rand.New(rand.NewPCG(seed, 1))
	fired := 0
	for range rules {
		f, expr := randomFields(r)
		s := shifts[r.IntN(len(shifts))]
		gap := []Gap{GapSkip, GapRunAfter}[r.IntN(2)]
		fold := []Fold{FoldFirst, FoldBoth}[r.IntN(2)]
		c, err := Parse(Spec{Cron: expr, Timezone: s.zone, Gap: gap, Fold: fold})
		if err != nil {
			require.ErrorContains(t, err, "can never fire", expr)
			continue
		}
		from, to := at(t, s.from), at(t, s.to)
		want := f.fires(c.Zone(), gap, fold, from, to)
		var got []time.Time
		for next := c.Next(from); !next.IsZero() && !next.After(to); next = c.Next(next) {
			got = append(got, next)
		}
		require.Equal(t, want, got, "seed %d: %q in %s, gap %s, fold %s", seed, expr, s.zone, gap, fold)
		fired += len(got)
	}
	require.Greater(t, fired, 1000)
}

// A year each, second by second.
func TestTheWalkIsRightOverYears(t *testing.T) {
	for _, c := range []struct {
		expr, zone string
		gap        Gap
		fold       Fold
	}{
		{"0 30 2 * * *", "America/New_York", GapRunAfter, FoldFirst},
		{"0 15 2 * * 0", "Australia/Lord_Howe", GapSkip, FoldBoth},
	} {
		t.Run(c.zone, func(t *testing.T) {
			s, err := Parse(Spec{Cron: c.expr, Timezone: c.zone, Gap: c.gap, Fold: c.fold})
			require.NoError(t, err)
			from, to := at(t, "2025-01-01T00:00:00Z"), at(t, "2026-01-01T00:00:00Z")
			var got []time.Time
			for next := s.Next(from); !next.After(to); next = s.Next(next) {
				got = append(got, next)
			}
			require.NotEmpty(t, got)
			require.Equal(t, parsed(t, c.expr).fires(s.Zone(), c.gap, c.fold, from, to), got)
		})
	}
}

// parsed reads the few forms that the test above uses.
func parsed(t *testing.T, expr string) (f fields) {
	for i, part := range strings.Fields(expr) {
		if part == "*" {
			continue
		}
		var low, high int
		f[i] = map[int]bool{}
		if n, _ := fmt.Sscanf(part, "%d-%d", &low, &high); n == 1 {
			high = low
		} else {
			require.Equal(t, 2, n, part)
		}
		for v := low; v <= high; v++ {
			f[i][v] = true
		}
	}
	return f
}

func at(t *testing.T, s string) time.Time {
	v, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return v
}
