package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/tickplan"
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

// forecast is the question.
type forecast struct {
	stored  *schedule.Rule // nil = a new one
	changed *schedule.Rule
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
func (a *applyingRules) forecast(ctx context.Context, stored *schedule.Rule, spec periodic.Spec) (*forecastView, error) {
	c := &forecast{stored: stored}
	v := &forecastView{Differences: []differenceView{}, given: a.takes > 0}
	var err error
	if v.zone, err = calendar.Zone(spec.Timezone); err != nil {
		v.zone = time.UTC
	}
	now := a.at.Truncate(time.Second)
	span := time.Duration(a.days) * 24 * time.Hour
	var runs []*schedule.Run
	if c.stored != nil {
		if runs, err = a.recorded(ctx, c.stored.ID, now.Add(-span)); err != nil {
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
	created := now
	if stored != nil {
		created = stored.CreatedAt
	}
	if c.changed, err = spec.Rule(time.Unix(0, 0)); err != nil {
		return nil, err
	}
	c.changed.CreatedAt = created
	what := tickplan.WhatIf{Run: run, Most: forecastTicks}
	for _, w := range []struct {
		view     *windowView
		from, to time.Time
		ahead    bool
	}{{&v.Last, now.Add(-span), now, false}, {&v.Next, now, now.Add(span), true}} {
		what.From, what.To = w.from, w.to
		if err := v.window(w.view, what, c, w.ahead); err != nil {
			return nil, err
		}
	}
	return v, nil
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
func (v *forecastView) window(out *windowView, what tickplan.WhatIf, c *forecast, ahead bool) error {
	rules := *c
	if c.stored != nil && ahead {
		changed := *c.changed
		changed.Runs, rules.changed = c.stored.Runs, &changed // max_runs counts on
	} else if c.stored != nil {
		stored := *c.stored
		stored.Runs, rules.stored = 0, &stored
	}
	c = &rules
	from, to := what.From, what.To
	stored, changed, err := bothFates(&what, c)
	if err != nil {
		return err
	}
	if out.cut = what.To.Before(to); out.cut && !ahead {
		what.From, what.To = to.Add(from.Sub(what.To)), to
		if stored, changed, err = bothFates(&what, c); err != nil {
			return err
		}
	}
	if c.stored != nil {
		sum := stored.Sum(c.stored.Jitter)
		out.Stored = sumOf(&sum, stored.AtOnce)
		v.differ(stored.Fates, changed.Fates)
	}
	sum := changed.Sum(c.changed.Jitter)
	out.Changed = sumOf(&sum, changed.AtOnce)
	out.From, out.To = jsonTime(what.From), jsonTime(what.To)
	out.days = what.To.Sub(what.From).Hours() / 24
	return nil
}

// bothFates asks both rules about the same time, and shortens it to what both can answer.
func bothFates(what *tickplan.WhatIf, c *forecast) (stored, changed tickplan.Forecast, err error) {
	what.Rule = c.changed
	if changed, err = what.Forecast(); err != nil || c.stored == nil {
		what.To = changed.Until
		return stored, changed, err
	}
	what.Rule, what.To = c.stored, changed.Until
	if stored, err = what.Forecast(); err != nil || !stored.Until.Before(what.To) {
		return stored, changed, err
	}
	what.Rule, what.To = c.changed, stored.Until
	changed, err = what.Forecast()
	return stored, changed, err
}

func sumOf(s *tickplan.Sum, atOnce int) *sumView {
	return &sumView{s.Ticks, s.Runs, s.Waited, s.LongWait.Milliseconds(), atOnce, s.Ended, s.Skipped}
}

// differ collects the ticks of which the two make something different.
func (v *forecastView) differ(stored, changed []tickplan.Fate) {
	byTime := func(a, b tickplan.Fate) int { return a.Nominal.Compare(b.Nominal) }
	slices.SortFunc(stored, byTime)
	slices.SortFunc(changed, byTime)
	for len(stored)+len(changed) > 0 {
		var s, c *tickplan.Fate
		if len(changed) == 0 || len(stored) > 0 && !changed[0].Nominal.Before(stored[0].Nominal) {
			s = &stored[0]
		}
		if len(changed) > 0 && (s == nil || changed[0].Nominal.Equal(s.Nominal)) {
			c, changed = &changed[0], changed[1:]
		}
		var at time.Time
		if s != nil {
			stored, at = stored[1:], s.Nominal
		} else {
			at = c.Nominal
		}
		before, after := fateText(s), fateText(c)
		if before == after {
			continue
		}
		if v.Differing++; len(v.Differences) < shownDifferences {
			v.Differences = append(v.Differences, differenceView{jsonTime(at), before, after, at})
		}
	}
}

// fateText is what became of a tick, for people; nil is no tick.
func fateText(f *tickplan.Fate) string {
	if f == nil {
		return "no tick"
	}
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
	b.WriteString(indented("    ", v.table().String()))
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
	b.WriteString(indented("    ", t.String()))
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
	for _, reason := range []schedule.SkipReason{schedule.SkipOverlap, schedule.SkipFailure, schedule.SkipConcurrency, schedule.SkipCapacity, schedule.SkipMissed} {
		count("are skipped, "+string(reason), false, func(s *sumView) int { return s.Skipped[reason] })
	}
	return t
}
