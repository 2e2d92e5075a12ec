package integration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// successesOf are the workers that succeeded with the task.
func successesOf(task *model.Task) (workers []string) {
	for _, w := range task.WorkerStates {
		if !w.SuccessTime.IsZero() {
			workers = append(workers, w.WorkerID)
		}
	}
	return workers
}

// by lets a handler know in which worker it runs.
func by(worker string, handle func(ctx context.Context, worker string, task *consumer.Task[int]) (int, error)) handleWork {
	return func(ctx context.Context, task *consumer.Task[int]) (int, error) { return handle(ctx, worker, task) }
}

func TestOfThreeWorkersExactlyTheTwoThatAreWantedRunIt(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(e.Of(30, 10), producer.ConcurrentWorkers(2))
		done := newEffects()
		count := func(_ context.Context, task *consumer.Task[int]) (int, error) {
			done.mu.Lock()
			defer done.mu.Unlock()
			done.done[task.TaskID]++
			return task.Args, nil
		}
		for _, id := range []string{"one", "two", "three"} {
			a.hire(id, count)
		}
		a.awaitSuccess(ids)
		for _, id := range ids {
			workers := successesOf(a.get(id))
			require.Len(t, workers, 2)
			require.NotEqual(t, workers[0], workers[1])
			require.Equal(t, 2, done.count(id))
		}
	})
}

func TestTwoWorkersThatEndAtTheSameMomentBothCount(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(20, 5)
		ids := a.send(n, producer.ConcurrentWorkers(2))
		g := newGate()
		one, two := a.hire("one", g.handle), a.hire("two", g.handle)
		g.awaitInside(t, 2*n)
		for _, id := range ids {
			require.Equal(t, 2, lifecycle.OpenExecutions(a.get(id)))
		}
		close(g.open)
		a.awaitSuccess(ids)
		for _, id := range ids {
			require.ElementsMatch(t, []string{"one", "two"}, successesOf(a.get(id)))
		}
		require.NoError(t, one.stop())
		require.NoError(t, two.stop())
		require.Zero(t, one.Stats().Fenced+two.Stats().Fenced, "no end was refused")
	})
}

func TestAFreeSlotIsFilledWhileAnotherWorkerRuns(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1, producer.ConcurrentWorkers(2))[0]
		g := newGate()
		a.hire("slow", g.handle)
		g.awaitInside(t, 1)
		a.hire("quick", double)
		task := a.await(id, "done by one", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
		require.Equal(t, []string{"quick"}, successesOf(task))
		require.Equal(t, model.StatusExecuting, task.Status)
		close(g.open)
		require.Equal(t, []string{"slow", "quick"}, successesOf(a.awaitStatus(id, model.StatusSuccess)))
	})
}

func TestOneWorkerDiesWhileTheOtherWaitsForItsRetry(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const delay = 3 * time.Second
		id := a.send(1, producer.ConcurrentWorkers(2), seconds(30))[0]
		a.abandon([]string{id}, "dead", 1500*time.Millisecond)
		var tries atomic.Int32
		a.hire("retrying", func(context.Context, *consumer.Task[int]) (int, error) {
			if tries.Add(1) == 1 {
				return 0, consumer.RetryAfter(delay, errors.New("not yet"))
			}
			return 1, nil
		}, rarely)
		a.await(id, "failed once", func(task *model.Task) bool { return task.ErrorCount == 1 })
		a.hire("heir", double)
		task := a.awaitStatus(id, model.StatusSuccess)
		require.ElementsMatch(t, []string{"retrying", "heir"}, successesOf(task))
		require.Equal(t, 1, task.LapseCount)
		require.Equal(t, 1, task.ErrorCount)
		var failed, succeeded time.Time
		for _, w := range task.WorkerStates {
			switch {
			case w.WorkerID == "retrying" && w.FailKind == failkind.Error:
				failed = w.FailTime
			case w.WorkerID == "retrying":
				succeeded = w.ClaimedAt
			}
		}
		require.GreaterOrEqual(t, succeeded.Sub(failed), delay, "its own retry was not early, although a slot was free")
		if e.virtual() { // elsewhere the machine may be slow; polls are an hour apart
			require.Less(t, succeeded.Sub(failed), 5*delay, "nor did it wait for a poll")
		}
	})
}

