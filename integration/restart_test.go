package integration

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// onlyOneSucceeds are two workers on one task: the good one succeeds, the bad one ends it
// as Failure.
func (a *arena) onlyOneSucceeds(opts ...producer.Option) producer.Sent {
	a.t.Helper()
	sent := a.sendKey("k", 5, append(opts, producer.ConcurrentWorkers(2), retries(0, time.Second))...)
	good := a.hire("good", double)
	a.await(sent.ID, "done by the good one", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
	require.NoError(a.t, good.stop())
	bad := a.hire("bad", fails)
	a.awaitStatus(sent.ID, model.StatusFailure)
	require.NoError(a.t, bad.stop())
	return sent
}

func TestARestartOfAFailureKeepsWhatSucceededUnlessSuccessesAreRestartedToo(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, row := range map[string]struct {
			flags []model.Existing
			kept  []string
		}{
			"failed alone":         {[]model.Existing{model.RestartFailed}, []string{"good"}},
			"failed and succeeded": {[]model.Existing{model.RestartFailed, model.RestartSucceeded}, nil},
		} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				first := a.onlyOneSucceeds()
				again := a.sendKey("k", 7, producer.ConcurrentWorkers(2), producer.OnExisting(row.flags...))
				require.True(t, again.Created)
				task := a.get(first.ID)
				require.Equal(t, model.StatusNew, task.Status)
				require.Equal(t, row.kept, successesOf(task))
				a.hire("good", double)
				a.hire("other", double)
				done := a.awaitStatus(first.ID, model.StatusSuccess)
				require.ElementsMatch(t, []string{"good", "other"}, successesOf(done))
				require.Equal(t, 14, resultOf(t, done))
			})
		}
	})
}

// The worker whose success is taken back has to succeed again, steps included; the one that
// runs the task meanwhile goes on.
func TestPartialSuccessesOfAnUnfinishedTaskAreTakenBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		steps := newEffects()
		stepping := func(g *gate) handleWork {
			return func(ctx context.Context, task *consumer.Task[int]) (int, error) {
				n, err := consumer.Step(ctx, "once", func(context.Context) (int, error) {
					steps.mu.Lock()
					defer steps.mu.Unlock()
					steps.done[task.TaskID]++
					return steps.done[task.TaskID], nil
				})
				if err != nil || g == nil {
					return n, err
				}
				return n, g.enter(ctx, task)
			}
		}
		id := a.sendKey("k", 5, producer.ConcurrentWorkers(2)).ID
		done := a.hire("done", stepping(nil))
		a.await(id, "one success", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
		require.NoError(t, done.stop())
		g := newGate()
		slow := a.hire("slow", stepping(g))
		g.awaitInside(t, 1)
		before := a.get(id)

		again := a.sendKey("k", 6, producer.OnExisting(model.RestartSucceeded))
		require.False(t, again.Created, "it is the same life")
		task := a.get(id)
		require.Empty(t, successesOf(task))
		require.Equal(t, failkind.Cleaned, task.WorkerStates[0].FailKind)
		require.Equal(t, 5, argsOf(t, task))
		require.Equal(t, before.Generation, task.Generation)
		require.Equal(t, before.Rev+1, task.Rev)
		require.Equal(t, []string{"slow"}, workersOf(task.Steps))

		a.hire("done", stepping(nil))
		a.await(id, "the second success", func(task *model.Task) bool { return len(successesOf(task)) == 1 })
		require.Equal(t, 3, steps.count(id), "the step was done again")
		close(g.open)
		require.ElementsMatch(t, []string{"done", "slow"}, successesOf(a.awaitStatus(id, model.StatusSuccess)))
		require.NoError(t, slow.stop())
		require.Zero(t, slow.Stats().Fenced)
		require.Equal(t, 3, steps.count(id))
	})
}

