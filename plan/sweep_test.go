package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// sweep sweeps after some time. Everything that it finds, it finds once.
func (w *world) sweep(later time.Duration) {
	w.t.Helper()
	w.plans.Skip(later)
	require.NoError(w.t, w.plans.Sweep(w.t.Context()))
	before := w.count("plan_results", bson.D{})
	require.NoError(w.t, w.plans.Sweep(w.t.Context()))
	require.Equal(w.t, before, w.count("plan_results", bson.D{}))
}

// finishes lets a plan run to its end, and proves that its steps and results are those.
func (w *world) finishes(id string, steps int, results ...string) {
	w.t.Helper()
	w.drain(mstest.SkipTime())
	over := w.get(id)
	require.Equal(w.t, repeat.StatusFinish, over.Status)
	require.EqualValues(w.t, steps, over.RealRepet)
	require.Equal(w.t, stepplan.StateOK, over.LastState)
	require.Equal(w.t, results, w.results(id))
}

// served lists a worker that serves the station, and does nothing.
func (w *world) served() {
	w.t.Helper()
	_, err := w.db.Collection("workers").InsertOne(w.t.Context(), bson.D{
		{Key: "_id", Value: "busy"}, {Key: "types", Value: bson.A{"report"}}, {Key: "heartbeat_at", Value: time.Now().Add(time.Hour)},
	})
	require.NoError(w.t, err)
}

func TestAStepWhoseTaskSomebodyDeletedStartsAgain(t *testing.T) {
	w := newWorld(t)
	w.served()
	p := w.publish(every("p", 2))
	gone, err := w.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: model.TaskID("", "report", "p@1")}})
	require.NoError(t, err)
	require.EqualValues(t, 1, gone.DeletedCount)
	w.sweep(2 * time.Minute)
	require.Equal(t, p.Rev, w.get(p.ID).Rev, "it may be on its way")
	w.sweep(5 * time.Minute)
	require.Equal(t, "its task was deleted", w.get(p.ID).Reason)
	w.finishes(p.ID, 2, "1.1 OK report 1", "2.0 OK report 2")
	require.Len(t, w.ran, 2)
}

func TestAnEndThatNobodyToldIsFound(t *testing.T) {
	w := newWorld(t)
	w.served()
	p := w.publish(every("p", 2))
	mstest.Drain(t, w.c, mstest.SkipTime()) // no engine hears of it
	lost, err := w.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: model.TaskID("", "report", "p@1")}},
		bson.D{{Key: "$unset", Value: bson.D{{Key: "outbox", Value: ""}, {Key: "outbox_at", Value: ""}}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, lost.ModifiedCount)
	require.Zero(t, w.drain(mstest.SkipTime()).Executions)
	w.sweep(2 * time.Minute)
	require.Equal(t, p.Rev, w.get(p.ID).Rev, "it may be told yet")
	w.sweep(5 * time.Minute)
	require.EqualValues(t, 2, w.get(p.ID).Step)
	w.finishes(p.ID, 2, "1.0 OK report 1", "2.0 OK report 2")
	require.Len(t, w.ran, 2)
}

func TestAPlanSaysThatNobodyServesItsStationUntilAWorkerComes(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1))
	w.sweep(30 * time.Second)
	require.Empty(t, w.get(p.ID).LastState, "one may come soon")
	w.sweep(2 * time.Minute)
	due := w.get(p.ID)
	require.Equal(t, repeat.StatusRunning, due.Status)
	require.Equal(t, stepplan.StateNoWorker, due.LastState)
	require.Equal(t, "no live worker takes the task of this step", due.Reason)
	require.Equal(t, []string{"1.0 NO_WORKER no live worker takes the task of this step"}, w.results(p.ID))
	w.drain(mstest.SkipTime()) // a worker comes
	require.ElementsMatch(t, []string{"1.0 NO_WORKER no live worker takes the task of this step", "1.0 OK report 1"}, w.results(p.ID))
	over := w.get(p.ID)
	require.Equal(t, stepplan.StateOK, over.LastState)
	require.EqualValues(t, 1, over.RealRepet)
	require.NotContains(t, over.Reason, "worker")
}

