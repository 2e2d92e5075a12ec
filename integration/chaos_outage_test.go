package integration

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// Handlers that return while nobody reaches the database have done their work: it is
// finished afterwards, by the execution that did it.
func TestWhatFinishedDuringAnOutageLongerThanTheLeaseIsFinishedAfterwards(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		done := newEffects()
		goOn := make(chan struct{})
		work := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			done.begin(task.TaskID)
			defer done.end(task.TaskID)
			<-goOn // it ignores its context: the work cannot be interrupted
			return 7, nil
		}
		hands := []*hand{a.hire("one", work, through(away)), a.hire("two", work, through(away))}
		ids := a.send(20, seconds(4))
		awaitTrue(t, func() string {
			if len(hands[0].events.all(workerevent.Started))+len(hands[1].events.all(workerevent.Started)) < 20 {
				return "twenty handlers"
			}
			return ""
		})
		px.Cut()
		outage := time.Now()
		for _, h := range hands {
			if len(h.events.all(workerevent.Started)) > 0 {
				h.events.await(t, workerevent.LeaseLost, len(h.events.all(workerevent.Started)))
			}
		}
		close(goOn)
		a.awaitEach(ids, "over their lease for long", func(task *model.Task) bool {
			return a.store.Clock.Now().Sub(task.WorkerStates[0].PingExpireTime) > 2*time.Second
		})
		px.Mend()
		a.awaitSuccess(ids)
		t.Logf("away for %v", time.Since(outage))
		done.requireOnce(t, ids)
		for _, id := range ids {
			task := a.get(id)
			require.Zero(t, task.ErrorCount+task.LapseCount, "the outage cost %s something", id)
			require.Len(t, task.WorkerStates, 1)
			require.EqualValues(t, 7, task.Result.AsInt64())
		}
		for _, h := range hands {
			require.Zero(t, h.Stats().Fenced)
		}
	})
}

// Handlers that heed their context give their tasks back when the database is there
// again, and the tasks run once more: nothing was counted against them.
func TestHandlersStoppedByAnOutageGiveTheirTasksBackWithoutCost(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		var outage atomic.Bool
		outage.Store(true)
		done := newEffects()
		h := a.hire("one", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if outage.Load() {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return done.handle(ctx, task)
		}, through(away))
		ids := a.send(10, a.seconds(3))
		h.events.await(t, workerevent.Started, 10)
		px.Cut()
		h.events.await(t, workerevent.LeaseLost, 10)
		outage.Store(false)
		px.Mend()
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		for _, id := range ids {
			task := a.get(id)
			require.Zero(t, task.ErrorCount+task.LapseCount)
			require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
			require.Equal(t, 1, task.Attempt, "what was given back does not count")
		}
	})
}

// The server itself is gone and comes back at the same address with its file.
func TestWorkGoesOnAfterTheServerRestarts(t *testing.T) {
	onRestartable(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		done := newEffects()
		work := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			done.begin(task.TaskID)
			defer done.end(task.TaskID)
			time.Sleep(50 * time.Millisecond) // the work itself: the restarts are to meet it
			return 1, nil
		}
		for _, name := range []string{"one", "two", "three"} {
			_, away := a.behind()
			a.hire(name, work, through(away), func(c *handConfig) { c.Concurrency = 5 })
		}
		ids := a.send(e.Of(600, 300), seconds(30))
		for range 2 {
			before := countSuccess(t, a, ids)
			awaitTrue(t, func() string {
				if countSuccess(t, a, ids) < min(before+50, len(ids)) {
					return "some more successes"
				}
				return ""
			})
			require.NoError(t, e.Restart(t.Context()))
		}
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		for _, id := range ids {
			task := a.get(id)
			require.Zero(t, task.ErrorCount+task.LapseCount, "the restart cost %s something", id)
		}
	})
}

// The server is gone for longer than the leases, and comes back as another primary. All
// leases have lapsed then, although all their workers are well. Their drivers look for it
// twice a second, each at its own time, so one worker is back before the other.
func TestHealthyWorkersTakeNothingFromEachOtherAfterTheServerWasAway(t *testing.T) {
	onRestartable(t, func(t *testing.T, e Engine) {
		if e.Slow {
			t.Skip("leases of two seconds: this engine takes longer for the claims and pings of one batch")
		}
		a := newArena(t, e)
		n := e.Of(400, 100)
		var back atomic.Bool
		work := func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			if back.Load() {
				return 1, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		var ways []*proxy.Proxy
		var hands []*hand
		for _, name := range []string{"one", "two"} {
			px, away := a.behind()
			ways = append(ways, px)
			hands = append(hands, a.hire(name, work, through(away), narrow(n/2)))
		}
		ids := a.send(n, a.seconds(2))
		a.awaitCount(model.StatusExecuting, int64(n))
		for _, px := range ways {
			px.Cut()
		}
		a.awaitEach(ids, "over their lease", func(task *model.Task) bool {
			return a.store.Clock.Now().After(task.LapseAt.Add(time.Second))
		})
		back.Store(true)
		require.NoError(t, e.Restart(t.Context()))
		ways[0].Mend()
		hands[0].events.await(t, workerevent.Restored, 1)
		time.Sleep(time.Second) // what the other one needs longer to notice
		ways[1].Mend()
		a.awaitSuccess(ids)
		taken, late := 0, 0
		for _, h := range hands {
			taken += int(h.Stats().Takeovers) + len(h.events.all(workerevent.Lapsed))
			late += int(h.Stats().Fenced)
		}
		t.Logf("of %d tasks %d were taken from a healthy worker, %d releases came too late", n, taken, late)
		require.Less(t, taken, n/10)
		require.Less(t, late, n/10)
	})
}

// onRestartable runs a scenario on deployments of its own that keep their data over a restart.
func onRestartable(t *testing.T, scenario func(t *testing.T, e Engine)) {
	onEngines(t, func(t *testing.T, e Engine) {
		switch e.Name {
		case "embedded":
			e.Engine = engine.Virtual(embedded.Options{Path: filepath.Join(t.TempDir(), "tasks.db")})
		case "secantusd":
		default:
			t.Skip("this engine may not be restarted")
		}
		scenario(t, e.another(t))
	})
}

func countSuccess(t *testing.T, a *arena, ids []string) int {
	t.Helper()
	n, err := a.store.History.Count(t.Context(), store.Filter{Statuses: []model.Status{model.StatusSuccess}})
	require.NoError(t, err)
	return int(n)
}