// A worker that failed need not wait for its retry any more. The one that runs the task meanwhile goes on.
func TestFailuresOfATaskThatAnotherWorkerRunsAreReset(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.sendKey("k", 5, producer.ConcurrentWorkers(2), retries(0, time.Hour)).ID
		g := newGate()
		slow := a.hire("slow", g.handle)
		g.awaitInside(t, 1)
		var fixed atomic.Bool
		a.hire("bad", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if !fixed.Load() {
				return fails(ctx, task)
			}
			return double(ctx, task)
		})
		before := a.await(id, "one failure", func(task *model.Task) bool { return task.ErrorCount == 1 })
		fixed.Store(true)

		again := a.sendKey("k", 6, producer.OnExisting(model.RestartFailed))
		require.False(t, again.Created, "it is the same life")
		require.Equal(t, before.Generation, again.Generation)
		a.await(id, "the success of the worker that failed", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
		close(g.open)
		task := a.awaitStatus(id, model.StatusSuccess)
		require.ElementsMatch(t, []string{"bad", "slow"}, successesOf(task))
		require.Zero(t, task.ErrorCount)
		require.Equal(t, 5, argsOf(t, task))
		require.NoError(t, slow.stop())
		require.Zero(t, slow.Stats().Fenced)
	})
}

// The due time does not change, so the send itself must wake the worker. Its polls are an hour apart.
func TestAWorkerLearnsByTheStreamThatItsSuccessWasTakenBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		h := a.hire("only", double, through(away), rarely)
		awaitWatching(t, h, 1)
		id := a.sendKey("k", 5, producer.ConcurrentWorkers(2)).ID
		a.await(id, "one success", func(task *model.Task) bool { return lifecycle.Successes(task) == 1 })
		// A worker that has just had tasks for several workers looks for more. Only once it
		// rests does it depend on the stream, so this waits until it has not looked for a while.
		for resting := false; !resting; {
			looks := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Contains: "due_at", Do: proxy.Pass})
			select {
			case <-looks.Hit():
			case <-time.After(3 * time.Second):
				resting = true
			}
		}
		a.sendKey("k", 5, producer.OnExisting(model.RestartSucceeded))
		a.await(id, "a second one", func(task *model.Task) bool { return len(task.WorkerStates) == 2 && lifecycle.Successes(task) == 1 })
	})
}

func workersOf(steps []model.Step) (workers []string) {
	for _, s := range steps {
		workers = append(workers, s.WorkerID)
	}
	return workers
}

func TestARestartMayKeepTheArgumentsAndOptionsOfTheTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		keep := producer.OnExisting(model.RestartFailed, model.RestartSucceeded, model.KeepArgs)
		first := a.onlyOneSucceeds(producer.Priority(7), producer.Category("c"), producer.Creator("me"))
		before := a.get(first.ID)

		again := a.sendKey("k", 6, producer.Priority(1), producer.NeedManual(true), keep)
		require.True(t, again.Created)
		task := a.get(first.ID)
		require.Equal(t, 5, argsOf(t, task))
		require.Equal(t, before.Options, task.Options)
		require.Equal(t, 7, task.Priority)
		require.Equal(t, "c", task.Category)
		require.Equal(t, "me", task.Creator)
		require.Empty(t, task.WorkerStates)
		require.Zero(t, task.ErrorCount)

		a.hire("good", double)
		a.hire("other", double)
		require.Equal(t, 10, resultOf(t, a.awaitStatus(first.ID, model.StatusSuccess)))
		a.sendKey("k", 6, producer.In(time.Hour), keep)
		task = a.get(first.ID)
		require.Equal(t, model.StatusNew, task.Status)
		require.Equal(t, 5, argsOf(t, task))
		require.Equal(t, task.StartTime, task.DueAt)
		require.Greater(t, task.DueAt.Sub(task.CreatedAt), 59*time.Minute, "the start is the send's")
	})
}

func TestKeepArgsNeedsARestart(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		_, err := producer.Send(t.Context(), a.p, chaosWork, 1, producer.Key("k"), producer.OnExisting(model.KeepArgs, model.UpdateArgs))
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, "on_existing")
		_, err = a.p.Get(t.Context(), "-/chaos.work/k")
		require.ErrorIs(t, err, model.ErrNotFound)
	})
}
