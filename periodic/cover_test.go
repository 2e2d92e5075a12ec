package periodic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A rule of every second has 315 million ticks in ten years: they are counted, not walked.
func TestEnablingAfterYearsRecordsEachPausedTickInOneRecord(t *testing.T) {
	r := &schedule.Rule{ID: "r", Name: "n", Cron: "* * * * * *", CreatedAt: monday, DecidedTo: monday, Status: tickplan.StatusOffline, PausedAt: monday, Task: &schedule.TaskTemplate{Type: "t"}}
	cal, err := calendar.Parse(calendar.Spec{Cron: r.Cron})
	require.NoError(t, err)
	now := monday.AddDate(10, 0, 0)
	seconds := int64(now.Sub(monday) / time.Second)

	online := tickplan.Enable(r, cal, now)
	require.Equal(t, &schedule.SkipSpan{ID: online.Range.ID, Reason: tickplan.SkipPaused, First: monday.Add(time.Second), Last: now, Count: seconds}, online.Range)

	r.EndAt = now.Add(-time.Hour)
	over := tickplan.Enable(r, cal, now)
	require.Equal(t, seconds-3601, over.Range.Count, "none at its end or after")
	require.Equal(t, r.EndAt.Add(-time.Second), over.Range.Last)
}
