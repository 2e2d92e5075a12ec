package tickplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A failure costs one of the runs that wait, and as much is planned as one document should carry.
func TestARunThatIsSkippedIsNotTheOneThatAnEndStarts(t *testing.T) {
	at := func(sec int) time.Time { return time.Date(2026, 3, 2, 0, 0, sec, 0, time.UTC) }
	ref := func(sec int) schedule.RunRef {
		return schedule.RunRef{ID: TickID("r", at(sec)), Nominal: at(sec), Attempt: 1, TaskType: "t"}
	}
	r := &schedule.Rule{
		ID: "r", Name: "n", Rev: 1, Task: &schedule.TaskTemplate{Type: "t"},
		OnFailure: schedule.FailureSkip, MaxConcurrency: 2, Concurrency: schedule.ConcurrencyQueue,
		Active: []schedule.RunRef{ref(0)}, Queued: []schedule.RunRef{ref(10), ref(20), ref(30)},
		Last:    &schedule.LastRun{ID: ref(0).ID, Nominal: at(0), Attempt: 1, Status: schedule.RunRunning},
		Planned: []schedule.Planned{{ID: "1.0", Task: &model.Task{Args: bson.RawValue{Value: make([]byte, 3<<20)}}}},
	}
	require.True(t, Heavy(r))
	failed := &model.Task{ID: "-/t/" + ref(0).ID, Origin: &model.Origin{Tick: &model.Tick{Run: ref(0).ID, Nominal: at(0), Attempt: 1}}}
	after := Ended(r, failed, schedule.RunFailed, "no data", at(31))
	require.Len(t, after.Active, 1)
	require.Equal(t, ref(20).ID, after.Active[0].ID)
	require.Len(t, after.Queued, 1, "it waits for the end of that one")
	require.Equal(t, schedule.RunSkipped, after.Planned[2].Record.Status)
	require.Equal(t, ref(10).ID, after.Planned[2].Record.ID)
}
