package periodic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func instants(ticks []tickplan.PreviewTick) (out []string) {
	for _, t := range ticks {
		out = append(out, t.UTC.Format("15:04:05"))
	}
	return out
}

// The engine's own next tick is what a preview of a stored rule begins with.
func TestPreviewOfAStoredRuleIsWhatAnEngineDecides(t *testing.T) {
	created := monday.Add(17*time.Second + 300*time.Millisecond)
	r := &schedule.Rule{ID: "r", Name: "n", Cron: "@every 1m30s", CreatedAt: created, DecidedTo: created, Status: tickplan.StatusNew, Task: &schedule.TaskTemplate{Type: "t"}}
	cal, err := calendar.Parse(calendar.Spec{Cron: r.Cron, Start: created})
	require.NoError(t, err)
	asked := monday.Add(10 * time.Minute)
	online := tickplan.Enable(r, cal, asked)
	ticks, err := tickplan.Preview(online, asked, 3)
	require.NoError(t, err)
	require.Equal(t, online.NextFireAt, ticks[0].UTC)
	require.Equal(t, []string{"00:10:47", "00:12:17", "00:13:47"}, instants(ticks))

	ticks, err = tickplan.Preview(r, monday.AddDate(-1, 0, 0), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"00:01:47", "00:03:17"}, instants(ticks), "none before its creation")

	r.StartAt = monday.Add(time.Hour)
	r.EndAt = r.StartAt.Add(2 * time.Minute)
	ticks, err = tickplan.Preview(r, asked, 9)
	require.NoError(t, err)
	require.Equal(t, []string{"01:00:00", "01:01:30"}, instants(ticks), "from its start to its end")

	ticks, err = tickplan.Preview(r, r.EndAt, 9)
	require.NoError(t, err)
	require.Empty(t, ticks, "it is over, which is no mistake")

	r.StartAt, r.EndAt, r.MaxRuns, r.Runs = time.Time{}, time.Time{}, 2, 2
	ticks, err = tickplan.Preview(r, asked, 9)
	require.NoError(t, err)
	require.Empty(t, ticks, "it ran as often as it may")
}

func TestPreviewOfARuleNotStoredCountsFromTheInstant(t *testing.T) {
	ticks, err := tickplan.Preview(ruleOf(t, schedule.Spec{Name: "n", Type: "t", Cron: "@every 1m30s"}, monday.Add(time.Second)), monday.Add(time.Second), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"00:01:31", "00:03:01"}, instants(ticks))
}

func TestPreviewRefusesSenselessNumbers(t *testing.T) {
	for _, n := range []int{0, 10_001} {
		_, err := tickplan.Preview(&schedule.Rule{Cron: "@daily"}, monday, n)
		require.ErrorIs(t, err, model.ErrInvalid)
	}
}
