package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A command's statements run one after the other on one thread of the server.
func TestManyUpdatesThatDifferReachTheServerAsSeveralCommandsAtOnce(t *testing.T) {
	p := testdb.Behind(t)
	s, _ := openAs(t, options.Client().ApplyURI(p.URI()))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	tasks := make([]*model.Task, 1000)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, s.Clock.Now())
	}
	_, err := s.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	write := func(n int, remark func(i int) string) []store.Write {
		writes := make([]store.Write, n)
		for i := range writes {
			after := *tasks[i]
			after.Rev++
			after.Remark = remark(i)
			writes[i] = store.Write{Before: tasks[i], After: &after}
		}
		return writes
	}
	for _, c := range []struct{ tasks, commands int }{{1000, 4}, {499, 1}} {
		trap := p.Set(proxy.Rule{Command: "update", Do: proxy.HoldBefore, Times: -1})
		done := make(chan error, 1)
		writes := write(c.tasks, func(i int) string { return fmt.Sprint("remark ", i) })
		var written []store.Written
		go func() {
			var err error
			written, err = s.Tasks.Writes(t.Context(), writes, store.Patience)
			done <- err
		}()
		require.Eventually(t, func() bool { return trap.Sprung() == c.commands }, 30*time.Second, time.Millisecond, "all are under way at the same time")
		trap.Release()
		require.NoError(t, <-done)
		for i, w := range written {
			require.True(t, w.Applied, i)
			tasks[i] = writes[i].After
		}
		require.Equal(t, c.commands, trap.Sprung())
	}
}
