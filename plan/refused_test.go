package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// pair is a result that an index on both fields refuses.
type pair struct {
	A []int `json:"a"`
	B []int `json:"b"`
}

// refuses has the server refuse documents with two lists in the field.
func (w *world) refuses(collection, field string) {
	w.t.Helper()
	_, err := w.db.Collection(collection).Indexes().CreateOne(w.t.Context(),
		mongo.IndexModel{Keys: bson.D{{Key: field + ".a", Value: 1}, {Key: field + ".b", Value: 1}}})
	require.NoError(w.t, err)
}

// The owner of the database may have a rule that refuses a result. That plan waits; no other does.
func TestAResultThatTheServerRefusesHoldsUpItsOwnPlanOnly(t *testing.T) {
	w := newWorld(t)
	w.refuses("plan_results", "result")
	require.NoError(t, consumer.Handle(w.c, model.NewType[repeat.Args[string], pair]("pair"),
		func(context.Context, *consumer.Task[repeat.Args[string]]) (pair, error) {
			return pair{[]int{1}, []int{2}}, nil
		}))
	for _, id := range []string{"a", "b", "refused", "c", "d"} {
		w.publish(every(id, 1, func(s *repeat.Spec) {
			if id == "refused" {
				s.Station = "pair"
			}
		}))
	}
	w.drain(mstest.SkipTime())
	for _, id := range []string{"-/a", "-/b", "-/c", "-/d"} {
		require.Equal(t, repeat.StatusFinish, w.get(id).Status, id)
		require.Equal(t, []string{"1.0 OK report 1"}, w.results(id))
	}
	require.Equal(t, repeat.StatusRunning, w.get("-/refused").Status)

	require.NoError(t, w.db.Collection("plan_results").Indexes().DropOne(t.Context(), "result.a_1_result.b_1"))
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusFinish, w.get("-/refused").Status)
	require.Len(t, w.results("-/refused"), 1)
}

func TestAPlanWhoseHistoryTheServerRefusesHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.refuses("plan_history", "messages")
	type message = pair
	require.NoError(t, consumer.Handle(w.c, model.NewType[repeat.Args[message], int]("message"),
		func(context.Context, *consumer.Task[repeat.Args[message]]) (int, error) { return 1, nil }))
	for _, id := range []string{"a", "b", "refused", "c", "d"} {
		w.publish(every(id, 1, func(s *repeat.Spec) {
			if id == "refused" {
				s.Station, s.Messages = "message", []any{message{[]int{1}, []int{2}}}
			}
		}))
	}
	w.drain(mstest.SkipTime())
	left := func() int64 {
		return w.count("plans", bson.D{{Key: "delete_at", Value: bson.D{{Key: "$exists", Value: true}}}})
	}
	w.plans.Skip(time.Minute) // what could not be carried out is anybody's then
	_, _, err := w.plans.Drain(t.Context(), time.Now())
	require.ErrorContains(t, err, "parallel arrays")
	require.EqualValues(t, 4, left())
	require.EqualValues(t, 4, w.count("plan_history", bson.D{}))
	require.Equal(t, repeat.StatusFinish, w.get("-/refused").Status)

	require.NoError(t, w.db.Collection("plan_history").Indexes().DropOne(t.Context(), "messages.a_1_messages.b_1"))
	w.drain()
	require.EqualValues(t, 5, left())
	require.EqualValues(t, 5, w.count("plan_history", bson.D{}))
}
