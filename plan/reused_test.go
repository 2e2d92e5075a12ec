package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// forgotten lets a plan run to its end, and be deleted with its results, as 90 days later. Its tasks stay.
func (w *world) forgotten(s repeat.Spec) *repeat.Plan {
	w.t.Helper()
	p := w.publish(s)
	w.drain(mstest.SkipTime())
	require.Equal(w.t, repeat.StatusFinish, w.get(p.ID).Status)
	for _, coll := range []string{"plans", "plan_history", "plan_results"} {
		_, err := w.db.Collection(coll).DeleteMany(w.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^~"}}}}})
		require.NoError(w.t, err)
	}
	w.ran = nil
	return p
}

func TestAPlanDoesNotTakeTheTasksOfAnEarlierOneForItsOwn(t *testing.T) {
	w := newWorld(t)
	w.forgotten(every("p", 2))
	p := w.publish(every("p", 2, func(s *repeat.Spec) { s.Messages = []any{"south"} }))
	require.True(t, p.Created)
	w.finishes(p.ID, 2, "1.0 OK report 1", "2.0 OK report 2")
	require.Len(t, w.ran, 2)
	for _, args := range w.ran {
		require.Equal(t, []string{"south"}, args.Messages)
	}
}

// All participants of the new plan's step take part, those of the earlier one's, too.
func TestSuccessesOfAnEarlierPlanDoNotCount(t *testing.T) {
	w := newWorld(t)
	p := w.forgotten(every("p", 1))
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), model.TaskID("", "report", "p@1"), bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusFailure}}}})
	require.NoError(t, err)
	w.publish(every("p", 1))
	w.finishes(p.ID, 1, "1.0 OK report 1")
	require.Len(t, w.ran, 1)
}

// Somebody lost the task of a step, and its key has a life in the history, of an earlier plan. The end of that is not the
// step's.
func TestALifeOfAnEarlierPlanInTheHistoryIsNoEndOfAStep(t *testing.T) {
	w := newWorld(t)
	w.served()
	tasks, id := w.db.Collection("tasks"), model.TaskID("", "report", "p@1")
	w.forgotten(every("p", 1))
	w.publish(every("p", 1)) // the life of the earlier plan goes to the history
	require.EqualValues(t, 1, w.count("task_history", bson.D{{Key: "task_id", Value: id}}))
	gone, err := tasks.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: id}})
	require.NoError(t, err)
	require.EqualValues(t, 1, gone.DeletedCount)
	w.sweep(10 * time.Minute)
	require.Equal(t, repeat.StatusRunning, w.get("-/p").Status)
	require.Empty(t, w.results("-/p"))
	w.finishes("-/p", 1, "1.1 OK report 1")
	require.Len(t, w.ran, 1)
}

func TestAPlanIsCancelledAlthoughATaskOfAnEarlierOneWaitsForAPerson(t *testing.T) {
	w := newWorld(t)
	tasks, task := w.db.Collection("tasks"), bson.D{{Key: "_id", Value: model.TaskID("", "report", "p@1")}}
	w.forgotten(every("p", 1))
	_, err := tasks.UpdateOne(t.Context(), task, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusPending}}}})
	require.NoError(t, err)
	p := w.publish(every("p", 1))
	_, err = tasks.DeleteOne(t.Context(), task)
	require.NoError(t, err)
	_, err = w.db.Collection("plans").UpdateByID(t.Context(), p.ID, bson.D{{Key: "$unset", Value: bson.D{{Key: "planned", Value: ""}, {Key: "planned_at", Value: ""}}}})
	require.NoError(t, err)
	over, err := w.plans.Cancel(t.Context(), p.ID, "enough")
	require.NoError(t, err)
	require.NotZero(t, over.EndedAt, "nothing of it runs")
}

// An end of an earlier plan is told late, when its id has a plan again, whose first step may not be sent yet.
func TestAnEndOfAnEarlierPlanIsNoEndOfAStep(t *testing.T) {
	for _, inTransaction := range []bool{false, true} {
		w := newWorld(t)
		earlier := w.publish(every("p", 1))
		mstest.Drain(t, w.c, mstest.SkipTime()) // no engine hears of it
		_, err := w.db.Collection("plans").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: earlier.ID}})
		require.NoError(t, err)
		if session := w.transaction(); inTransaction {
			_, err = w.plans.Publish(mongo.NewSessionContext(t.Context(), session), every("p", 2))
			require.NoError(t, err)
			require.NoError(t, session.CommitTransaction(t.Context()))
		} else {
			w.publish(every("p", 2))
		}
		w.finishes(earlier.ID, 2, "1.0 OK report 1", "2.0 OK report 2")
		require.Len(t, w.ran, 3)
	}
}
