package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func TestAPlanWhoseLastTimeHasPassedIsOverWithoutHavingRun(t *testing.T) {
	w := newWorld(t)
	past := time.Now().Add(-time.Hour)
	p := w.publish(repeat.Spec{PlanID: "p", Station: "report", PlanType: repeat.Time, PlanTime: past, Messages: []any{1}})
	require.Equal(t, repeat.StatusFinish, p.Status)
	require.Zero(t, w.drain(mstest.SkipTime()).Executions)
	require.NotEmpty(t, w.get(p.ID).Reason)
	require.EqualValues(t, 1, w.count("plan_history", bson.D{}))
	kept := w.publish(repeat.Spec{PlanID: "kept", Station: "report", PlanType: repeat.Time, PlanTime: past, NoKeep: true, Messages: []any{"x"}})
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, int64(1), w.get(kept.ID).RealRepet)
}

func TestAPublisherHearsWhichPlansItHasStored(t *testing.T) {
	w := newWorld(t)
	require.True(t, w.publish(every("there", 1)).Created)
	require.False(t, w.publish(every("there", 1)).Created)
	over := w.publish(repeat.Spec{PlanID: "over", Station: "report", PlanType: repeat.Time, PlanTime: time.Now().Add(-time.Hour), Messages: []any{1}})
	require.True(t, over.Created)
	w.drain(mstest.SkipTime())
	plans, err := w.plans.PublishMany(t.Context(), []repeat.Spec{every("there", 1), every("new", 1), every("over", 1)})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, false}, []bool{plans[0].Created, plans[1].Created, plans[2].Created})
	require.False(t, w.get("-/new").Created)
}

func TestNothingIsStoredOfInvalidPlansAndEveryMistakeIsNamed(t *testing.T) {
	w := newWorld(t)
	_, err := w.plans.PublishMany(t.Context(), []repeat.Spec{
		every("good", 1),
		every("bad", 0, func(s *repeat.Spec) { s.Station, s.Messages = "", nil }),
		every("good", 1),
	})
	for _, want := range []string{"plans[1]", "station", "plan_repet", "messages", "plans[2]", "plan_id"} {
		require.ErrorContains(t, err, want)
	}
	var invalid *model.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.EqualValues(t, 0, w.count("plans", bson.D{}))
	require.EqualValues(t, 0, w.count("tasks", bson.D{{Key: "type", Value: "report"}}))
}

func TestAPlanOfATransactionStartsAfterItsCommit(t *testing.T) {
	w := newWorld(t)
	w.publish(every("there", 1))
	session, err := w.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		for _, id := range []string{"there", "new"} {
			if _, err := w.plans.Publish(ctx, every(id, 1)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "type", Value: "report"}}))
	require.Equal(t, 2, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, int64(1), w.get("-/new").RealRepet)
}
