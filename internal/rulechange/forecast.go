package rulechange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const (
	// ForecastTicks bounds what is looked at of each rule and time: a rule of each second has
	// more in 30 days than anybody waits for.
	ForecastTicks = 20_000
	// recordedRuns is how many records it looks at for how long runs take.
	recordedRuns = 5000
	// unrecorded is how long a run takes where nothing says so.
	unrecorded = time.Second
	// shownDifferences is how many ticks that fare differently are listed.
	shownDifferences = 10
)

// Forecast compares what a rule does as it is stored with what the changed one does.
type Forecast struct {
	RunTakes    int64                `json:"run_takes_ms"`
	Recorded    int                  `json:"recorded_runs"` // that RunTakes rests on; 0 = it was given, or nothing is known
	Last        ForecastSpan         `json:"last"`
	Next        ForecastSpan         `json:"next"`
	Differences []ForecastDifference `json:"differences"` // the first
	Differing   int                  `json:"differing"`   // ticks in all

	Given bool           `json:"-"` // RunTakes was given
	Zone  *time.Location `json:"-"` // of the changed rule
}

// ForecastSpan is a time and what the rules do in it; Stored is nil for a new rule.
type ForecastSpan struct {
	From    string       `json:"from"`
	To      string       `json:"to"`
	Stored  *ForecastSum `json:"stored"`
	Changed *ForecastSum `json:"changed"`

	Cut  bool    `json:"-"` // it is shorter than was asked for, since there are so many ticks
	Days float64 `json:"-"`
}

// ForecastSum is what became of the ticks of a time.
type ForecastSum struct {
	Ticks    int                        `json:"ticks"`
	Runs     int                        `json:"runs"`
	Waited   int                        `json:"waited"`
	LongWait int64                      `json:"longest_wait_ms"`
	AtOnce   int                        `json:"most_at_once"`
	Ended    map[schedule.RunStatus]int `json:"ended"`
	Skipped  map[string]int             `json:"skipped"`
}

// ForecastDifference is a tick that fares differently.
type ForecastDifference struct {
	Nominal string `json:"nominal"`
	Stored  string `json:"stored"`
	Changed string `json:"changed"`

	At time.Time `json:"-"`
}

// Window says what a forecast looks at.
type Window struct {
	Now   time.Time
	Days  int           // to look back, and ahead
	Takes time.Duration // how long a run takes; 0 = as the recorded ones
}

// Forecast compares what the rule does as it is stored with what it would do after the edit.
func (e Edit) Forecast(ctx context.Context, rules *periodic.Periodic, what Window) (*Forecast, error) {
	v := &Forecast{Differences: []ForecastDifference{}, Given: what.Takes > 0}
	var err error
	if v.Zone, err = calendar.Zone(e.Spec.Timezone); err != nil {
		v.Zone = time.UTC
	}
	now := what.Now.Truncate(time.Second)
	changed, err := e.Rule(now)
	if err != nil {
		return nil, err
	}
	changed.Runs = 0 // of the past; of the future they count on
	span := time.Duration(what.Days) * 24 * time.Hour
	var runs []*schedule.Run
	if e.Stored != nil {
		if runs, err = recorded(ctx, rules, e.Stored.ID, now.Add(-span)); err != nil {
			return nil, err
		}
	}
	run, takes, n := tickplan.Recorded(runs, unrecorded)
	if v.Given {
		takes, n = what.Takes, 0
		as := run
		run = func(nominal time.Time) (time.Duration, schedule.RunStatus) {
			_, status := as(nominal)
			return takes, status
		}
	}
	v.RunTakes, v.Recorded = takes.Milliseconds(), n
	if err := v.window(&v.Last, tickplan.WhatIf{Run: run, Most: ForecastTicks, From: now.Add(-span), To: now, Stop: ctx.Err}, e.Stored, changed, false); err != nil {
		return nil, err
	}
	return v, v.window(&v.Next, tickplan.WhatIf{Run: run, Most: ForecastTicks, From: now, To: now.Add(span), Stop: ctx.Err}, e.Stored, changed, true)
}

// recorded reads how the newest runs went.
func recorded(ctx context.Context, rules *periodic.Periodic, rule string, from time.Time) (all []*schedule.Run, err error) {
	var after *schedule.Run
	for len(all) < recordedRuns {
		page, err := rules.Runs(ctx, rule, periodic.RunFilter{From: from}, after, 1000)
		var unread *model.UnreadableError // the others tell how they went
		if err != nil && !errors.As(err, &unread) {
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
func (v *Forecast) window(out *ForecastSpan, what tickplan.WhatIf, stored, changed *schedule.Rule, ahead bool) error {
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
	if out.Cut = what.To.Before(to); err == nil && out.Cut && !ahead {
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
	out.Days = what.To.Sub(what.From).Hours() / 24
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

func sumOf(f *tickplan.Forecast, jitter time.Duration) *ForecastSum {
	s := f.Sum(jitter)
	return &ForecastSum{s.Ticks, s.Runs, s.Waited, s.LongWait.Milliseconds(), f.AtOnce, s.Ended, s.Skipped}
}

// differ collects the ticks of which the two make something different.
func (v *Forecast) differ(stored, changed []tickplan.Fate) {
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
			v.Differences = append(v.Differences, ForecastDifference{view.Time(at), before, after, at})
		}
	}
}

// fateText is what became of a tick, for people.
func fateText(f *tickplan.Fate) string {
	if f.Status == schedule.RunSkipped {
		return "skipped, " + f.Reason
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
