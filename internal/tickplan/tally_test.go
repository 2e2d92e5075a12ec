package tickplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestATallyCountsWhatADecisionAdds(t *testing.T) {
	started := func(id string, manual bool) schedule.Planned {
		return schedule.Planned{ID: id, Task: &model.Task{Origin: &model.Origin{Tick: &model.Tick{Manual: manual}}}}
	}
	skips := func(id, run string, why string, n int64) schedule.Planned {
		return schedule.Planned{ID: id, Record: &schedule.Run{ID: run, Status: schedule.RunSkipped, Reason: why, Count: n}}
	}
	before := &schedule.Rule{
		Planned: []schedule.Planned{started("1.0", false), skips("1.1", "r@1", SkipOverlap, 4)},
		Range:   &schedule.SkipSpan{ID: "r@1", Reason: SkipOverlap, Count: 4},
		Queued:  []schedule.RunRef{{ID: "q1"}},
	}
	after := &schedule.Rule{
		Planned: append(before.Planned, started("2.0", false), started("2.1", true), skips("2.2", "r@1", SkipOverlap, 6), skips("2.3", "r@9", SkipMissed, 3)),
		Range:   &schedule.SkipSpan{ID: "r@9", Reason: SkipMissed, Count: 3},
		Queued:  []schedule.RunRef{{ID: "q1"}, {ID: "q2"}, {ID: "q3", Manual: true}},
	}
	require.Equal(t, map[string]int64{TickStarted: 1, TickQueued: 1, "overlap": 2, "missed": 3}, Tally(before, after))
	require.Empty(t, Tally(after, after))
	refused := &schedule.Rule{Planned: []schedule.Planned{{ID: "1.0", Record: &schedule.Run{ID: "r!1", Status: schedule.RunSkipped, Reason: SkipConcurrency, Count: 1, Manual: true}}}}
	require.Empty(t, Tally(&schedule.Rule{}, refused), "a person's run is no tick")

	silent := &schedule.Rule{Log: schedule.LogNone, Range: &schedule.SkipSpan{ID: "r@1", Reason: SkipOverlap, Count: 7}}
	require.Equal(t, map[string]int64{"overlap": 3}, Tally(before, silent), "of a rule without records")
}
