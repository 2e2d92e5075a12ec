package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

func TestANewTaskIsStoredWithWhatWasSaidAndNothingElse(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent := a.sendKey("k", 7, producer.Priority(8), producer.Category("cat"))
		require.True(t, sent.Created)
		require.Equal(t, "-/chaos.work/k", sent.ID)
		require.Equal(t, model.StatusNew, sent.Status)

		task := a.get(sent.ID)
		require.Equal(t, 7, argsOf(t, task))
		require.Equal(t, 8, task.Priority)
		require.Equal(t, sent.Generation, task.Generation)
		require.Equal(t, model.StatusNew, task.Status)

		raw, err := a.admin.Document(t.Context(), sent.ID)
		require.NoError(t, err)
		elements, err := raw.Elements()
		require.NoError(t, err)
		var fields []string
		for _, el := range elements {
			fields = append(fields, el.Key())
		}
		require.ElementsMatch(t, []string{"_id", "type", "key", "category", "generation", "rev", "priority", "status",
			"start_time", "due_at", "audience", "args", "created_at", "updated_at"}, fields)
	})
}

func TestADuplicateLeavesTheTaskAlone(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		first := a.sendKey("k", 1)
		before, err := a.admin.Document(t.Context(), first.ID)
		require.NoError(t, err)
		second := a.sendKey("k", 2, producer.Priority(9), producer.In(time.Hour))
		require.False(t, second.Created)
		require.Equal(t, first.Generation, second.Generation)
		after, err := a.admin.Document(t.Context(), first.ID)
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}

func TestADuplicateWithTheFlagUpdatesItsArguments(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		first := a.sendKey("k", 1)
		second := a.sendKey("k", 2, producer.OnExisting(model.UpdateArgs))
		require.False(t, second.Created, "it is the same life")
		require.Equal(t, first.Generation, second.Generation)
		require.Equal(t, 1, a.drain(double).Succeeded)
		require.Equal(t, 4, resultOf(t, a.get(first.ID)))
	})
}

func TestANewStartTimeMovesTheTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent := a.sendKey("k", 1)
		a.sendKey("k", 1, producer.In(time.Hour), producer.OnExisting(model.UpdateArgs))
		require.Zero(t, a.drain(double).Executions, "it is due in an hour")
		report := a.drain(double, mstest.SkipTime())
		require.Equal(t, 1, report.Succeeded)
		require.Greater(t, report.Skipped, 50*time.Minute)
		require.False(t, a.get(sent.ID).WorkerStates[0].ClaimedAt.Before(a.get(sent.ID).StartTime))
	})
}

// The worker sleeps until the first start time that it knows; an earlier one wakes it.
func TestAnEarlierStartTimeIsHeardByAWorkerThatWaits(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		h := a.hire("waiting", double)
		sent := a.sendKey("k", 1, producer.In(time.Hour))
		a.awaitSuccess(a.send(1)) // it works, and knows of the other
		a.sendKey("k", 1, producer.At(time.Time{}), producer.In(time.Millisecond), producer.OnExisting(model.UpdateArgs))
		a.awaitStatus(sent.ID, model.StatusSuccess)
		h.events.await(t, workerevent.Finished, 2)
	})
}

func TestARunningTaskIsNotUpdated(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		a.hire("w", g.handle)
		sent := a.sendKey("k", 1)
		g.awaitInside(t, 1)
		a.sendKey("k", 2, producer.OnExisting(model.UpdateIdle))
		require.Equal(t, 1, argsOf(t, a.get(sent.ID)))
		close(g.open)
		require.Equal(t, 2, resultOf(t, a.awaitStatus(sent.ID, model.StatusSuccess)))
	})
}

// With the other flag it is changed, and what runs goes on with what it was given.
func TestAnExecutionKeepsTheArgumentsItWasClaimedWith(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Attempt > 1 {
				return 2 * task.Args, nil
			}
			_ = g.enter(ctx, task)
			return 0, errors.New("with " + string(task.RawArgs()))
		})
		sent := a.sendKey("k", 1, retries(1, 0))
		g.awaitInside(t, 1)
		a.sendKey("k", 2, producer.OnExisting(model.UpdateArgs))
		require.Equal(t, 2, argsOf(t, a.get(sent.ID)))
		close(g.open)
		task := a.awaitStatus(sent.ID, model.StatusSuccess)
		require.Equal(t, "with 1", task.ErrorInfo)
		require.Equal(t, 4, resultOf(t, task), "the next execution has the new ones")
	})
}

func TestACleanedSuccessRunsAgainAsANewGeneration(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		first := a.sendKey("k", 1)
		require.Equal(t, 1, a.drain(double).Succeeded)

		same := a.sendKey("k", 2, producer.OnExisting(model.UpdateArgs, model.RestartFailed))
		require.False(t, same.Created, "it did not fail")
		require.Zero(t, a.drain(double).Executions)

		second := a.sendKey("k", 2, producer.OnExisting(model.RestartSucceeded))
		require.True(t, second.Created)
		require.Greater(t, second.Generation, first.Generation)
		require.Equal(t, 1, a.drain(double).Succeeded)
		result, err := producer.Await(t.Context(), a.p, chaosWork, second)
		require.NoError(t, err)
		require.Equal(t, 4, result)

		old, err := a.admin.Get(t.Context(), first.ID, first.Generation)
		require.NoError(t, err, "the history keeps the old life")
		require.Equal(t, model.StatusSuccess, old.Status)
		require.Equal(t, 2, resultOf(t, old))
		result, err = producer.Await(t.Context(), a.p, chaosWork, first)
		require.NoError(t, err, "and whoever waits for it is answered from there")
		require.Equal(t, 2, result)
	})
}

func TestACleanedFailureRunsAgainWithAFreshBudgetAsANewGeneration(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		first := a.sendKey("k", 1, retries(1, time.Second))
		report := a.drain(func(context.Context, *consumer.Task[int]) (int, error) { return 0, errors.New("no") }, mstest.SkipTime())
		require.Equal(t, 2, report.Errors)
		require.Equal(t, 1, report.Failed)

		same := a.sendKey("k", 1, producer.OnExisting(model.UpdateArgs, model.RestartSucceeded))
		require.False(t, same.Created, "it did not succeed")

		second := a.sendKey("k", 3, producer.OnExisting(model.RestartFailed))
		require.True(t, second.Created)
		require.Equal(t, 1, a.drain(double).Succeeded)
		task := a.get(second.ID)
		require.Equal(t, 6, resultOf(t, task))
		require.Zero(t, task.ErrorCount)
		require.Equal(t, 1, task.Attempt)

		old, err := a.admin.Get(t.Context(), first.ID, first.Generation)
		require.NoError(t, err)
		require.Equal(t, model.StatusFailure, old.Status)
		require.Equal(t, 2, old.ErrorCount)
		require.Equal(t, "no", old.ErrorInfo)

		history, err := a.db.Collection("task_history").CountDocuments(t.Context(), bson.M{})
		require.NoError(t, err)
		require.EqualValues(t, 1, history, "one life has ended and gone")
	})
}
