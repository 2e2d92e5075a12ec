package periodic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A rule without a limit has one, too: it is one document. What it skips for that says so,
// and is not taken for what the rule's own policy skips.
func TestBeyondAThousandRunsARuleSkipsForItsCapacity(t *testing.T) {
	w := newWorld(t, schedule.Spec{Name: "n", Type: "t", Cron: "* * * * * *", Overlap: schedule.OverlapParallel})
	var ticks []time.Time
	for i := range tickplan.MaxActive {
		ticks = append(ticks, epoch.Add(time.Duration(i-tickplan.MaxActive)*time.Second))
	}
	w.decide(tickplan.Enable(w.rule, w.cal, w.now))
	w.decide(tickplan.Backfill(w.rule, w.cal, "all", ticks, w.now))
	require.Len(t, w.rule.Active, tickplan.MaxActive)
	w.decide(tickplan.Trigger(w.rule, w.cal, "forced", true, w.now))
	w.now = w.now.Add(time.Second)
	w.look()
	require.Len(t, w.rule.Active, tickplan.MaxActive)
	for _, id := range []string{"r!forced", tickplan.TickID("r", w.now)} {
		require.Equal(t, schedule.RunSkipped, w.runs[id].Status, id)
		require.Equal(t, tickplan.SkipCapacity, w.runs[id].Reason, id)
	}
}
