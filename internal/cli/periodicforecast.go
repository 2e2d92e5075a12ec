package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// forecastText compares in words what a rule does as it is stored with what the changed one does. It was asked to look
// back and ahead that many days.
func forecastText(v *rulechange.Forecast, days int) string {
	var b strings.Builder
	how := "nothing is recorded; see --run-takes"
	switch {
	case v.Given:
		how = "as --run-takes says"
	case v.Recorded > 0:
		how = "the middle of " + human.Plural(v.Recorded, "recorded run", "recorded runs")
	}
	fmt.Fprintf(&b, "  if it were enabled all the time, and a run took %s (%s):\n", human.Rough(time.Duration(v.RunTakes)*time.Millisecond), how)
	b.WriteString(indented("    ", forecastTable(v).flush()))
	if v.Last.Cut || v.Next.Cut {
		fmt.Fprintf(&b, "    (shortened from %s: a rule has more than %d ticks in that time)\n", human.Rough(time.Duration(days)*24*time.Hour), rulechange.ForecastTicks)
	}
	if v.Last.Stored == nil {
		return b.String()
	}
	if v.Differing == 0 {
		b.WriteString("  every tick fares as before\n")
		return b.String()
	}
	fmt.Fprintf(&b, "  %s differently; the first:\n", human.Plural(v.Differing, "tick fares", "ticks fare"))
	t := newTable("TICK", "STORED", "CHANGED")
	for _, d := range v.Differences {
		t.add(localStamp(d.At.In(v.Zone)), d.Stored, d.Changed)
	}
	b.WriteString(indented("    ", t.flush()))
	return b.String()
}

func indented(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// forecastTable has a line for each number that says something.
func forecastTable(v *rulechange.Forecast) *table {
	var sums []*rulechange.ForecastSum
	heads := []string{"TICKS THAT"}
	for _, w := range []struct {
		name string
		*rulechange.ForecastSpan
	}{{"LAST", &v.Last}, {"NEXT", &v.Next}} {
		days := w.name + " " + strings.ToUpper(human.Rough(time.Duration(w.Days*float64(24*time.Hour))))
		if w.Stored != nil {
			sums, heads = append(sums, w.Stored), append(heads, days+" STORED")
		}
		sums, heads = append(sums, w.Changed), append(heads, days+" CHANGED")
	}
	if v.Last.Stored == nil {
		for i := range heads {
			heads[i] = strings.TrimSuffix(heads[i], " CHANGED")
		}
	}
	t := newTable(heads...)
	row := func(name string, always bool, text func(*rulechange.ForecastSum) string) {
		cells, says := []string{name}, always
		for _, s := range sums {
			cells = append(cells, text(s))
			says = says || cells[len(cells)-1] != "0"
		}
		if says {
			t.add(cells...)
		}
	}
	count := func(name string, always bool, n func(*rulechange.ForecastSum) int) {
		row(name, always, func(s *rulechange.ForecastSum) string { return fmt.Sprint(n(s)) })
	}
	count("come", true, func(s *rulechange.ForecastSum) int { return s.Ticks })
	count("run", true, func(s *rulechange.ForecastSum) int { return s.Runs })
	count("  after a wait", false, func(s *rulechange.ForecastSum) int { return s.Waited })
	row("  the longest", false, func(s *rulechange.ForecastSum) string {
		if s.LongWait == 0 {
			return "0"
		}
		return human.Rough(time.Duration(s.LongWait) * time.Millisecond)
	})
	row("  at once, at most", true, func(s *rulechange.ForecastSum) string { return fmt.Sprint(s.AtOnce) })
	for _, status := range []schedule.RunStatus{schedule.RunFailed, schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled} {
		count("  end "+string(status), false, func(s *rulechange.ForecastSum) int { return s.Ended[status] })
	}
	for _, reason := range []string{tickplan.SkipOverlap, tickplan.SkipFailure, tickplan.SkipConcurrency, tickplan.SkipCapacity, tickplan.SkipMissed} {
		count("are skipped, "+reason, false, func(s *rulechange.ForecastSum) int { return s.Skipped[reason] })
	}
	return t
}
