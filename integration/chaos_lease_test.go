package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestALapsedLeaseIsTakenOverOnceByOne(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(1)
		a.abandon(ids, "dead", time.Second)
		done := newEffects()
		var hands []*hand
		for i := range 5 {
			hands = append(hands, a.hire(fmt.Sprintf("heir-%d", i), done.handle))
		}
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		var takeovers []consumer.Event
		for _, h := range hands {
			require.NoError(t, h.stop())
			takeovers = append(takeovers, h.events.all(workerevent.TakenOver)...)
		}
		require.Len(t, takeovers, 1)
		require.Equal(t, "dead", takeovers[0].Previous)
		task := a.get(ids[0])
		require.Equal(t, 1, task.LapseCount)
		require.Equal(t, 0, task.ErrorCount, "a lapse is no error")
		require.Equal(t, failkind.Lapsed, task.WorkerStates[0].FailKind)
		require.False(t, takeovers[0].At.Before(task.WorkerStates[0].PingExpireTime), "taken before the lease ended")
	})
}

func TestAThousandLapsedLeasesAreTakenOverAtOnceEachByOne(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(1000, 200)
		ids := a.send(n)
		a.abandon(ids, "dead", time.Second)
		done := newEffects()
		var hands []*hand
		for i := range 4 {
			hands = append(hands, a.hire(fmt.Sprintf("heir-%d", i), done.handle))
		}
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		takeovers, fenced := 0, 0
		for _, h := range hands {
			require.NoError(t, h.stop())
			s := h.Stats()
			takeovers += int(s.Takeovers)
			fenced += int(s.Fenced)
		}
		require.Positive(t, takeovers)
		require.LessOrEqual(t, takeovers, n, "the rest was left to be claimed")
		require.Zero(t, fenced)
		for _, id := range ids {
			task := a.get(id)
			require.Equal(t, 1, task.LapseCount, id)
		}
	})
}

// A worker is cut off. Its handler is told before the lease ends, somebody else takes
// the task over after it ended, and what the first still returns is refused.
func TestAPartitionedWorkerStopsBeforeItsTaskIsTakenOverAndItsLateResultIsRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		told, goOn := make(chan error, 1), make(chan struct{})
		first := a.hire("partitioned", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			<-ctx.Done()
			told <- context.Cause(ctx)
			<-goOn // it ignores what it was told
			return 1, nil
		}, through(away))
		ids := a.send(1, a.seconds(2))
		claimed := first.events.await(t, workerevent.Started, 1)
		px.Cut()
		second := a.hire("heir", func(context.Context, *consumer.Task[int]) (int, error) { return 2, nil })
		require.ErrorIs(t, <-told, consumer.ErrLeaseLost)
		require.Empty(t, second.events.all(workerevent.TakenOver), "taken over before the owner was told")
		require.Equal(t, model.StatusExecuting, a.get(ids[0]).Status)
		a.awaitSuccess(ids)
		px.Mend()
		close(goOn)
		late := first.events.await(t, workerevent.Fenced, 1)
		require.Equal(t, claimed.ExecID, late.ExecID)
		task := a.get(ids[0])
		require.EqualValues(t, 2, task.Result.AsInt64(), "the late result is never applied")
		require.Equal(t, 1, task.LapseCount)
		require.Equal(t, int64(1), first.Stats().Fenced)
	})
}

func TestPingsKeepALease(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		release := make(chan struct{})
		keeper := a.hire("keeper", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			select {
			case <-release:
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		ids := a.send(3, a.seconds(2))
		keeper.events.await(t, workerevent.Started, 3)
		other := a.hire("other", func(context.Context, *consumer.Task[int]) (int, error) { return 2, nil })
		first := a.get(ids[0]).WorkerStates[0].PingExpireTime
		a.awaitEach(ids, "pinged for two leases", func(task *model.Task) bool {
			return task.WorkerStates[0].PingExpireTime.Sub(first) > a.lease(4*time.Second)
		})
		close(release)
		a.awaitSuccess(ids)
		require.Zero(t, other.Stats().Takeovers)
		for _, id := range ids {
			require.EqualValues(t, 1, a.get(id).Result.AsInt64())
		}
	})
}

// Only the pings do not get through: everything else does.
func TestFailingPingsEndTheHandlerWithinTheMargin(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "$max", Times: -1, Do: proxy.CutBefore})
		type end struct {
			cause error
			left  time.Duration
		}
		told := make(chan end, 1)
		var again atomic.Bool
		first := a.hire("unheard", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if again.Swap(true) {
				return 0, nil // it may get the task back before the test is over
			}
			<-ctx.Done()
			now := a.store.Clock.Now() // before the look, which may take its time
			until := a.get(task.TaskID).WorkerStates[0].PingExpireTime
			told <- end{context.Cause(ctx), until.Sub(now)}
			return 0, ctx.Err()
		}, through(away))
		ids := a.send(1, seconds(10)) // a margin of a second, for a busy machine
		got := <-told
		require.ErrorIs(t, got.cause, consumer.ErrLeaseLost)
		require.Positive(t, got.left, "the handler was told after its lease had ended")
		first.events.await(t, workerevent.Finished, 1)
		task := a.get(ids[0])
		require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind, "it gave the task back, without cost")
		require.Zero(t, task.ErrorCount+task.LapseCount)
	})
}

func TestARestartedWorkerFindsItsOwnLapsedWork(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(5, producer.Workers("only-me"))
		a.abandon(ids, "only-me", time.Second)
		done := newEffects()
		h := a.hire("only-me", done.handle)
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		require.EqualValues(t, 5, h.Stats().Takeovers)
	})
}

func TestAHandlerPastItsDeadlineIsTakenOverAlthoughItsWorkerPings(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		told, goOn := make(chan error, 1), make(chan struct{})
		stuck := a.hire("stuck", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Attempt > 1 {
				return 2, nil
			}
			<-ctx.Done()
			told <- context.Cause(ctx)
			<-goOn
			return 1, errors.New("far too late")
		})
		ids := a.send(1, seconds(10), producer.Timeout(time.Second), producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond}))
		stuck.events.await(t, workerevent.Started, 1)
		other := a.hire("other", func(context.Context, *consumer.Task[int]) (int, error) { return 2, nil })
		require.ErrorIs(t, <-told, consumer.ErrTimeout)
		a.awaitSuccess(ids)
		close(goOn)
		stuck.events.await(t, workerevent.Fenced, 1)
		task := a.get(ids[0])
		require.EqualValues(t, 2, task.Result.AsInt64())
		require.Equal(t, 1, task.ErrorCount, "a deadline counts as an error")
		require.Zero(t, task.LapseCount)
		require.Equal(t, failkind.Timeout, task.WorkerStates[0].FailKind)
		require.Zero(t, other.Stats().Fenced)
	})
}
