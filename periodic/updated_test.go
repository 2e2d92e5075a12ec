package periodic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestUpdatedAtIsTheTimeOfTheLastChangeByAPerson(t *testing.T) {
	w := newWorld(t, Spec{Name: "n", Type: "t", Cron: "* * * * * *", MaxRuns: 3})
	changed := func(after *schedule.Rule) {
		t.Helper()
		w.decide(after)
		require.Equal(t, w.now, w.rule.UpdatedAt)
		w.now = w.now.Add(time.Minute)
	}
	w.now = w.now.Add(time.Minute)
	changed(enableRule(w.rule, w.cal, w.now))
	enabled := w.rule.UpdatedAt
	w.look()
	w.decide(runEnded(w.rule, w.running()[0], schedule.RunSuccess, "", w.now))
	w.decide(triggerRun(w.rule, w.cal, "r", false, w.now))
	require.Equal(t, schedule.StatusOffline, w.rule.Status, "its runs are used up")
	require.Equal(t, enabled, w.rule.UpdatedAt)
	edited, _, err := (&Spec{Name: "n", Type: "t", Cron: "* * * * * *"}).rule(w.now)
	require.NoError(t, err)
	changed(editRule(w.rule, w.cal, w.cal, edited, w.now))
	changed(disableRule(w.rule, w.cal, "", w.now))
	changed(deleteRule(w.rule, w.cal, w.now))
}
