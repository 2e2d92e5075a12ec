package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
)

// Two seconds after a change of a type each worker claims by it: one that runs something, and
// one that is idle, however rarely it looks for work. What runs goes on with what it was
// claimed with.
func TestAChangeOfATypeActsOnBusyAndIdleWorkersWithinTwoSeconds(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, busy := range map[string]bool{"busy": true, "idle": false} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				g := newGate()
				defer close(g.open)
				h := a.hire("w", g.handle, func(c *handConfig) {
					c.PollInterval = time.Hour
					c.options = []consumer.HandleOption{consumer.Defaults(model.Options{ExecutionTimeout: 7 * time.Hour, Retention: time.Hour})}
				})
				var running string
				if busy {
					running = a.sendKey("running", 1).ID
					g.awaitInside(t, 1)
				} else if e.Streams {
					awaitWatching(t, h, 1)
				}
				_, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), Options: model.Options{ExecutionTimeout: 5 * time.Hour}})
				require.NoError(t, err)
				changed := time.Now()
				time.Sleep(2 * time.Second) // the promise is about this time
				id := a.sendKey("next", 1).ID
				g.awaitInside(t, 1)
				task := a.get(id)
				w := task.WorkerStates[0]
				require.Equal(t, 5*time.Hour, w.Deadline.Sub(w.ClaimedAt), "its type says so, %v after the change", time.Since(changed))
				require.Equal(t, time.Hour, task.Applied.Retention, "and below it the handler")
				if busy {
					w := a.get(running).WorkerStates[0]
					require.Equal(t, 7*time.Hour, w.Deadline.Sub(w.ClaimedAt))
				}
			})
		}
	})
}

// What a type says decides what becomes of its tasks: the retry strategies of seed 000, the
// budget and what follows it, each overruled by the task's own word.
func TestWhatATypeSaysDecidesUnlessTheTaskSaysOtherwise(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), Options: model.Options{
			Retry:      &model.Retry{Strategy: model.RetrySequence, Sequence: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}, MaxErrors: new(3)},
			NeedManual: new(true),
		}})
		require.NoError(t, err)
		a.hire("w", fails, polling)
		task := a.awaitStatus(a.sendKey("as the type says", 1).ID, model.StatusPending)
		require.Equal(t, 4, task.ErrorCount)
		for i, delay := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond} {
			w := task.WorkerStates[i]
			require.Equal(t, delay, w.RetryAt.Sub(w.FailTime), "past its end the last of the sequence")
		}
		task = a.awaitStatus(a.sendKey("as the task says", 1, retries(0, time.Hour)).ID, model.StatusPending)
		require.Equal(t, 1, task.ErrorCount)
		task, err = a.p.Resolve(t.Context(), task.ID, "done by hand")
		require.NoError(t, err)
		require.Equal(t, model.StatusManuallyProcessed, task.Status)
	})
}
