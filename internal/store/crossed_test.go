package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Claims for many workers go out in several commands at once. Of two of a task, the first command has the one that wins
// and finds all of its own done; the second one often answers before.
func TestOfTwoClaimsOfATaskInOneCallOneIsWon(t *testing.T) {
	s := permitted(t)
	now := s.Clock.Now()
	for round := range 20 {
		var tasks []*model.Task
		var writes []store.Write
		claim := func(task *model.Task) {
			by := lifecycle.Claimant{WorkerID: "w", ExecID: fmt.Sprint(round, "/", len(writes))}
			claimed, no := lifecycle.Claim(task, by, lifecycle.ResolveOptions(task.Options), now)
			require.Empty(t, no)
			writes = append(writes, store.Write{Before: task, After: claimed})
		}
		for i := range 499 {
			tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(round, "/", i)}, now))
			claim(tasks[i])
		}
		claim(tasks[0])
		_, err := s.Tasks.Insert(t.Context(), tasks)
		require.NoError(t, err)
		written, err := s.Tasks.Writes(t.Context(), writes, store.Patience)
		require.NoError(t, err)
		won := map[string]int{}
		for i, w := range written {
			if w.Applied {
				won[writes[i].After.ID]++
			}
		}
		for _, task := range tasks {
			require.Equal(t, 1, won[task.ID], task.ID)
		}
	}
}

// A request to cancel begins and ends no execution. If another write of the same task comes first, the request is not
// stored, although the task has the rev that it would have.
func TestAWriteThatAnotherHasCrossedIsNotTakenForDone(t *testing.T) {
	s, direct := openAs(t, options.Client().ApplyURI(testdb.URI(t)))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
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
	touched.UpdatedAt, touched.WakeAt, touched.Category = now, now, "another"
	require.True(t, write(running, &touched).Applied)
	_, err = direct.Collection("tasks").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "wake_at", Value: now.Add(time.Second)}}}})
	require.NoError(t, err)
	require.True(t, write(running, &touched).Applied, "to wake it is no new rev")
	crossed := write(running, cancelled)
	require.False(t, crossed.Applied)
	require.True(t, crossed.Current.CancelRequestedAt.IsZero())
	again, err := lifecycle.Cancel(crossed.Current, "by a person", eff, now)
	require.NoError(t, err)
	require.True(t, write(crossed.Current, again).Applied)
	require.True(t, write(crossed.Current, again).Applied, "as when its answer is lost")
	touched.WakeAt = now.Add(time.Second)
	require.True(t, write(running, &touched).Applied, "what it left is still there")
	read, err := s.Tasks.Get(t.Context(), id)
	require.NoError(t, err)
	require.False(t, read.CancelRequestedAt.IsZero())
	require.Equal(t, running.Rev+2, read.Rev)
}
