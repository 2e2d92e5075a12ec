package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const (
	// forecastTicks bounds what is looked at of each rule and time: a rule of each second has
	// more in 30 days than anybody waits for.
	forecastTicks = 20_000
	// recordedRuns is how many records it looks at for how long runs take.
	recordedRuns = 5000
	// unrecorded is how long a run takes where nothing says so.
	unrecorded       = time.Second
	shownDifferences = 10
)

// forecastView compares what a rule does as it is stored with what the changed one does.
type forecastView struct {
	RunTakes    int64            `json:"run_takes_ms"`
	Recorded    int              `json:"recorded_runs"` // that RunTakes rests on; 0 = it was given, or nothing is known
	Last        windowView       `json:"last"`
	Next        windowView       `json:"next"`
	Differences []differenceView `json:"differences"` // the first
	Differing   int              `json:"differing"`   // ticks in all
	given       bool
	zone        *time.Location
}

// windowView is a time and what the rules do in it; Stored is nil for a new rule.
type windowView struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Stored  *sumView `json:"stored"`
	Changed *sumView `json:"changed"`
	cut     bool
	days    float64
}

type sumView struct {
	Ticks    int                         `json:"ticks"`
	Runs     int                         `json:"runs"`
	Waited   int                         `json:"waited"`
	LongWait int64                       `json:"longest_wait_ms"`
	AtOnce   int                         `json:"most_at_once"`
	Ended    map[schedule.RunStatus]int  `json:"ended"`
	Skipped  map[schedule.SkipReason]int `json:"skipped"`
}

type differenceView struct {
	Nominal string `json:"nominal"`
	Stored  string `json:"stored"`
	Changed string `json:"changed"`
	at      time.Time
}

