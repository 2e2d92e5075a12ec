package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func TestADraftWithArgumentsThatDatabasesRefuseIsInvalid(t *testing.T) {
	big, err := codec.EncodeValue("args", strings.Repeat("x", input.MaxArgsBytes), input.MaxResultBytes)
	require.NoError(t, err)
	for name, args := range map[string]bson.RawValue{
		"too large":       big,
		"cut off":         {Type: bson.TypeEmbeddedDocument, Value: []byte{9, 0, 0, 0}},
		"bytes, no type":  {Value: []byte{1}},
		"an unknown type": {Type: 0x42, Value: []byte{1}},
		"half an integer": {Type: bson.TypeInt64, Value: []byte{1, 2}},
	} {
		d := Draft{Type: "email", Key: "k", Args: args}
		var invalid *model.InvalidError
		require.ErrorAs(t, d.Validate(), &invalid, name)
		require.Equal(t, "args", invalid.Field, name)
	}
	fine, err := codec.EncodeValue("args", map[string]any{"a": []int{1, 2}}, input.MaxArgsBytes)
	require.NoError(t, err)
	require.NoError(t, (&Draft{Type: "email", Key: "k", Args: fine}).Validate())
	require.NoError(t, (&Draft{Type: "email", Key: "k"}).Validate())
}

// several is a task that two workers are to do, and the time.
type several struct {
	*testing.T
	task  *model.Task
	now   time.Time
	execs int
}

func newSeveral(t *testing.T, o model.Options) *several {
	t.Helper()
	o.ConcurrentWorkerCount = 2
	return &several{T: t, task: NewTask(Draft{Type: "t", Key: "k", Options: o}, epoch), now: epoch}
}

func (s *several) eff() Effective { return ResolveOptions(s.task.Options) }

// claim returns the id of the new execution.
func (s *several) claim(worker string) string {
	s.Helper()
	s.execs++
	exec := strconv.Itoa(s.execs)
	task, no := Claim(s.task, Claimant{WorkerID: worker, ExecID: exec}, s.eff(), s.now)
	require.Empty(s, no)
	s.task = task
	return exec
}

func (s *several) finish(exec string, out Outcome) {
	s.Helper()
	task, err := Finish(s.task, exec, out, s.eff(), s.now, 0.5)
	require.NoError(s, err)
	s.task = task
}

// lapse lets the lease of a new execution pass.
func (s *several) lapse(worker string) {
	s.Helper()
	s.claim(worker)
	s.now = s.now.Add(s.eff().Lease)
	s.task = Expire(s.task, s.eff(), s.now, 0.5)
}

func (s *several) sendAgain(policy model.Existing) {
	s.Helper()
	task, err := SendAgain(s.task, Draft{Type: "t", Key: "k"}, policy, s.now)
	require.NoError(s, err)
	require.NotSame(s, s.task, task)
	s.task = task
}

func TestAResetLeavesTheLapsesAndErrorsOfAWorkerThatRunsHoweverManyThereWere(t *testing.T) {
	s := newSeveral(t, model.Options{MaxLapses: new(15), Retry: &model.Retry{MaxErrors: new(100)}})
	for range 15 {
		s.lapse("w1")
	}
	for range 3 {
		s.finish(s.claim("w1"), Failed(failkind.Error, "e").After(0))
	}
	s.claim("w1")
	for range 2 * input.MaxBadStates {
		s.finish(s.claim("w2"), Failed(failkind.Error, "e").After(0))
	}
	require.Equal(t, failed{23, 15}, failed{s.task.ErrorCount, s.task.LapseCount})
	s.sendAgain(model.RestartFailed)
	require.Equal(t, failed{3, 15}, failed{s.task.ErrorCount, s.task.LapseCount})
	require.Equal(t, "e", s.task.ErrorInfo, "of an execution that is no longer listed")
}

