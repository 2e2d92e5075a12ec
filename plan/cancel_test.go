package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
)

// For some seconds after an engine has told a plan of a plan error, the outbox of the task and the plan still say what
// was to be done.
func TestAPlanThatIsERRORIsOverAsSoonAsItIsCancelled(t *testing.T) {
	for name, callback := range map[string]*model.Callback{
		"without a callback": nil,
		"with a callback":    {Error: &model.CallbackTarget{URL: "http://127.0.0.1:1/plans"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fails = func(repeat.Args[string], int) error { return consumer.PlanError(errors.New("no such region")) }
			e := w.plans.Engine()
			require.NoError(t, e.Start(t.Context()))
			p := w.publish(every("p", 2, func(s *repeat.Spec) { s.Callback = callback }))
			mstest.Drain(t, w.c, mstest.SkipTime())
			w.plans.Skip(2 * time.Second)
			e.Round(t.Context())
			require.Equal(t, repeat.StatusError, w.get(p.ID).Status)
			require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "outbox.kind", Value: lifecycle.OutcomePlan}}))
			if callback != nil {
				require.NotEmpty(t, w.get(p.ID).Planned)
			}

			over, err := w.plans.Cancel(t.Context(), p.ID, "enough")
			require.NoError(t, err)
			require.NotZero(t, over.EndedAt, "nothing of it runs")
			e.Round(t.Context())
			e.Flush(t.Context())
			require.Equal(t, stepplan.StatePlanError, w.get(p.ID).LastState)
			require.Equal(t, []string{"1.0 PLAN_ERROR no such region"}, w.results(p.ID))
			require.Zero(t, w.count("tasks", bson.D{{Key: "outbox.kind", Value: lifecycle.OutcomePlan}}))
			if callback != nil {
				require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "type", Value: "mscheduler.callback"}}))
			}
		})
	}
}

func TestACancelledPlanThatIsERRORCountsTheSuccessOfATaskThatAPersonRetried(t *testing.T) {
	w := newWorld(t)
	prod := w.producer()
	w.fails = func(repeat.Args[string], int) error { return consumer.PlanError(errors.New("no such region")) }
	p := w.publish(every("p", 2))
	w.drain(mstest.SkipTime())
	w.fails = nil
	_, err := prod.Retry(t.Context(), model.TaskID("", "report", "p@1"), "")
	require.NoError(t, err)
	mstest.Drain(t, w.c, mstest.SkipTime()) // no engine is told
	_, err = w.plans.Cancel(t.Context(), p.ID, "enough")
	require.NoError(t, err)
	w.drain()
	over := w.get(p.ID)
	require.NotZero(t, over.EndedAt)
	require.EqualValues(t, 1, over.RealRepet)
}

// foreign sends a task of nobody's that has the key of the plan's first step.
func (w *world) foreign(id string) {
	w.t.Helper()
	sent, err := producer.Send(w.t.Context(), w.producer(), model.NewType[repeat.Args[string], string]("report"), repeat.Args[string]{}, producer.Key(id+"@1"), producer.In(time.Hour))
	require.NoError(w.t, err)
	require.True(w.t, sent.Created)
}

func (w *world) producer() *producer.Producer {
	w.t.Helper()
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(w.t, err)
	testdb.Closes(w.t, prod.Close)
	return prod
}

func TestAPlanDoesNotWaitForATaskOfOthersThatHasTheKeyOfItsStep(t *testing.T) {
	w := newWorld(t)
	w.foreign("p")
	p := w.publish(every("p", 2))
	w.sweep(2 * time.Minute)
	require.Equal(t, repeat.StatusError, w.get(p.ID).Status)
	over, err := w.plans.Cancel(t.Context(), p.ID, "enough")
	require.NoError(t, err)
	require.NotZero(t, over.EndedAt, "nothing of it runs")
	require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "key", Value: "p@1"}, {Key: "status", Value: model.StatusNew}}), "the other task stays")
}

// Somebody deletes the task of a step while it is cancelled, and others send one that has its key.
func TestACancelledPlanIsOverAlthoughOthersHaveTheKeyOfItsStep(t *testing.T) {
	w := newWorld(t)
	w.served()
	p := w.publish(every("p", 2))
	after, err := w.plans.Cancel(t.Context(), p.ID, "enough")
	require.NoError(t, err)
	require.Zero(t, after.EndedAt)
	gone, err := w.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: model.TaskID("", "report", "p@1")}})
	require.NoError(t, err)
	require.EqualValues(t, 1, gone.DeletedCount)
	w.foreign("p")
	w.sweep(2 * time.Minute)
	require.Zero(t, w.get(p.ID).EndedAt, "its end may be told yet")
	w.sweep(5 * time.Minute)
	require.NotZero(t, w.get(p.ID).EndedAt)
	require.Equal(t, repeat.StatusCancelled, w.get(p.ID).Status)
}