func TestAPartialSuccessFailsAndKeepsWhatWasDone(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent := a.sendKey("k", 3, producer.ConcurrentWorkers(2), retries(0, 0))
		good := a.hire("good", double)
		a.await(sent.ID, "done by one", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
		bad := a.hire("bad", func(context.Context, *consumer.Task[int]) (int, error) { return 0, errors.New("no") })
		task := a.awaitStatus(sent.ID, model.StatusFailure)
		require.Equal(t, []string{"good"}, successesOf(task))
		var kept int
		require.NoError(t, codec.DecodeValue(task.WorkerStates[0].Returns, &kept))
		require.Equal(t, 6, kept)
		require.NoError(t, bad.stop())

		// Started again, it wants the missing one only, of another worker.
		again := a.sendKey("k", 3, producer.ConcurrentWorkers(2), producer.OnExisting(model.RestartFailed))
		require.True(t, again.Created)
		a.hire("second", double)
		task = a.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, []string{"good", "second"}, successesOf(task))
		require.NoError(t, good.stop())
		require.Len(t, good.events.all(workerevent.Started), 1)
	})
}

func TestOnlyTheNamedWorkersRunATask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		absent := a.send(5, producer.Workers("absent"), producer.Priority(9))
		chosen := a.send(20, producer.Workers("chosen", "absent"))
		anybody := a.send(20)
		other := a.hire("other", double)
		a.awaitSuccess(anybody)
		require.Len(t, other.events.all(workerevent.Started), 20)
		a.hire("chosen", double)
		a.awaitSuccess(chosen)
		for _, id := range chosen {
			require.Equal(t, []string{"chosen"}, successesOf(a.get(id)))
		}
		for _, id := range absent {
			require.Equal(t, model.StatusNew, a.get(id).Status)
		}
	})
}

func TestAFilterChangedUnderARunningTaskEndsItAndAnotherRunsIt(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		causes := make(chan error, 1)
		g := newGate()
		a.hire("first", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			err := g.enter(ctx, task)
			causes <- err
			return 0, err
		})
		id := a.send(1)[0]
		g.awaitInside(t, 1)
		a.hire("second", double)
		_, err := a.p.Update(t.Context(), id, producer.Workers("second"))
		require.NoError(t, err)
		require.ErrorIs(t, receive(t, causes, "the end of the handler"), consumer.ErrCancelled)
		task := a.awaitStatus(id, model.StatusSuccess)
		require.Equal(t, []string{"second"}, successesOf(task))
		require.Zero(t, task.ErrorCount+task.LapseCount, "it cost nothing")
		require.Equal(t, 1, task.Attempt)
	})
}

func TestAWorkerWithTooManyErrorsStaysAwayAndOthersGoOn(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1, producer.MaxErrorsPerWorker(2), retries(5, time.Millisecond))[0]
		handle := func(_ context.Context, worker string, _ *consumer.Task[int]) (int, error) {
			if worker == "broken" {
				return 0, errors.New("this machine cannot do it")
			}
			return 1, nil
		}
		broken := a.hire("broken", by("broken", handle))
		a.await(id, "failed twice", func(task *model.Task) bool { return task.ErrorCount == 2 })
		a.hire("well", by("well", handle))
		task := a.awaitStatus(id, model.StatusSuccess)
		require.Equal(t, []string{"well"}, successesOf(task))
		require.Equal(t, 2, task.ErrorCount)
		require.Len(t, broken.events.all(workerevent.Started), 2)
	})
}

// The worker looks for tasks that want several workers by a query of its own, and not
// each time.
func TestAStartTimeOfATaskForSeveralIsMetByAWorkerThatIsWokenOften(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var ids []string
		for i := range 10 { // each wakes the worker shortly before the other
			ids = append(ids, a.send(1, producer.In(1500*time.Millisecond+time.Duration(i)*100*time.Millisecond))...)
		}
		ids = append(ids, a.send(1, producer.In(1850*time.Millisecond), producer.ConcurrentWorkers(2))...)
		one, two := a.hire("one", double, rarely), a.hire("two", double, rarely)
		if e.Streams {
			awaitWatching(t, one, 1)
			awaitWatching(t, two, 1)
		}
		a.awaitSuccess(ids)
	})
}
