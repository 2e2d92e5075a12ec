package plan_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
)

// A person has the task of a step run again, instead of a reset or before it.
func TestATaskThatAPersonRetriesIsTheStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	wrong := func(repeat.Args[string], int) error { return consumer.PlanError(errors.New("no such region")) }
	w.fails = wrong
	p := w.publish(every("p", 2))
	w.drain(mstest.SkipTime())
	id := model.TaskID("", "report", "p@1")
	retry := func() {
		_, err := prod.Retry(t.Context(), id, "")
		require.NoError(t, err)
	}
	w.fails = func(repeat.Args[string], int) error { return consumer.Fatal(errors.New("still no data")) }
	retry()
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, repeat.StatusError, w.get(p.ID).Status, "no step starts without a reset")
	w.fails = nil
	retry()
	require.Equal(t, 1, mstest.Drain(t, w.c, mstest.SkipTime()).Executions) // no engine is told
	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions, "step 1 has succeeded: only step 2 is left")
	over := w.get(p.ID)
	require.Equal(t, repeat.StatusFinish, over.Status)
	require.Equal(t, int64(2), over.RealRepet)
	require.Equal(t, []string{"1.0 PLAN_ERROR no such region", "1.0 PLAN_ERROR still no data", "1.1 OK report 1", "2.0 OK report 2"}, w.results(p.ID))
}

// A person is quicker than the engine: a step's task that failed starts again before anybody was told.
func TestTheResultOfATryIsKeptAlthoughAPersonRetriesItBeforeAnEngineIsTold(t *testing.T) {
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	w.fails = func(_ repeat.Args[string], attempt int) error {
		if len(w.ran) == 1 {
			return errors.New("no data")
		}
		return nil
	}
	p := w.publish(every("p", 1, unretried))
	mstest.Drain(t, w.c, mstest.SkipTime()) // no engine is told
	_, err = prod.Retry(t.Context(), model.TaskID("", "report", "p@1"), "")
	require.NoError(t, err)
	mstest.Drain(t, w.c, mstest.SkipTime())
	w.drain(mstest.SkipTime())
	require.Equal(t, []string{"1.0 ERROR no data", "1.0 OK report 1"}, w.results(p.ID))
	require.EqualValues(t, 1, w.get(p.ID).RealRepet)
	require.Len(t, w.ran, 2)
}

// An engine remembers a plan, another one decides about it, and a person is quicker than both.
func TestTheResultOfATryIsKeptByAnEngineThatRemembersAnEarlierStep(t *testing.T) {
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	w.fails = func(args repeat.Args[string], _ int) error {
		if args.Step == 3 {
			return errors.New("no data")
		}
		return nil
	}
	remembers, err := plan.New(plan.Config{Database: w.db})
	require.NoError(t, err)
	e := remembers.Engine()
	require.NoError(t, e.Start(t.Context()))
	p := w.publish(every("p", 3, unretried))

	mstest.Drain(t, w.c, mstest.SkipTime())
	remembers.Skip(2 * time.Second)
	e.Round(t.Context())
	require.EqualValues(t, 2, w.get(p.ID).Step)

	mstest.Drain(t, w.c, mstest.SkipTime())
	w.plans.Skip(3 * time.Second)
	_, _, err = w.plans.Drain(t.Context(), time.Now())
	require.NoError(t, err)
	require.EqualValues(t, 3, w.get(p.ID).Step)

	mstest.Drain(t, w.c, mstest.SkipTime()) // no engine is told
	_, err = prod.Retry(t.Context(), model.TaskID("", "report", "p@3"), "")
	require.NoError(t, err)
	remembers.Skip(2 * time.Second)
	e.Round(t.Context())
	e.Flush(t.Context())
	require.Equal(t, []string{"1.0 OK report 1", "2.0 OK report 2", "3.0 ERROR no data"}, w.results(p.ID))
}

