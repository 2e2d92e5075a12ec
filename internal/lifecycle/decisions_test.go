package lifecycle

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

var saved = bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}

// A producer does not know that the handler allows a hundred errors, but the execution left
// it in the task: its command must not end what the workers let live.
func TestACommandJudgesByWhatAppliedToTheNewestExecution(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	said := model.Options{MaxLapses: new(100), Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Hour, MaxErrors: new(100)}}
	worker := ResolveOptions(task.Options, said)
	task, _ = Claim(task, Claimant{WorkerID: "w", ExecID: "e", Applied: &said}, worker, epoch)
	task, err := Finish(task, "e", Failed(failkind.Error, "e"), worker, epoch, 0)
	require.NoError(t, err)
	stricter := model.Options{MaxLapses: new(0), Retry: &model.Retry{MaxErrors: new(0)}}

	retried, err := RetryNow(task, "", EffectiveOf(task, stricter), epoch)
	require.NoError(t, err)
	require.Equal(t, model.StatusError, retried.Status)
	require.Equal(t, epoch, retried.DueAt)
	changed, err := Update(task, Patch{Priority: new(9)}, stricter, epoch)
	require.NoError(t, err)
	require.Equal(t, model.StatusError, changed.Status)
	require.Equal(t, task.DueAt, changed.DueAt)
	changed, err = Update(task, Patch{Options: &stricter}, model.Options{}, epoch)
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, changed.Status, "its own options win")
}

func TestUpdateWithAZeroStartMeansNow(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k", Start: epoch.Add(time.Hour)}, epoch)
	c, err := Update(task, Patch{Start: &time.Time{}, Creator: new("ann"), Category: new("mail")}, model.Options{}, epoch.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, epoch.Add(time.Minute), c.DueAt)
	require.Equal(t, []string{"ann", "mail"}, []string{c.Creator, c.Category})
	require.NoError(t, diffFault(task, c))
}

func TestANewLifeForgetsCheckpointAndProgress(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	task.Checkpoint, task.Progress = saved, &model.Progress{Percent: 10, At: epoch}
	ended, err := Cancel(task, "", ResolveOptions(), epoch)
	require.NoError(t, err)
	require.Equal(t, saved, ended.Checkpoint, "the end keeps them")
	c, err := RetryNow(ended, "", ResolveOptions(), epoch)
	require.NoError(t, err)
	require.Zero(t, c.Checkpoint)
	require.Nil(t, c.Progress)
	require.NoError(t, diffFault(ended, c))
}

func TestCheckpointsAreKeptByWorkerWhereSeveralAreWanted(t *testing.T) {
	one := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	one.Checkpoint = saved
	require.Equal(t, saved, CheckpointOf(one, "anybody"))

	many := NewTask(Draft{Type: "t", Key: "k", Options: model.Options{ConcurrentWorkerCount: 2}}, epoch)
	newer := bson.RawValue{Type: bson.TypeBoolean, Value: []byte{0}}
	many.WorkerStates = []model.WorkerState{
		{ExecID: "2", WorkerID: "a", ClaimedAt: epoch.Add(time.Second), Checkpoint: newer},
		{ExecID: "1", WorkerID: "a", ClaimedAt: epoch, Checkpoint: saved},
		{ExecID: "3", WorkerID: "b", ClaimedAt: epoch.Add(time.Hour), Checkpoint: saved},
		{ExecID: "4", WorkerID: "a", ClaimedAt: epoch.Add(time.Hour)},
	}
	require.Equal(t, newer, CheckpointOf(many, "a"), "the newest that saved one")
	require.Zero(t, CheckpointOf(many, "c"))
}

func TestAnOutcomeThatCancelsIsNoSuccess(t *testing.T) {
	task, _ := Claim(NewTask(Draft{Type: "t", Key: "k"}, epoch), Claimant{WorkerID: "w", ExecID: "e"}, ResolveOptions(), epoch)
	c, err := Finish(task, "e", Outcome{CancelTask: true, Reason: "enough"}, ResolveOptions(), epoch, 0)
	require.NoError(t, err)
	require.Equal(t, model.StatusCancelled, c.Status)
	require.Equal(t, "enough", c.Remark)
}

// A task that is put off again and again shows its errors all the same.
func TestWhatWasGivenBackMakesRoomForWhatWentWrong(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	eff := ResolveOptions(model.Options{})
	task := NewTask(Draft{Type: "t", Key: "k"}, now)
	run := func(i int, out Outcome) {
		now = now.Add(time.Minute)
		c, no := Claim(task, Claimant{WorkerID: "w", ExecID: "x" + strconv.Itoa(i)}, eff, now)
		require.Empty(t, no)
		var err error
		task, err = Finish(c, "x"+strconv.Itoa(i), out, eff, now, 0)
		require.NoError(t, err)
	}
	for i := range 100 {
		if i%20 == 0 {
			run(i, Failed(failkind.Error, "error "+strconv.Itoa(i)).After(0))
		} else {
			run(i, Failed(failkind.Released, "its turn comes later"))
		}
	}
	var errs []string
	for _, w := range task.WorkerStates {
		if w.FailKind == failkind.Error {
			errs = append(errs, w.FailReason)
		}
	}
	require.Len(t, task.WorkerStates, input.MaxBadStates)
	require.ElementsMatch(t, []string{"error 0", "error 20", "error 40", "error 60", "error 80"}, errs)
}

// Ten workers are as many as the list has places for.
func TestAWorkerAtItsLimitOfErrorsLeavesTheTaskToOthersHoweverManyHaveFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		workers := rapid.IntRange(1, input.MaxBadStates).Draw(t, "workers")
		options := model.Options{MaxErrorsPerWorker: limit, Retry: &model.Retry{MaxErrors: new(1000)}}
		eff, task := ResolveOptions(options), NewTask(Draft{Type: "t", Key: "k", Options: options}, now)
		errs := map[string]int{}
		for i := range 200 {
			now = now.Add(time.Minute)
			worker, exec := "w"+strconv.Itoa(rapid.IntRange(1, workers).Draw(t, "worker")), "x"+strconv.Itoa(i)
			c, no := Claim(task, Claimant{WorkerID: worker, ExecID: exec}, eff, now)
			if errs[worker] == limit {
				require.Equal(t, RefusedErrors, no)
				continue
			}
			require.Empty(t, no)
			out := rapid.SampledFrom([]Outcome{Failed(failkind.Error, "e").After(0), Failed(failkind.Released, "r"), NotStarted("n")}).Draw(t, "outcome")
			if out.Kind == failkind.Error {
				errs[worker]++
			}
			var err error
			task, err = Finish(c, exec, out, eff, now, 0)
			require.NoError(t, err)
			require.LessOrEqual(t, len(task.WorkerStates), input.MaxBadStates)
		}
	})
}

func TestTheErrorsOfALifeAreNotThoseOfTheNext(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	task := NewTask(Draft{Type: "t", Key: "k"}, now)
	task.Status = model.StatusSuccess
	task.WorkerStates = []model.WorkerState{{WorkerID: "w", SuccessTime: now, ErrorsBefore: 4}}
	require.Zero(t, errorsOf(newLife(task, true, now), "w"))
}
