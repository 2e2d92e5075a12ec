package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// parks is a handler that hands its handle out and parks; tasks with negative arguments
// succeed.
func parks(handles chan<- string, until time.Time) handleWork {
	return func(ctx context.Context, task *consumer.Task[int]) (int, error) {
		if task.Args < 0 {
			return double(ctx, task)
		}
		handles <- task.Handle
		return 0, consumer.Park(until)
	}
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

func TestAParkedExecutionFreesItsSlotAndIsCompletedFromOutside(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		handles := make(chan string, 1)
		h := a.hire("w", parks(handles, tomorrow()), narrow(1))
		parked := a.sendKey("parked", 1, seconds(1))
		handle := receive(t, handles, "the handle")
		h.events.await(t, workerevent.Parked, 1)
		other := a.sendKey("other", -2)
		require.Equal(t, -4, resultOf(t, a.awaitStatus(other.ID, model.StatusSuccess)), "the slot is free")

		task := a.get(parked.ID)
		require.Equal(t, model.StatusExecuting, task.Status)
		require.Greater(t, task.WorkerStates[0].PingExpireTime.Sub(task.WorkerStates[0].ClaimedAt), 20*time.Hour)

		task, err := a.p.Complete(t.Context(), handle, 42)
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, task.Status)
		result, err := producer.Await(t.Context(), a.p, chaosWork, parked)
		require.NoError(t, err)
		require.Equal(t, 42, result)

		_, err = a.p.Complete(t.Context(), handle, 42)
		require.NoError(t, err, "a repetition is no error")
		_, err = a.p.Complete(t.Context(), handle, 43)
		require.ErrorIs(t, err, model.ErrFenced)
		_, err = a.p.Fail(t.Context(), handle, "no", producer.Failure{})
		require.ErrorIs(t, err, model.ErrFenced)
		require.Equal(t, 42, resultOf(t, a.get(parked.ID)))
	})
}

func TestACompletionThatComesBeforeTheParkWins(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		h := a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if _, err := a.p.Complete(ctx, task.Handle, 7); err != nil {
				return 0, err
			}
			return 0, consumer.Park(tomorrow())
		})
		sent := a.sendKey("k", 1)
		result, err := producer.Await(t.Context(), a.p, chaosWork, sent)
		require.NoError(t, err)
		require.Equal(t, 7, result)
		awaitTrue(t, func() string {
			if h.Stats().Held > 0 {
				return "the late park to be dropped"
			}
			return ""
		})
		require.Equal(t, model.StatusSuccess, a.get(sent.ID).Status)
		require.Empty(t, h.events.all(workerevent.Parked))
	})
}

func TestAFailureFromOutsideIsRetriedAndAFatalOneIsNot(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		handles := make(chan string, 1)
		h := a.hire("w", parks(handles, tomorrow()))
		sent := a.sendKey("k", 1, retries(3, time.Millisecond))
		for try := 1; try <= 2; try++ {
			handle := receive(t, handles, "the handle")
			h.events.await(t, workerevent.Parked, try)
			task, err := a.p.Fail(t.Context(), handle, "not good enough", producer.Failure{Fatal: try == 2})
			require.NoError(t, err)
			require.Equal(t, try, task.ErrorCount)
		}
		task := a.awaitStatus(sent.ID, model.StatusFailure)
		require.Equal(t, "not good enough", task.ErrorInfo)
		require.Equal(t, failkind.Error, task.WorkerStates[0].FailKind)
		require.Equal(t, failkind.Fatal, task.WorkerStates[1].FailKind)
	})
}

func TestAParkThatNobodyEndsTimesOutAndIsRetried(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Attempt == 1 {
				return 0, consumer.Park(a.store.Clock.Now().Add(time.Second))
			}
			return double(ctx, task)
		})
		sent := a.sendKey("k", 1, retries(1, 0))
		task := a.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, 1, task.ErrorCount)
		require.Equal(t, failkind.Timeout, task.WorkerStates[0].FailKind)
	})
}

func TestACancelledParkEndsAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		handles := make(chan string, 1)
		h := a.hire("w", parks(handles, tomorrow()))
		sent := a.sendKey("k", 1)
		handle := receive(t, handles, "the handle")
		h.events.await(t, workerevent.Parked, 1)
		task, err := a.p.Cancel(t.Context(), sent.ID, "not wanted")
		require.NoError(t, err)
		require.Equal(t, model.StatusCancelled, task.Status)
		_, err = a.p.Complete(t.Context(), handle, 42)
		require.ErrorIs(t, err, model.ErrFenced)
	})
}