func TestACancelledPlanThatIsERRORCancelsATaskThatRuns(t *testing.T) {
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	w.fails = func(repeat.Args[string], int) error { return consumer.PlanError(errors.New("no such region")) }
	p := w.publish(every("p", 2))
	w.drain(mstest.SkipTime())
	_, err = prod.Retry(t.Context(), model.TaskID("", "report", "p@1"), "")
	require.NoError(t, err)
	after, err := w.plans.Cancel(t.Context(), p.ID, "enough")
	require.NoError(t, err)
	require.True(t, after.EndedAt.IsZero(), "its task waits")
	require.Zero(t, w.drain(mstest.SkipTime()).Executions)
	require.False(t, w.get(p.ID).EndedAt.IsZero())
}

func TestACancelledPlanStartsNoStep(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 3))
	after, err := w.plans.Cancel(t.Context(), p.ID, "not needed")
	require.NoError(t, err)
	require.Equal(t, repeat.StatusCancelled, after.Status)
	require.Zero(t, w.drain(mstest.SkipTime()).Executions)
	over := w.get(p.ID)
	require.Equal(t, "not needed", over.Reason)
	require.False(t, over.EndedAt.IsZero())
	require.EqualValues(t, 1, w.count("plan_history", bson.D{}))
	require.Equal(t, []string{"1.0 CANCELLED not needed"}, w.results(p.ID))
	again, err := w.plans.Cancel(t.Context(), p.ID, "twice")
	require.NoError(t, err)
	require.Equal(t, "not needed", again.Reason)
}

func TestAStepThatEndsAfterItsPlanIsCancelledCountsAsItEnded(t *testing.T) {
	w := newWorld(t)
	for name, end := range map[string]struct {
		fails   error
		succeed int64
		state   string
	}{"well": {nil, 1, stepplan.StateOK}, "badly": {consumer.Fatal(errors.New("no data")), 0, stepplan.StateError}} {
		p := w.publish(every(name, 3))
		w.fails = func(repeat.Args[string], int) error { return end.fails }
		mstest.Drain(t, w.c, mstest.SkipTime()) // no engine hears of it
		after, err := w.plans.Cancel(t.Context(), p.ID, "not needed")
		require.NoError(t, err)
		require.True(t, after.EndedAt.IsZero(), "it is over when the step has ended")
		w.drain()
		over := w.get(p.ID)
		require.Equal(t, repeat.StatusCancelled, over.Status)
		require.Equal(t, "not needed", over.Reason)
		require.False(t, over.EndedAt.IsZero())
		require.Equal(t, end.succeed, over.RealRepet)
		require.Equal(t, end.state, over.LastState)
	}
}

// The task of its step waits for a person, who cancels the plan instead.
func TestAPlanThatIsCancelledEndsThePendingTaskOfItsStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	w.fails = func(repeat.Args[string], int) error { return consumer.Fatal(errors.New("no data")) }
	p := w.publish(every("p", 2, func(s *repeat.Spec) {
		manual := true
		s.Options.NeedManual = &manual
	}))
	w.drain(mstest.SkipTime())
	id := model.TaskID("", "report", "p@1")
	task, err := prod.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, model.StatusPending, task.Status)
	require.Empty(t, task.Outbox, "its end is known")
	_, err = w.plans.Cancel(t.Context(), p.ID, "no longer wanted")
	require.NoError(t, err)
	task, err = prod.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, model.StatusCancelled, task.Status)
	require.Equal(t, "no longer wanted", task.Remark)
	require.NotZero(t, task.ArchiveAt, "it moves to the history")
	w.drain(mstest.SkipTime())
	over := w.get(p.ID)
	require.Equal(t, repeat.StatusCancelled, over.Status)
	require.NotZero(t, over.EndedAt)
	require.Equal(t, stepplan.StateCancelled, over.LastState)
	require.Zero(t, over.RealRepet)
	require.Equal(t, []string{"1.0 ERROR no data"}, w.results(p.ID))
}

func TestACommandOnAPlanIsNoPartOfATransaction(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1))
	testdb.RolledBack(t, w.db, func(ctx context.Context) {
		_, err := w.plans.Cancel(ctx, p.ID, "")
		require.NoError(t, err)
	})
	require.Equal(t, repeat.StatusCancelled, w.get(p.ID).Status)
	require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "status", Value: model.StatusCancelled}}))
}
