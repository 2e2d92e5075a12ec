package periodic_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// forecast writes the fates of the first minutes of a rule that ticks each minute, whose
// runs take what is given.
func forecast(t *testing.T, minutes int, takes time.Duration, fails int, change func(*schedule.Spec)) string {
	t.Helper()
	s := schedule.Spec{Name: "n", Type: "t", Cron: "* * * * *"}
	change(&s)
	f, err := tickplan.WhatIf{
		Rule: ruleOf(t, s, monday.AddDate(-1, 0, 0)), From: monday, To: monday.Add(time.Duration(minutes) * time.Minute), Most: 1000,
		Run: func(nominal time.Time) (time.Duration, schedule.RunStatus) {
			if nominal.Equal(monday.Add(time.Duration(fails) * time.Minute)) {
				return takes, schedule.RunFailed
			}
			return takes, schedule.RunSuccess
		},
	}.Forecast()
	require.NoError(t, err)
	var b strings.Builder
	for _, x := range f.Fates {
		fmt.Fprintf(&b, "%s %s", x.Nominal.Format("04"), x.Status)
		if x.Reason != "" {
			fmt.Fprintf(&b, " %s", x.Reason)
		}
		if x.Attempt != 1 {
			fmt.Fprintf(&b, " #%d", x.Attempt)
		}
		if !x.Started.IsZero() && !x.Started.Equal(x.Nominal) {
			fmt.Fprintf(&b, " +%v", x.Started.Sub(x.Nominal))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestAForecastOfWhichNothingIsSaidLooksAtAWeekOfMinutesThatSucceed(t *testing.T) {
	t.Parallel()
	w := tickplan.WhatIf{Rule: ruleOf(t, schedule.Spec{Name: "n", Type: "t", Cron: "* * * * *"}, time.Time{}), From: monday, To: monday.AddDate(0, 1, 0)}
	f, err := w.Forecast()
	require.NoError(t, err)
	require.Len(t, f.Fates, 10_080)
	require.Equal(t, monday.AddDate(0, 0, 7), f.Until)
	require.Equal(t, map[schedule.RunStatus]int{schedule.RunSuccess: 10_080}, f.Sum(0).Ended)
	w.From, w.To = w.To, w.From
	f, err = w.Forecast()
	require.NoError(t, err)
	require.Empty(t, f.Fates)
}

func TestForecastDecidesAsThePlannerDoes(t *testing.T) {
	const never = -1
	require.Equal(t, "00 SUCCESS\n01 SUCCESS\n02 SUCCESS\n", forecast(t, 3, time.Second, never, func(*schedule.Spec) {}))
	require.Equal(t, "00 SUCCESS\n01 SKIPPED overlap\n02 SKIPPED overlap\n03 SUCCESS\n",
		forecast(t, 4, 150*time.Second, never, func(s *schedule.Spec) { s.Overlap = schedule.OverlapSkip }))
	require.Equal(t, "00 CANCELED\n01 CANCELED\n02 SUCCESS\n",
		forecast(t, 3, 150*time.Second, never, func(s *schedule.Spec) { s.Overlap = schedule.OverlapCancelPrev }), "each is cancelled by the next")
	require.Equal(t, "00 SUCCESS\n01 SUCCESS +30s\n02 SUCCESS +1m0s\n03 SUCCESS +1m30s\n",
		forecast(t, 4, 90*time.Second, never, func(s *schedule.Spec) { s.MaxConcurrency = 1 }), "the queue grows")
	require.Equal(t, "00 SUCCESS\n01 FAILED\n02 SKIPPED failure #2\n03 SUCCESS #3\n04 SUCCESS\n",
		forecast(t, 5, time.Second, 1, func(s *schedule.Spec) { s.OnFailure = schedule.FailureSkip }))
	require.Equal(t, "00 SUCCESS\n01 SUCCESS\n",
		forecast(t, 9, time.Second, never, func(s *schedule.Spec) { s.MaxRuns = 2 }), "then it rests")
	require.Equal(t, "01 SUCCESS\n03 SUCCESS\n",
		forecast(t, 5, time.Second, never, func(s *schedule.Spec) {
			s.Cron, s.StartAt = "@every 2m", monday.Add(-time.Minute)
		}), "@every counts from the start")
	require.Empty(t, forecast(t, 5, time.Second, never, func(s *schedule.Spec) { s.EndAt = monday }))
}

func TestForecastOfTooManyTicksEndsEarlyAndSaysWhere(t *testing.T) {
	f, err := tickplan.WhatIf{
		Rule: ruleOf(t, schedule.Spec{Name: "n", Type: "t", Cron: "* * * * * *", MaxConcurrency: 2, Concurrency: schedule.ConcurrencySkip}, time.Time{}),
		From: monday, To: monday.AddDate(0, 1, 0), Most: 1000,
		Run: func(time.Time) (time.Duration, schedule.RunStatus) { return 5 * time.Second, schedule.RunSuccess },
	}.Forecast()
	require.NoError(t, err)
	require.Equal(t, monday.Add(1000*time.Second), f.Until)
	sum := f.Sum(0)
	require.Equal(t, 1000, sum.Ticks)
	require.Equal(t, 2, f.AtOnce)
	require.Equal(t, 400, sum.Runs, "two of five")
	require.Equal(t, map[string]int{tickplan.SkipConcurrency: 600}, sum.Skipped)
}

func TestForecastRefusesTimesThatCannotBeParsed(t *testing.T) {
	_, err := tickplan.WhatIf{Rule: &schedule.Rule{Cron: "nonsense", Timezone: "Mars"}}.Forecast()
	require.ErrorContains(t, err, "nonsense")
}

// ruleOf is the rule that a spec describes, created at the time.
func ruleOf(t *testing.T, s schedule.Spec, created time.Time) *schedule.Rule {
	t.Helper()
	r, _, err := rulespec.Build(&s, time.Unix(0, 0)) // whether it ever fires does not matter
	require.NoError(t, err)
	r.CreatedAt = created
	return r
}

func TestRecordedRunsTakeTheMiddleAndEndAsRecorded(t *testing.T) {
	at := func(s int) time.Time { return monday.Add(time.Duration(s) * time.Second) }
	run, takes, n := tickplan.Recorded([]*schedule.Run{
		{Nominal: at(0), StartedAt: at(0), EndedAt: at(9), Status: schedule.RunFailed},
		{Nominal: at(60), StartedAt: at(60), EndedAt: at(61), Status: schedule.RunSuccess},
		{Nominal: at(120), StartedAt: at(120), EndedAt: at(124), Status: schedule.RunSuccess},
		{Nominal: at(180), StartedAt: at(180), EndedAt: at(999), Status: schedule.RunCanceled},
		{Nominal: at(240), Status: schedule.RunSkipped, EndedAt: at(240)},
		{Nominal: at(300), StartedAt: at(300), Status: schedule.RunScheduled},
	}, time.Hour)
	require.Equal(t, 4*time.Second, takes)
	require.Equal(t, 3, n)
	_, status := run(at(0))
	require.Equal(t, schedule.RunFailed, status)
	_, status = run(at(1))
	require.Equal(t, schedule.RunSuccess, status)
	_, takes, n = tickplan.Recorded(nil, time.Hour)
	require.Equal(t, time.Hour, takes)
	require.Zero(t, n)
}

func TestAForecastEndsWhenNobodyWaitsForIt(t *testing.T) {
	gone := errors.New("gone")
	asked := 0
	_, err := tickplan.WhatIf{
		Rule: ruleOf(t, schedule.Spec{Name: "n", Type: "t", Cron: "@every 1s"}, time.Time{}), From: monday, To: monday.AddDate(1, 0, 0), Most: 100_000,
		Stop: func() error {
			if asked++; asked < 3 {
				return nil
			}
			return gone
		},
	}.Forecast()
	require.ErrorIs(t, err, gone)
	require.Equal(t, 3, asked)
}
