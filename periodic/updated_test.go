package periodic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestUpdatedAtIsTheTimeOfTheLastChangeByAPerson(t *testing.T) {
	w := newWorld(t, schedule.Spec{Name: "n", Type: "t", Cron: "* * * * * *", MaxRuns: 3, CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull}})
	changed := func(after *schedule.Rule) {
		t.Helper()
		w.decide(after)
		require.Equal(t, w.now, w.rule.UpdatedAt)
		w.now = w.now.Add(time.Minute)
	}
	w.now = w.now.Add(time.Minute)
	changed(tickplan.Enable(w.rule, w.cal, w.now))
	enabled := w.rule.UpdatedAt
	w.look()
	w.decide(tickplan.Ended(w.rule, w.running()[0], schedule.RunSuccess, "", w.now))
	w.decide(tickplan.Trigger(w.rule, w.cal, "r", false, w.now))
	require.Equal(t, tickplan.StatusOffline, w.rule.Status, "its runs are used up")
	require.Equal(t, enabled, w.rule.UpdatedAt)
	edited, _, err := rulespec.Build(&schedule.Spec{Name: "n", Type: "t", Cron: "* * * * * *"}, w.now)
	require.NoError(t, err)
	changed(tickplan.Edit(w.rule, w.cal, w.cal, edited, w.now))
	changed(tickplan.Disable(w.rule, w.cal, "", w.now))
	changed(tickplan.Delete(w.rule, w.cal, w.now))
}
