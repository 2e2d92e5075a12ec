package pull

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A caller that goes away while its claim is under way must not hold the tasks until their leases lapse, which counts as a
// lapse of each.
func TestWhatIsClaimedForACallerThatNoLongerWaitsIsGivenBack(t *testing.T) {
	for name, do := range map[string]proxy.Action{"won": proxy.HoldAfter, "not yet carried out": proxy.HoldBefore} {
		p := testdb.BehindPatient(t)
		b := setupOn(t, testdb.Through(t, p))
		s := b.send(mail{}, producer.Key("k"))
		claims := p.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "worker_states", Do: do})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := b.p.Fetch(ctx, FetchRequest{WorkerID: "w", Types: []string{mailType.Name()}})
			failed <- err
		}()
		testdb.Receive(t, claims.Hit())
		cancel()
		require.ErrorIs(t, testdb.Receive(t, failed), context.Canceled, name)
		claims.Release()
		testdb.Eventually(t, "it is due again", func() bool {
			back := b.get(s.ID)
			return len(back.WorkerStates) > 0 && lifecycle.OpenExecutions(back) == 0 && !back.DueAt.IsZero()
		})
		require.Zero(t, b.get(s.ID).LapseCount, name)
	}
}

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
