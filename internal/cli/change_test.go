package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestOfManyReasonsToLeaveTasksAloneTheMostFrequentComeFirst(t *testing.T) {
	c := bulk.Counts{Skipped: 11, Reasons: map[string]int64{"for other reasons": 5, "reason 3": 2, "reason 0": 1, "reason 1": 1, "reason 2": 1, "reason 4": 1}}
	require.Equal(t, ", 11 skipped:\n  5: for other reasons\n  2: reason 3\n  1: reason 0\n  1: reason 1\n  1: reason 2\n  1: reason 4", skippedText(&c))
}

// A key may begin a new life between the look at a page and a redelivery.
func TestAFilterRedeliversTheLivesThatItFound(t *testing.T) {
	t.Parallel()
	s, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	task := lifecycle.NewTask(lifecycle.Draft{Type: "mail", Key: "k"}, s.Clock.Now())
	_, err = s.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	var redelivered []string
	run := changing{c: &connection{store: s}, taskChange: taskChange{Action: bulk.Redeliver, apply: func(_ context.Context, _ *connection, id, _ string) (*model.Task, error) {
		redelivered = append(redelivered, id)
		return task, nil
	}}}
	require.NoError(t, run.all(t.Context(), store.Filter{Type: "mail"}, &bulk.Counts{}))
	require.Equal(t, []string{lifeName(task.ID, task.Generation)}, redelivered)
}
