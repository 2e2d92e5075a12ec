package consumer

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// While the permit of one task is taken, this worker's own retry of another comes due: nobody
// has asked for a permit of that.
func TestWhatBecomesClaimableWhileGrantsAreAskedForIsLeftToTheNextFetch(t *testing.T) {
	c, o := prepared(t, testdb.New(t))
	ctx := t.Context()
	require.NoError(t, c.store.Types.Put(ctx, &model.TaskType{Code: quietType, MaxRunning: 1}))
	c.control.Forget()
	require.NoError(t, c.control.Fresh(ctx))
	require.True(t, c.gate.LimitsType(quietType))
	again := put(t, c, "again", func(task *model.Task) {
		now := c.store.Clock.Now()
		task.Options.ConcurrentWorkerCount = 2
		eff := lifecycle.ResolveOptions(task.Options)
		claimed, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: c.cfg.WorkerID, ExecID: "earlier"}, eff, now)
		require.Empty(t, no)
		failed, err := lifecycle.Finish(claimed, "earlier", lifecycle.Failed(failkind.Error, "boom").After(time.Minute), eff, now, 0)
		require.NoError(t, err)
		*task = *failed
	})
	other := put(t, c, "other", nil)
	require.Equal(t, lifecycle.RefusedOwnRetry, lifecycle.Claimable(again, c.cfg.WorkerID, lifecycle.ResolveOptions(again.Options), c.store.Clock.Now()))
	var once sync.Once
	o.watch(func(command string) {
		if command == "insert permits" {
			once.Do(func() { c.store.Clock.Skip(time.Hour) })
		}
	})
	out, err := c.claim(ctx, []*model.Task{again, other}, nil)
	require.NoError(t, err)
	require.Empty(t, lifecycle.Claimable(again, c.cfg.WorkerID, lifecycle.ResolveOptions(again.Options), c.store.Clock.Now()), "the time has come")
	require.Len(t, out.Won, 1)
	stored, err := c.store.Tasks.Get(ctx, again.ID)
	require.NoError(t, err)
	require.Equal(t, again.Rev, stored.Rev)
}

// The sender's estimate of the database's time may lag less than the worker's.
func TestATaskThatIsDueAtOnceIsClaimedWhereTheEstimateLags(t *testing.T) {
	for _, maxRunning := range []int{0, 2} {
		c, _ := prepared(t, testdb.New(t))
		if maxRunning > 0 {
			require.NoError(t, c.store.Types.Put(t.Context(), &model.TaskType{Code: quietType, MaxRunning: maxRunning}))
			c.control.Forget()
			require.NoError(t, c.control.Fresh(t.Context()))
		}
		ahead := func(d time.Duration) func(*model.Task) {
			return func(task *model.Task) {
				at := task.CreatedAt.Add(c.store.Clock.Error() + d).Truncate(time.Millisecond)
				task.CreatedAt, task.StartTime, task.DueAt = at, at, at
			}
		}
		first, second := put(t, c, "first", ahead(time.Millisecond)), put(t, c, "second", ahead(2*time.Millisecond))
		out, err := c.claim(t.Context(), []*model.Task{first, second}, nil)
		require.NoError(t, err)
		require.Len(t, out.Won, 2)
		for _, w := range out.Won {
			_, state := lifecycle.ExecutionOf(w.After, out.ExecID)
			require.False(t, state.ClaimedAt.Before(second.CreatedAt), "one time for all: they are one update")
		}
	}
}
