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
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

var errNo = errors.New("no")

func fails(context.Context, *consumer.Task[int]) (int, error) { return 0, errNo }

func TestAnErrorIsRetriedWithItsDelayUpToItsBudgetOverAllWorkersTogether(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const delay = 200 * time.Millisecond
		ids := a.send(5, retries(3, delay))
		var runs atomic.Int32
		handle := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			runs.Add(1)
			return fails(ctx, task)
		}
		a.hire("one", handle, polling)
		a.hire("two", handle, polling)
		for _, id := range ids {
			task := a.awaitStatus(id, model.StatusFailure)
			require.Equal(t, 4, task.ErrorCount, "the first try and three retries")
			require.Len(t, task.WorkerStates, 4)
			require.Equal(t, "no", task.ErrorInfo)
			for i, w := range task.WorkerStates {
				require.Equal(t, i+1, w.Attempt)
				require.Equal(t, failkind.Error, w.FailKind)
				if i > 0 {
					require.GreaterOrEqual(t, w.ClaimedAt.Sub(task.WorkerStates[i-1].FailTime), delay)
				}
			}
		}
		require.EqualValues(t, 20, runs.Load())
	})
}

func TestTheDefaultRetriesAreTenAndLastLongerEachTime(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1)[0]
		report := a.drain(fails, mstest.SkipTime())
		require.Equal(t, 11, report.Errors)
		require.Equal(t, 1, report.Failed)
		require.Equal(t, 11, a.get(id).ErrorCount)
		// 1 s, 2 s, 4 s ... 512 s, with a tenth of jitter.
		require.InDelta(t, 1023*time.Second, report.Skipped, float64(103*time.Second))
	})
}

func TestLocalRetriesHappenInsideOneExecution(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		local := producer.Retry(model.Retry{Interval: time.Hour, Local: &model.LocalRetry{Count: 2, Interval: time.Millisecond}})
		good, bad := a.sendKey("good", 1, local), a.sendKey("bad", 2, local, producer.MaxLapses(0))
		var runs atomic.Int32
		report := a.drain(func(_ context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == 1 && runs.Add(1) == 3 {
				return 7, nil
			}
			return 0, errNo
		})
		require.Equal(t, 1, report.Succeeded)
		task := a.get(good.ID)
		require.Equal(t, 7, resultOf(t, task))
		require.Len(t, task.WorkerStates, 1)
		require.Zero(t, task.ErrorCount)
		task = a.get(bad.ID)
		require.Len(t, task.WorkerStates, 1)
		require.Equal(t, 1, task.ErrorCount, "three tries inside cost one error")
	})
}

func TestAFatalErrorIsNotRetried(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1)[0]
		report := a.drain(func(context.Context, *consumer.Task[int]) (int, error) {
			return 0, fmt.Errorf("wrapped: %w", consumer.Fatal(errNo))
		}, mstest.SkipTime())
		require.Equal(t, 1, report.Executions)
		task := a.get(id)
		require.Equal(t, model.StatusFailure, task.Status)
		require.Equal(t, failkind.Fatal, task.WorkerStates[0].FailKind)
		_, err := producer.Await(t.Context(), a.p, chaosWork, producer.Sent{ID: id})
		var failed *model.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, model.StatusFailure, failed.Status)
	})
}

func TestWherePeopleMustLookASpentTaskIsPendingUntilTheyDecide(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		resolved := a.sendKey("resolved", 1, producer.NeedManual(true), retries(0, 0))
		retried := a.sendKey("retried", 2, producer.NeedManual(true), retries(0, 0))
		require.Equal(t, 2, a.drain(fails, mstest.SkipTime()).Failed)
		require.Equal(t, model.StatusPending, a.get(resolved.ID).Status)
		_, err := a.p.Resolve(t.Context(), resolved.ID, "done by hand")
		require.NoError(t, err)
		_, err = a.p.Retry(t.Context(), retried.ID, "try again")
		require.NoError(t, err)
		require.Equal(t, 1, a.drain(double).Succeeded)
		require.Equal(t, model.StatusManuallyProcessed, a.get(resolved.ID).Status)
		require.Equal(t, 4, resultOf(t, a.get(retried.ID)))
	})
}

func explode() { panic("the pressure is too high") }

func TestAPanicIsAnErrorWithItsStackAndFreesItsSlot(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		bad := a.sendKey("bad", 1, producer.Priority(9), retries(0, 0))
		good := a.sendKey("good", 2)
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == 1 {
				explode()
			}
			return double(ctx, task)
		}, narrow(1))
		a.awaitStatus(good.ID, model.StatusSuccess)
		task := a.awaitStatus(bad.ID, model.StatusFailure)
		w := task.WorkerStates[0]
		require.Equal(t, failkind.Panic, w.FailKind)
		require.Contains(t, w.FailReason, "the pressure is too high")
		require.Contains(t, w.FailReason, "integration.explode")
		require.Less(t, len(w.FailReason), 8<<10, "a stack is bounded")
	})
}