// forecast compares what a rule does as it is stored (nil = not yet) with what spec would do.
func (a *applyingRules) forecast(ctx context.Context, stored *schedule.Rule, spec schedule.Spec) (*forecastView, error) {
	v := &forecastView{Differences: []differenceView{}, given: a.takes > 0}
	var err error
	if v.zone, err = calendar.Zone(spec.Timezone); err != nil {
		v.zone = time.UTC
	}
	changed, _, err := rulespec.Build(&spec, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	now := a.at.Truncate(time.Second)
	span := time.Duration(a.days) * 24 * time.Hour
	changed.CreatedAt = now
	var runs []*schedule.Run
	if stored != nil {
		changed.CreatedAt = stored.CreatedAt
		if runs, err = a.recorded(ctx, stored.ID, now.Add(-span)); err != nil {
			return nil, err
		}
	}
	run, takes, n := tickplan.Recorded(runs, unrecorded)
	if v.given {
		takes, n = a.takes, 0
		as := run
		run = func(nominal time.Time) (time.Duration, schedule.RunStatus) {
			_, status := as(nominal)
			return a.takes, status
		}
	}
	v.RunTakes, v.Recorded = takes.Milliseconds(), n
	what := tickplan.WhatIf{Run: run, Most: forecastTicks}
	what.From, what.To = now.Add(-span), now
	if err := v.window(&v.Last, what, stored, changed, false); err != nil {
		return nil, err
	}
	what.From, what.To = now, now.Add(span)
	return v, v.window(&v.Next, what, stored, changed, true)
}

// recorded reads how the newest runs went.
func (a *applyingRules) recorded(ctx context.Context, rule string, from time.Time) (all []*schedule.Run, err error) {
	var after *schedule.Run
	for len(all) < recordedRuns {
		page, err := a.rules.Runs(ctx, rule, periodic.RunFilter{From: from}, after, 1000)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < 1000 {
			break
		}
		after = page[len(page)-1]
	}
	return all, nil
}

// window asks what both rules do in one time, as far as both can be looked at: of the past
// that is the end, of the future the beginning.
func (v *forecastView) window(out *windowView, what tickplan.WhatIf, stored, changed *schedule.Rule, ahead bool) error {
	now := *changed
	rules := []*schedule.Rule{&now}
	if stored != nil {
		before := *stored
		if rules = append(rules, &before); ahead {
			now.Runs = stored.Runs // max_runs counts on
		} else {
			before.Runs = 0
		}
	}
	from, to := what.From, what.To
	fares, err := fates(&what, rules)
	if out.cut = what.To.Before(to); err == nil && out.cut && !ahead {
		what.From, what.To = to.Add(from.Sub(what.To)), to
		fares, err = fates(&what, rules)
	}
	if err != nil {
		return err
	}
	out.Changed = sumOf(&fares[0], changed.Jitter)
	if stored != nil {
		out.Stored = sumOf(&fares[1], stored.Jitter)
		v.differ(fares[1].Fates, fares[0].Fates)
	}
	out.From, out.To = view.Time(what.From), view.Time(what.To)
	out.days = what.To.Sub(what.From).Hours() / 24
	return nil
}

// fates asks all rules about the same time, which it shortens to what all can answer.
func fates(what *tickplan.WhatIf, rules []*schedule.Rule) ([]tickplan.Forecast, error) {
	for {
		var out []tickplan.Forecast
		until := what.To
		for _, what.Rule = range rules {
			f, err := what.Forecast()
			if err != nil {
				return nil, err
			}
			if out = append(out, f); f.Until.Before(until) {
				until = f.Until
			}
		}
		if until.Equal(what.To) {
			return out, nil
		}
		what.To = until
	}
}

func sumOf(f *tickplan.Forecast, jitter time.Duration) *sumView {
	s := f.Sum(jitter)
	return &sumView{s.Ticks, s.Runs, s.Waited, s.LongWait.Milliseconds(), f.AtOnce, s.Ended, s.Skipped}
}

// differ collects the ticks of which the two make something different.
func (v *forecastView) differ(stored, changed []tickplan.Fate) {
	texts := map[time.Time][2]string{} // by nominal time
	for i, list := range [][]tickplan.Fate{stored, changed} {
		for _, f := range list {
			pair := texts[f.Nominal.UTC()]
			pair[i] = fateText(&f)
			texts[f.Nominal.UTC()] = pair
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(texts), time.Time.Compare) {
		before, after := cmp.Or(texts[at][0], "no tick"), cmp.Or(texts[at][1], "no tick")
		if before == after {
			continue
		}
		if v.Differing++; len(v.Differences) < shownDifferences {
			v.Differences = append(v.Differences, differenceView{view.Time(at), before, after, at})
		}
	}
}

// fateText is what became of a tick, for people.
func fateText(f *tickplan.Fate) string {
	if f.Status == schedule.RunSkipped {
		return "skipped, " + string(f.Reason)
	}
	text := "runs"
	switch {
	case f.Started.IsZero() && f.Status == schedule.RunCanceled:
		text = "waits, cancelled"
	case f.Started.IsZero():
		text = "waits"
	case f.Started.After(f.Nominal):
		text = "runs after " + human.Rough(f.Started.Sub(f.Nominal))
	}
	if f.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", f.Attempt)
	}
	if f.Status != schedule.RunSuccess && !f.Started.IsZero() {
		text += ", " + string(f.Status)
	}
	return text
}

func (v *forecastView) text() string {
	var b strings.Builder
	how := "nothing is recorded; see --run-takes"
	switch {
	case v.given:
		how = "as --run-takes says"
	case v.Recorded > 0:
		how = "the middle of " + human.Plural(v.Recorded, "recorded run", "recorded runs")
	}
	fmt.Fprintf(&b, "  if it were enabled all the time, and a run took %s (%s):\n", human.Rough(time.Duration(v.RunTakes)*time.Millisecond), how)
	b.WriteString(indented("    ", v.table().flush()))
	if v.Last.cut || v.Next.cut {
		fmt.Fprintf(&b, "    (more than %d ticks are not looked at)\n", forecastTicks)
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
		t.add(localStamp(d.at.In(v.zone)), d.Stored, d.Changed)
	}
	b.WriteString(indented("    ", t.flush()))
	return b.String()
}

func indented(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// table has a line for each number that says something.
func (v *forecastView) table() *table {
	var sums []*sumView
	heads := []string{"TICKS THAT"}
	for _, w := range []struct {
		name string
		*windowView
	}{{"LAST", &v.Last}, {"NEXT", &v.Next}} {
		days := w.name + " " + strings.ToUpper(human.Rough(time.Duration(w.days*float64(24*time.Hour))))
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
	row := func(name string, always bool, text func(*sumView) string) {
		cells, says := []string{name}, always
		for _, s := range sums {
			cells = append(cells, text(s))
			says = says || cells[len(cells)-1] != "0"
		}
		if says {
			t.add(cells...)
		}
	}
	count := func(name string, always bool, n func(*sumView) int) {
		row(name, always, func(s *sumView) string { return fmt.Sprint(n(s)) })
	}
	count("come", true, func(s *sumView) int { return s.Ticks })
	count("run", true, func(s *sumView) int { return s.Runs })
	count("  after a wait", false, func(s *sumView) int { return s.Waited })
	row("  the longest", false, func(s *sumView) string {
		if s.LongWait == 0 {
			return "0"
		}
		return human.Rough(time.Duration(s.LongWait) * time.Millisecond)
	})
	row("  at once, at most", true, func(s *sumView) string { return fmt.Sprint(s.AtOnce) })
	for _, status := range []schedule.RunStatus{schedule.RunFailed, schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled} {
		count("  end "+string(status), false, func(s *sumView) int { return s.Ended[status] })
	}
	for _, reason := range []schedule.SkipReason{tickplan.SkipOverlap, tickplan.SkipFailure, tickplan.SkipConcurrency, tickplan.SkipCapacity, tickplan.SkipMissed} {
		count("are skipped, "+string(reason), false, func(s *sumView) int { return s.Skipped[reason] })
	}
	return t
}