// Somebody outside carries on what a worker began that has died, and pings for it.
func TestAPingFromOutsideKeepsTheLease(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		lease := a.lease(2 * time.Second)
		sent := a.sendKey("k", 1, producer.Lease(0, lease))
		a.abandon([]string{sent.ID}, "dead", lease)
		before := a.get(sent.ID).WorkerStates[0]
		handle := input.HandleOf(a.get(sent.ID), before.ExecID).String()
		h := a.hire("heir", double)
		pinged, err := a.puller.Ping(t.Context(), handle)
		for ; err == nil && pinged.Until.Sub(before.ClaimedAt) < 7*lease/2; pinged, err = a.puller.Ping(t.Context(), handle) {
			select { // the pace of whoever pings
			case <-time.After(lease / 10):
			case <-t.Context().Done():
			}
		}
		require.NoError(t, err, "it held for more than two leases")
		require.Empty(t, h.events.all(workerevent.TakenOver))
		_, err = a.p.Complete(t.Context(), handle, 9)
		require.NoError(t, err)
		require.Equal(t, 9, resultOf(t, a.awaitStatus(sent.ID, model.StatusSuccess)))

		_, err = a.puller.Ping(t.Context(), handle)
		require.ErrorIs(t, err, model.ErrFenced)
	})
}

func TestACheckpointIsHandedToTheNextExecution(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		type place struct{ Page, Line int }
		found := make(chan place, 3)
		handle := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			var at place
			there, err := task.Restore(&at)
			if err != nil || there != (task.Attempt > 1) {
				return 0, consumer.Fatal(errors.Join(errors.New("a checkpoint that should not be there, or the reverse"), err))
			}
			found <- at
			if task.Attempt == 3 {
				return at.Page, nil
			}
			if err := task.Checkpoint(ctx, place{Page: at.Page + 1, Line: 7}); err != nil {
				return 0, consumer.Fatal(err)
			}
			return 0, errNo
		}
		a.hire("one", handle)
		a.hire("two", handle)
		sent := a.sendKey("k", 1, retries(5, 0))
		result, err := producer.Await(t.Context(), a.p, chaosWork, sent)
		require.NoError(t, err)
		require.Equal(t, 2, result)
		require.Equal(t, place{}, <-found)
		require.Equal(t, place{Page: 1, Line: 7}, <-found)
		require.Equal(t, place{Page: 2, Line: 7}, <-found)
	})
}

func TestProgressIsSeenWhileTheHandlerRuns(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if err := task.Progress(ctx, 40, "two of five"); err != nil {
				return 0, consumer.Fatal(err)
			}
			return 1, g.enter(ctx, task)
		})
		sent := a.sendKey("k", 1)
		g.awaitInside(t, 1)
		task, err := a.p.Get(t.Context(), sent.ID)
		require.NoError(t, err)
		require.NotNil(t, task.Progress)
		require.InDelta(t, 40, task.Progress.Percent, 0)
		require.Equal(t, "two of five", task.Progress.Message)
		require.Equal(t, model.StatusExecuting, task.Status)
		close(g.open)
		a.awaitStatus(sent.ID, model.StatusSuccess)
	})
}

func TestEachAwaitGetsTheResultOfItsOwnTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(200, 50)
		results := make([]int, n)
		errs := make([]error, n)
		var waiting sync.WaitGroup
		for i := range n {
			sent, err := producer.Send(t.Context(), a.p, chaosWork, i)
			require.NoError(t, err)
			waiting.Go(func() { results[i], errs[i] = producer.Await(t.Context(), a.p, chaosWork, sent) })
		}
		a.hire("w", double)
		waiting.Wait()
		for i := range n {
			require.NoError(t, errs[i])
			require.Equal(t, 2*i, results[i])
		}
	})
}

func TestAnAwaitEndsWithItsContextAndTellsOfFailures(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		never := a.sendKey("never", 1, producer.In(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errNo)
		_, err := producer.Await(ctx, a.p, chaosWork, never)
		require.ErrorIs(t, err, errNo)

		bad := a.sendKey("bad", 1, retries(1, time.Second))
		require.Equal(t, 1, a.drain(func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Key == "bad" {
				return fails(ctx, task)
			}
			return 1, nil
		}, mstest.SkipTime()).Failed)
		_, err = producer.Await(t.Context(), a.p, chaosWork, bad)
		var failed *model.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, model.TaskError{ID: bad.ID, Status: model.StatusFailure, Info: "no"}, *failed)
	})
}