func TestWhatAHandlerSaysOfItsTaskIsDone(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const wait = 10 * time.Minute
		says := map[string]error{
			"retry": consumer.RetryAfter(wait, errNo), "snooze": consumer.Snooze(wait), "release": consumer.Release(),
			"cancel": consumer.Cancel("not wanted"),
		}
		for key := range says {
			a.sendKey(key, 3)
		}
		var again atomic.Int32
		report := a.drain(func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if states := a.get(task.TaskID).WorkerStates; len(states) == 1 {
				return 0, fmt.Errorf("wrapped: %w", says[task.Key])
			}
			again.Add(1)
			return double(ctx, task)
		}, mstest.SkipTime())
		require.EqualValues(t, 3, again.Load())
		require.Equal(t, 3, report.Succeeded)
		require.Equal(t, 1, report.Cancelled)
		require.Equal(t, 1, report.Errors)
		require.Equal(t, 2, report.Released)

		task := func(key string) *model.Task { return a.get(model.TaskID("", chaosWork.Name(), key)) }
		pause := func(task *model.Task) time.Duration {
			return task.WorkerStates[1].ClaimedAt.Sub(task.WorkerStates[0].FailTime)
		}
		require.Equal(t, model.StatusCancelled, task("cancel").Status)
		require.Equal(t, "not wanted", task("cancel").Remark)
		require.Equal(t, 1, task("retry").ErrorCount)
		require.Equal(t, 2, task("retry").Attempt)
		require.GreaterOrEqual(t, pause(task("retry")), wait)
		for _, free := range []string{"snooze", "release"} {
			require.Zero(t, task(free).ErrorCount, free)
			require.Equal(t, 1, task(free).Attempt, free)
		}
		require.GreaterOrEqual(t, pause(task("snooze")), wait)
		require.Less(t, pause(task("release")), wait)
	})
}

func TestAnExecutionEndsAtItsDeadlineAsAnError(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const limit = 500 * time.Millisecond
		id := a.send(1, producer.Timeout(limit), retries(0, 0))[0]
		causes := make(chan error, 1)
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			err := g.enter(ctx, task)
			causes <- err
			return 0, err
		})
		require.ErrorIs(t, receive(t, causes, "the end of the handler"), consumer.ErrTimeout)
		task := a.awaitStatus(id, model.StatusFailure)
		require.Equal(t, 1, task.ErrorCount)
		require.Zero(t, task.LapseCount)
		require.Equal(t, failkind.Timeout, task.WorkerStates[0].FailKind)
		require.GreaterOrEqual(t, task.FinishedAt.Sub(task.WorkerStates[0].ClaimedAt), limit)
	})
}

// A rolling deploy: the type's arguments have become text, and an old worker is still
// there that knows numbers.
func TestAWorkerThatCannotDecodeTheArgumentsGivesTheTaskBackWithoutCost(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		text := model.NewType[string, string](chaosWork.Name())
		sent, err := producer.Send(t.Context(), a.p, text, "seven")
		require.NoError(t, err)
		old := a.hire("old", double)
		old.events.await(t, workerevent.Finished, 1)
		require.Equal(t, failkind.Undecodable, a.get(sent.ID).WorkerStates[0].FailKind)
		a.hire("new", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				return consumer.Handle(c, text, func(_ context.Context, task *consumer.Task[string]) (string, error) {
					return task.Args + "!", nil
				})
			}
		})
		result, err := producer.Await(t.Context(), a.p, text, sent)
		require.NoError(t, err)
		require.Equal(t, "seven!", result)
		task := a.get(sent.ID)
		require.Zero(t, task.ErrorCount+task.LapseCount)
		require.Equal(t, 1, task.Attempt)
	})
}

func TestArgumentsThatNobodyDecodesFailTheTaskAfterTheGrace(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent, err := a.p.SendJSON(t.Context(), chaosWork.Name(), []byte(`"seven"`))
		require.NoError(t, err)
		report := a.drain(double, mstest.SkipTime())
		require.Equal(t, 1, report.Failed)
		require.Zero(t, report.Succeeded)
		require.GreaterOrEqual(t, report.Skipped, time.Hour, "the default grace")
		require.Less(t, report.Skipped, 2*time.Hour)
		require.Contains(t, a.get(sent.ID).ErrorInfo, "decoding the arguments")
	})
}
