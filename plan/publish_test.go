package plan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
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

func TestAPlanIsCreatedByItsPublisherIfTheAnswerIsLost(t *testing.T) {
	w := newWorld(t)
	px, err := proxy.Start(testdb.URI(t))
	require.NoError(t, err)
	t.Cleanup(px.Close)
	client, err := mongo.Connect(options.Client().ApplyURI(px.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	far, err := plan.New(plan.Config{Database: client.Database(w.db.Name())})
	require.NoError(t, err)
	w.publish(every("there", 1))
	trap := px.Set(proxy.Rule{Command: "insert", Collection: "plans", Do: proxy.CutAfter})
	plans, err := far.PublishMany(t.Context(), []repeat.Spec{every("there", 1), every("new", 1)})
	require.NoError(t, err)
	require.Equal(t, 1, trap.Sprung())
	require.Equal(t, []bool{false, true}, []bool{plans[0].Created, plans[1].Created})
	require.Equal(t, 2, w.drain(mstest.SkipTime()).Executions)
}

// transaction begins one, which ends with the test.
func (w *world) transaction() *mongo.Session {
	w.t.Helper()
	session, err := w.db.Client().StartSession()
	require.NoError(w.t, err)
	w.t.Cleanup(func() { session.EndSession(context.Background()) })
	require.NoError(w.t, session.StartTransaction())
	return session
}

func TestAPlanOfAnOpenTransactionDelaysNoOthers(t *testing.T) {
	w := newWorld(t)
	w.publish(every("there", 1))
	session := w.transaction()
	_, err := w.plans.Publish(mongo.NewSessionContext(t.Context(), session), every("mine", 1))
	require.NoError(t, err)
	before := w.count("tasks", bson.D{{Key: "type", Value: "report"}})

	var plans []*repeat.Plan
	published := make(chan error, 1)
	go func() {
		var err error
		plans, err = w.plans.PublishMany(t.Context(), []repeat.Spec{every("mine", 1), every("other", 1), every("there", 1)})
		published <- err
	}()
	require.Eventually(t, func() bool { return w.count("tasks", bson.D{{Key: "type", Value: "report"}}) == before+1 }, testdb.Patience, 5*time.Millisecond)
	require.Empty(t, published, "it waits for the end of the transaction")
	require.NoError(t, session.CommitTransaction(t.Context()))
	require.NoError(t, testdb.Receive(t, published))
	require.Equal(t, []bool{false, true, false}, []bool{plans[0].Created, plans[1].Created, plans[2].Created})
	require.Equal(t, 3, w.drain(mstest.SkipTime()).Executions)
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

func TestASessionWithoutATransactionDelaysNoPlan(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.db.Client().UseSession(t.Context(), func(ctx context.Context) error {
		_, err := w.plans.Publish(ctx, every("p", 1))
		return err
	}))
	require.EqualValues(t, 1, w.count("tasks", bson.D{{Key: "type", Value: "report"}}))
}

func TestAPlanOfATransactionThatIsAbortedWasNeverPublished(t *testing.T) {
	w := newWorld(t)
	w.publish(every("there", 1))
	session := w.transaction()
	mine, err := w.plans.Publish(mongo.NewSessionContext(t.Context(), session), every("new", 1))
	require.NoError(t, err)
	require.True(t, mine.Created)
	_, err = w.plans.Get(t.Context(), mine.ID)
	require.ErrorIs(t, err, model.ErrNotFound, "only the transaction sees it")
	require.NoError(t, session.AbortTransaction(t.Context()))
	_, err = w.plans.Get(t.Context(), mine.ID)
	require.ErrorIs(t, err, model.ErrNotFound)
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
}

// What a type says to its tasks it says to those of steps, too, at each try.
func TestTheTaskOfAStepIsWhatASendWouldHaveStored(t *testing.T) {
	w := newWorld(t)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	_, err = admin.New(prod).PutType(t.Context(), model.TaskType{Code: "report", Category: "of the type", ClaimBy: model.ClaimByCategory})
	require.NoError(t, err)
	sent, err := producer.Send(t.Context(), prod, model.NewType[repeat.Args[string], string]("report"), repeat.Args[string]{})
	require.NoError(t, err)
	want, err := prod.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Equal(t, []string{"*", "g:of the type"}, want.Audience)
	p := w.publish(every("p", 1))
	id := model.TaskID("", "report", "p@1")
	step := func() *model.Task {
		task, err := prod.Get(t.Context(), id)
		require.NoError(t, err)
		return task
	}
	first := step()
	require.Equal(t, []any{want.Category, want.Audience}, []any{first.Category, first.Audience})

	_, err = w.db.Collection("tasks").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusFailure}}}})
	require.NoError(t, err)
	p.Try++
	p.Planned = []repeat.Planned{{ID: "1.2", Do: "again", Step: 1, Try: p.Try}}
	_, err = w.plans.Finish(t.Context(), []*repeat.Plan{p}, nil)
	require.NoError(t, err)
	again := step()
	require.Equal(t, p.Try, again.Origin.Generation)
	require.Equal(t, []any{want.Category, want.Audience}, []any{again.Category, again.Audience})
}
