package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// A request to cancel begins and ends no execution. If another write of the same task comes first, the request is not
// stored, although the task has the rev that it would have.
func TestAWriteThatAnotherHasCrossedIsNotTakenForDone(t *testing.T) {
	s := permitted(t)
	now := s.Clock.Now()
	send(t, s, "t", "k", now)
	id := model.TaskID("", "t", "k")
	task, err := s.Tasks.Get(t.Context(), id)
	require.NoError(t, err)
	eff := lifecycle.ResolveOptions(task.Options)
	running, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, eff, now)
	require.Empty(t, no)
	write := func(before, after *model.Task) store.Written {
		t.Helper()
		written, err := s.Tasks.Writes(t.Context(), []store.Write{{Before: before, After: after}}, store.Patience)
		require.NoError(t, err)
		return written[0]
	}
	require.True(t, write(task, running).Applied)

	cancelled, err := lifecycle.Cancel(running, "by a person", eff, now)
	require.NoError(t, err)
	require.Equal(t, model.StatusExecuting, cancelled.Status, "its handler ends it")
	touched := *running
	touched.Rev++
	touched.UpdatedAt, touched.Category = now, "another"
	require.True(t, write(running, &touched).Applied)
	crossed := write(running, cancelled)
	require.False(t, crossed.Applied)
	require.True(t, crossed.Current.CancelRequestedAt.IsZero())
	require.True(t, write(running, &touched).Applied, "as when its answer is lost")

	again, err := lifecycle.Cancel(crossed.Current, "by a person", eff, now)
	require.NoError(t, err)
	require.True(t, write(crossed.Current, again).Applied)
	require.True(t, write(crossed.Current, again).Applied, "as when its answer is lost")
	require.True(t, write(running, &touched).Applied, "what it left is still there")
	read, err := s.Tasks.Get(t.Context(), id)
	require.NoError(t, err)
	require.False(t, read.CancelRequestedAt.IsZero())
	require.Equal(t, running.Rev+2, read.Rev)
}