func TestACheckpointOutlivesTheListingOfTheExecutionThatSavedIt(t *testing.T) {
	s := newSeveral(t, model.Options{Retry: &model.Retry{MaxErrors: new(100)}})
	for i := range input.MaxBadStates - 1 {
		s.finish(s.claim(fmt.Sprint("other", i)), Failed(failkind.Error, "e").After(0))
	}
	saved := bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}
	exec := s.claim("w1")
	_, w := ExecutionOf(s.task, exec)
	w.Checkpoint = saved
	s.finish(exec, Failed(failkind.Error, "e").After(0))
	for range 3 {
		exec = s.claim("w1")
		require.Equal(t, saved, CheckpointOf(s.task, "w1"))
		s.finish(exec, Failed(failkind.Error, "e").After(0))
	}
}

func TestAResetForgetsTheLapsesOfAWorkerHoweverManyThereWere(t *testing.T) {
	s := newSeveral(t, model.Options{MaxLapses: new(20)})
	for range 15 {
		s.lapse("w1")
	}
	s.claim("w2")
	s.sendAgain(model.RestartFailed)
	require.Zero(t, s.task.LapseCount)
	s.lapse("w1")
	require.Equal(t, 2, s.task.LapseCount, "and that of w2")
}

// The worker failed first. What it left later is no failure and is not reset itself.
func TestAWorkerWhoseFailureWasResetBeginsAnew(t *testing.T) {
	saved := bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}
	for name, out := range map[string]Outcome{
		"after a snooze": Failed(failkind.Released, "snoozed").After(time.Hour),
		"after arguments that it could not decode": Failed(failkind.Undecodable, "a field is missing").After(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeveral(t, model.Options{})
			exec := s.claim("w1")
			stepped, err := saveStep(s.task, exec, "one", s.now)
			require.NoError(t, err)
			s.task = stepped
			s.finish(exec, Failed(failkind.Error, "e").After(0))
			exec = s.claim("w1")
			_, w := ExecutionOf(s.task, exec)
			w.Checkpoint, w.LocalRetries = saved, 2
			s.finish(exec, out)
			s.claim("w2")
			require.Equal(t, RefusedNotDue, Claimable(s.task, "w1", s.eff(), s.now))
			require.Equal(t, saved, CheckpointOf(s.task, "w1"))

			s.sendAgain(model.RestartFailed)
			require.Empty(t, StepsOf(s.task, "w1"))
			require.Zero(t, CheckpointOf(s.task, "w1"))
			require.Empty(t, Claimable(s.task, "w1", s.eff(), s.now), "at once")
			_, w = ExecutionOf(s.task, s.claim("w1"))
			require.Zero(t, w.LocalRetries)
		})
	}
}

func TestAWorkerWhoseSuccessWasResetBeginsAnew(t *testing.T) {
	s := newSeveral(t, model.Options{})
	exec := s.claim("w1")
	_, w := ExecutionOf(s.task, exec)
	w.Checkpoint = bson.RawValue{Type: bson.TypeBoolean, Value: []byte{1}}
	s.finish(exec, Failed(failkind.Error, "e").After(0))
	s.finish(s.claim("w1"), Success(bson.RawValue{}))
	s.sendAgain(model.RestartSucceeded)
	require.Zero(t, CheckpointOf(s.task, "w1"))
	require.Equal(t, 1, s.task.ErrorCount, "only its success was reset")
}

func TestAfterAResetTheLastErrorIsOneThatCounts(t *testing.T) {
	s := newSeveral(t, model.Options{})
	s.finish(s.claim("w3"), Undecodable(s.task, "a field is missing", time.Hour, s.now))
	s.claim("w1")
	s.now = s.now.Add(time.Second)
	s.finish(s.claim("w2"), Failed(failkind.Fatal, "fatal"))
	s.sendAgain(model.RestartFailed)
	require.False(t, s.task.UndecodableSince.IsZero())
	require.Equal(t, "a field is missing", s.task.ErrorInfo)

	s = newSeveral(t, model.Options{})
	s.finish(s.claim("w1"), Failed(failkind.Error, "first").After(0))
	s.now = s.now.Add(time.Second)
	s.finish(s.claim("w1"), Failed(failkind.Panic, "second").After(0))
	s.claim("w1")
	s.now = s.now.Add(time.Second)
	s.finish(s.claim("w2"), Failed(failkind.Fatal, "fatal"))
	require.Equal(t, "fatal", s.task.ErrorInfo)
	s.sendAgain(model.RestartFailed)
	require.Equal(t, "second", s.task.ErrorInfo)
}
