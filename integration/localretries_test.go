package integration

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// locally are n retries inside an execution, and none beside.
func locally(n int) producer.Option {
	return producer.Retry(model.Retry{Strategy: model.RetryNone, Local: &model.LocalRetry{Count: n, Interval: time.Millisecond}})
}

func TestLocalRetriesAreCountedInTheExecution(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.sendKey("k", 1, locally(3)).ID
		var runs atomic.Int32
		a.drain(func(_ context.Context, task *consumer.Task[int]) (int, error) {
			stored := a.get(id).WorkerStates[0].LocalRetries
			if stored != int(runs.Add(1))-1 {
				return 0, consumer.Fatal(errNo)
			}
			return 0, errNo
		})
		task := a.get(id)
		require.Equal(t, failkind.Error, task.WorkerStates[0].FailKind, "each retry was counted before it began")
		require.Equal(t, 3, task.WorkerStates[0].LocalRetries)
		require.EqualValues(t, 4, runs.Load())
		require.Equal(t, 1, task.ErrorCount)
	})
}

// A worker that loses the database in the middle of its local retries does not have them
// again by its heir.
func TestATakeoverGoesOnCountingLocalRetries(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, lost := a.behind()
		var before, after atomic.Int32
		inside := make(chan struct{})
		a.hire("victim", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			if before.Add(1) == 3 { // two retries have begun
				close(inside)
				<-ctx.Done()
			}
			return 0, errNo
		}, through(lost), polling)
		id := a.sendKey("k", 1, locally(3), a.seconds(2)).ID
		receive(t, inside, "the second local retry")
		px.Cut()
		a.hire("heir", func(context.Context, *consumer.Task[int]) (int, error) {
			after.Add(1)
			return 0, errNo
		})
		task := a.awaitStatus(id, model.StatusFailure)
		require.EqualValues(t, 3, before.Load())
		require.EqualValues(t, 2, after.Load(), "the takeover itself, and the one retry that was left")
		require.Equal(t, 1, task.LapseCount)
		require.Equal(t, 1, task.ErrorCount)
		require.Equal(t, 3, task.WorkerStates[1].LocalRetries)
		px.Mend()
	})
}

// A release costs nothing, and gives nothing either.
func TestAReleaseDoesNotRenewLocalRetries(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.sendKey("k", 1, locally(2)).ID
		var runs atomic.Int32
		handle := func(context.Context, *consumer.Task[int]) (int, error) {
			if runs.Add(1) == 2 {
				return 0, consumer.Release()
			}
			return 0, errNo
		}
		a.drain(handle, mstest.SkipTime())
		task := a.get(id)
		require.Equal(t, model.StatusFailure, task.Status)
		require.EqualValues(t, 4, runs.Load(), "two, of which the second was released, then the same attempt again and the retry that was left")
	})
}

// After an error the next attempt has all of them again.
func TestAnErrorRenewsLocalRetries(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.sendKey("k", 1, producer.Retry(model.Retry{
			Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: new(1), Local: &model.LocalRetry{Count: 2},
		})).ID
		var runs atomic.Int32
		a.drain(func(context.Context, *consumer.Task[int]) (int, error) {
			runs.Add(1)
			return 0, errNo
		}, mstest.SkipTime())
		require.EqualValues(t, 6, runs.Load())
		for _, w := range a.get(id).WorkerStates {
			require.Equal(t, 2, w.LocalRetries)
		}
	})
}

// The count is repeated until the server answers, and counts once.
func TestALocalRetryWaitsUntilItIsCounted(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				px, way := a.behind()
				trap := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "local_retries", Do: action})
				var runs atomic.Int32
				a.hire("w", func(context.Context, *consumer.Task[int]) (int, error) {
					runs.Add(1)
					return 0, errNo
				}, through(way))
				task := a.awaitStatus(a.sendKey("k", 1, locally(2)).ID, model.StatusFailure)
				require.EqualValues(t, 3, runs.Load())
				require.Equal(t, 2, task.WorkerStates[0].LocalRetries)
				require.Equal(t, 1, trap.Sprung())
			})
		}
	})
}

// Where nothing is retried inside, nothing is written for it.
func TestWithoutLocalRetriesNothingIsCounted(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, way := a.behind()
		trap := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "local_retries", Do: proxy.Pass})
		a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == 1 {
				return 0, errNo
			}
			return 0, nil
		}, through(way))
		a.awaitStatus(a.sendKey("bad", 1, retries(0, 0)).ID, model.StatusFailure)
		a.awaitStatus(a.sendKey("good", 2, locally(5)).ID, model.StatusSuccess)
		require.Zero(t, trap.Sprung())
	})
}
