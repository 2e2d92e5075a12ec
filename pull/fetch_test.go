package pull

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A caller that goes away before the start of a rate must not have the task before it.
func TestWhatIsNotWaitedForIsGivenBackBeforeItsStart(t *testing.T) {
	b := setup(t)
	now := b.get(b.send(mail{}, producer.Key("now")).ID)
	later := b.get(b.send(mail{}, producer.Key("later")).ID)
	f := &fetch{p: b.p, FetchRequest: FetchRequest{WorkerID: "w"}, exec: "exec-of-w", left: 2}
	claimed := func(task *model.Task) *model.Task {
		b.Claim(task.ID, "w")
		return b.get(task.ID)
	}
	at := b.p.room.Store.Clock.Now()
	tasks := []store.Write{{Before: now, After: claimed(now)}, {Before: later, After: claimed(later)}}
	grants := []limits.Grant{
		{From: at.Add(-time.Hour), Until: at.Add(2 * time.Hour)},
		{From: at.Add(time.Hour), Until: at.Add(2 * time.Hour)},
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.begin(ctx, tasks, grants), context.Canceled)
	require.Len(t, f.out, 1)
	require.Equal(t, now.ID, f.out[0].Task.ID)
	require.Equal(t, model.StatusExecuting, b.get(now.ID).Status)
	back := b.get(later.ID)
	require.Equal(t, model.StatusNew, back.Status)
	require.False(t, back.DueAt.IsZero())
	require.Zero(t, back.ErrorCount)
	require.Zero(t, lifecycle.OpenExecutions(back))
}
