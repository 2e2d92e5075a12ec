package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// stepping is a store with tasks that workers hold.
type stepping struct {
	*testing.T
	*store.Store
	db  *mongo.Database
	now time.Time
}

func newStepping(t *testing.T) *stepping {
	t.Helper()
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return &stepping{t, s, db, s.Clock.Now()}
}

// held stores a task that the workers hold, each by the execution of its name.
func (s *stepping) held(key string, workers ...string) *model.Task {
	s.Helper()
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key, Options: model.Options{ConcurrentWorkerCount: len(workers)}}, s.now)
	for _, w := range workers {
		var no lifecycle.Refusal
		task, no = lifecycle.Claim(task, lifecycle.Claimant{WorkerID: w, ExecID: w}, lifecycle.ResolveOptions(task.Options), s.now)
		require.Empty(s, no)
	}
	_, err := s.Tasks.Insert(s.Context(), []*model.Task{task})
	require.NoError(s, err)
	return task
}

func (s *stepping) step(task *model.Task, worker, name, value string) store.StepWrite {
	s.Helper()
	i, w := lifecycle.ExecutionOf(task, worker)
	require.NotNil(s, w)
	raw, err := codec.EncodeValue("value", value, input.MaxStepBytes)
	require.NoError(s, err)
	return store.StepWrite{ID: task.ID, ExecID: worker, Index: i, Many: lifecycle.Wanted(task) > 1,
		Step: model.Step{Name: name, WorkerID: worker, Value: raw, At: clock.Millis(s.now), Attempt: w.Attempt}}
}

func (s *stepping) save(writes ...store.StepWrite) []store.SavedStep {
	s.Helper()
	saved, err := s.Tasks.SaveSteps(s.Context(), writes, time.Second)
	require.NoError(s, err)
	require.Len(s, saved, len(writes))
	return saved
}

// steps are the names and values that a task has.
func (s *stepping) steps(task *model.Task) (out []string) {
	s.Helper()
	got, err := s.Tasks.Get(s.Context(), task.ID)
	require.NoError(s, err)
	for _, st := range got.Steps {
		out = append(out, fmt.Sprintf("%s=%s by %s", st.Name, codec.ValueJSON(st.Value), st.WorkerID))
	}
	return out
}

func TestEachStepOfABatchHasItsOwnAnswer(t *testing.T) {
	s := newStepping(t)
	open, ended, earlier := s.held("open", "w"), s.held("ended", "w"), s.held("earlier", "w")
	after, err := lifecycle.Finish(ended, "w", lifecycle.Failed(failkind.Error, "no"), lifecycle.ResolveOptions(), s.now, 0)
	require.NoError(t, err)
	written, err := s.Tasks.Writes(t.Context(), []store.Write{{Before: ended, After: after}}, 0)
	require.NoError(t, err)
	require.True(t, written[0].Applied)
	first := s.step(earlier, "w", "a", "first")
	require.Equal(t, first.Step, s.save(first)[0].Step)
	other := s.step(earlier, "w", "a", "second")
	other.Step.Attempt++
	gone := s.step(open, "w", "a", "x")
	gone.ID = "-/t/none"

	got := s.save(s.step(open, "w", "a", "1"), s.step(ended, "w", "a", "2"), other, s.step(open, "w", "b", "3"), gone, first)
	for i, fenced := range []bool{false, true, false, false, true, false} {
		require.Equal(t, fenced, got[i].Fenced, "step %d", i)
		require.False(t, got[i].Missed, "step %d", i)
	}
	require.Equal(t, first.Step, got[2].Step, "what was saved first counts")
	require.Equal(t, first.Step, got[5].Step, "a repetition changes nothing")
	require.Equal(t, []string{`a="1" by w`, `b="3" by w`}, s.steps(open))
	require.Equal(t, []string{`a="first" by w`}, s.steps(earlier))
	require.Empty(t, s.steps(ended))
}

func TestSeveralWorkersSaveStepsOfTheSameName(t *testing.T) {
	s := newStepping(t)
	task := s.held("k", "w1", "w2")
	for range 2 { // the second time the answer to the first was lost
		for _, saved := range s.save(s.step(task, "w1", "a", "1"), s.step(task, "w2", "a", "2"), s.step(task, "w1", "b", "3")) {
			require.False(t, saved.Fenced || saved.Missed)
		}
	}
	require.Equal(t, []string{`a="1" by w1`, `a="2" by w2`, `b="3" by w1`}, s.steps(task))
}

// Somebody's open transaction holds one task: its step is missed, not fenced, and the
// others do not wait for it.
func TestAStepOfATaskThatATransactionHoldsIsMissed(t *testing.T) {
	s := newStepping(t)
	blocked, free := s.held("blocked", "w"), s.held("free", "w")
	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	require.NoError(t, session.StartTransaction())
	_, err = s.db.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
		bson.D{{Key: "_id", Value: blocked.ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)

	writes := []store.StepWrite{s.step(blocked, "w", "a", "1"), s.step(free, "w", "a", "2")}
	got := s.save(writes...)
	require.True(t, got[0].Missed)
	require.False(t, got[0].Fenced)
	require.Equal(t, writes[1].Step, got[1].Step)
	require.NoError(t, session.CommitTransaction(t.Context()))
	require.Equal(t, writes[0].Step, s.save(writes...)[0].Step)
	require.Equal(t, []string{`a="1" by w`}, s.steps(blocked))
	require.Equal(t, []string{`a="2" by w`}, s.steps(free))
}
