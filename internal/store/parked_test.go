package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// A ping may be on its way while the handler's return parks the execution. It must not lengthen the wait for the
// completion, which was promised until a fixed time.
func TestAPingThatArrivesAfterAParkChangesNothing(t *testing.T) {
	for _, workers := range [][]string{{"w"}, {"w", "v"}} {
		s := newStepping(t)
		task, other := s.held("parked", workers...), s.held("other", workers...)
		until := s.now.Add(5 * time.Second)
		after, err := lifecycle.Park(task, "w", until, lifecycle.Outcome{}, lifecycle.ResolveOptions(task.Options), s.now)
		require.NoError(t, err)
		written, err := s.Tasks.Writes(t.Context(), []store.Write{{Before: task, After: after}}, 0)
		require.NoError(t, err)
		require.True(t, written[0].Applied)

		late, many := s.now.Add(time.Hour), len(workers) > 1
		pings := []store.Ping{{ID: task.ID, ExecID: "w", Many: many, Until: late}, {ID: other.ID, ExecID: "w", Many: many, Until: late}}
		lost, err := s.Tasks.Pings(t.Context(), pings, store.Patience)
		require.NoError(t, err)
		require.Empty(t, lost, "it is open")
		require.True(t, pings[0].Missed)
		require.False(t, pings[1].Missed)
		stored, err := s.Tasks.Get(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, after.WorkerStates, stored.WorkerStates)
		require.Equal(t, after.LapseAt, stored.LapseAt)
	}
}