// A late step, and a try that waits for its pause, are late by their time: they are not unserved yet.
func TestALateStepWaitsAsLongForAWorkerAsOthers(t *testing.T) {
	w := newWorld(t)
	p := w.publish(repeat.Spec{PlanID: "p", Station: "report", PlanType: repeat.Time, PlanTime: time.Now().Add(-time.Hour), NoKeep: true, Messages: []any{"x"}})
	w.sweep(30 * time.Second)
	require.Empty(t, w.get(p.ID).LastState)
	w.sweep(time.Minute)
	require.Equal(t, stepplan.StateNoWorker, w.get(p.ID).LastState)

	again := w.publish(every("again", 1))
	pauses := time.Now().Add(10 * time.Minute) // as after many tries
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), model.TaskID("", "report", "again@1"), bson.D{{Key: "$set", Value: bson.D{{Key: "due_at", Value: pauses}, {Key: "start_time", Value: pauses}}}})
	require.NoError(t, err)
	w.sweep(2 * time.Minute)
	require.Equal(t, again.Rev, w.get(again.ID).Rev, "it is not due yet")
}

func TestNobodySaysOfAStationThatIsServedThatItIsNot(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1))
	w.served()
	w.sweep(2 * time.Minute)
	w.sweep(10 * time.Minute)
	require.Equal(t, p.Rev, w.get(p.ID).Rev)
}

// live has the workers heard of for as long as the sweeps skip.
func (w *world) live(more bson.D) {
	w.t.Helper()
	r, err := w.db.Collection("workers").UpdateMany(w.t.Context(), bson.D{}, bson.D{{Key: "$set", Value: append(bson.D{{Key: "heartbeat_at", Value: time.Now().Add(time.Hour)}}, more...)}})
	require.NoError(w.t, err)
	require.NotZero(w.t, r.MatchedCount)
}

func TestAStationIsServedByAWorkerThatPulls(t *testing.T) {
	for _, request := range []pull.FetchRequest{
		{WorkerID: "python-1", Types: []string{"report"}},
		{WorkerID: "python-1", Categories: []string{"figures"}},
	} {
		w := newWorld(t)
		sender, err := producer.New(producer.Config{Database: w.db})
		require.NoError(t, err)
		testdb.Closes(t, sender.Close)
		_, err = pull.New(sender).Fetch(t.Context(), request)
		require.NoError(t, err)
		_, err = w.db.Collection("task_types").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "report"}, {Key: "category", Value: "figures"}})
		require.NoError(t, err)
		p := w.publish(every("p", 1))
		w.live(nil)
		w.sweep(2 * time.Minute)
		require.Equal(t, p.Rev, w.get(p.ID).Rev)
	}
}

func TestAStationIsNotServedByAWorkerThatTakesNoSuchTask(t *testing.T) {
	for _, but := range []bson.E{
		{Key: "only", Value: bson.D{{Key: "tenants", Value: bson.A{"acme"}}}},
		{Key: "draining", Value: true},
	} {
		w := newWorld(t)
		p := w.publish(every("p", 1))
		acme := w.publish(every("q", 1, func(s *repeat.Spec) { s.Tenant = "acme" }))
		w.served()
		w.live(bson.D{but})
		w.sweep(2 * time.Minute)
		require.Equal(t, stepplan.StateNoWorker, w.get(p.ID).LastState, but.Key)
		if but.Key == "only" {
			require.Equal(t, acme.Rev, w.get(acme.ID).Rev)
		}
	}
}

func TestAStationIsNotServedByAWorkerThatTheWorkerFilterExcludes(t *testing.T) {
	w := newWorld(t)
	named := func(id string) func(*repeat.Spec) {
		return func(s *repeat.Spec) { s.Options.SpecificWorkerIDs = []string{id} }
	}
	p, q := w.publish(every("p", 1, named("gone"))), w.publish(every("q", 1, named("busy")))
	w.served()
	w.sweep(2 * time.Minute)
	require.Equal(t, stepplan.StateNoWorker, w.get(p.ID).LastState)
	require.Equal(t, q.Rev, w.get(q.ID).Rev)
}
