package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

func TestEachStepRunsOnceAndThePlanMovesToTheHistory(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 3, func(s *repeat.Spec) { s.RequestID, s.Caller = "r-1", "ann" }))
	require.Equal(t, "-/p", p.ID)
	require.Equal(t, repeat.StatusRunning, p.Status)
	require.Equal(t, int64(1), p.Step)
	w.drain(mstest.SkipTime())
	require.Len(t, w.ran, 3)
	for i, args := range w.ran {
		require.Equal(t, repeat.Args[string]{
			PlanType: repeat.Second, PlanValue: 1, PlanRepet: 3, RealRepet: int64(i), LastState: map[bool]string{true: stepplan.StateOK}[i > 0],
			PlanID: "p", PlanTime: p.CreatedAt.Add(time.Duration(i+1) * time.Second), Step: int64(i + 1), RequestID: "r-1", Caller: "ann",
			Description: "sales", Messages: []string{"north", "south"},
		}, args)
	}
	over := w.get(p.ID)
	require.Equal(t, repeat.StatusFinish, over.Status)
	require.Equal(t, int64(3), over.RealRepet)
	require.Equal(t, stepplan.StateOK, over.LastState)
	require.Equal(t, []string{"1.0 OK report 1", "2.0 OK report 2", "3.0 OK report 3"}, w.results(p.ID))
	require.EqualValues(t, 3, w.count("plan_results", bson.D{{Key: "request_id", Value: "r-1"}, {Key: "caller", Value: "ann"}}))
	require.EqualValues(t, 1, w.count("plan_history", bson.D{}))
	require.EqualValues(t, 0, w.count("plans", bson.D{{Key: "delete_at", Value: nil}}), "it leaves the collection in a while")

	again := w.publish(every("p", 3))
	require.Equal(t, repeat.StatusFinish, again.Status, "the plan was published before")
	require.Zero(t, w.drain(mstest.SkipTime()).Executions)
	_, err := w.db.Collection("plans").DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, over.RealRepet, w.publish(every("p", 3)).RealRepet, "nor is one that has left")
	require.EqualValues(t, 0, w.count("plans", bson.D{}))
}

func TestAStepThatFailsStartsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tries := 0
	w.fails = func(args repeat.Args[string], _ int) error {
		if tries++; args.Step == 1 && tries <= 3 {
			return errors.New("no data")
		}
		return nil
	}
	p := w.publish(every("p", 2, unretried))
	began := time.Now()
	report := w.drain(mstest.SkipTime())
	passed := report.Skipped + time.Since(began)
	require.Equal(t, 5, report.Executions)
	require.Equal(t, []string{"1.0 ERROR no data", "1.1 ERROR no data", "1.2 ERROR no data", "1.3 OK report 1", "2.0 OK report 2"}, w.results(p.ID))
	require.GreaterOrEqual(t, passed, 1*time.Second+2*time.Second+4*time.Second, "it pauses, ever longer")
	over := w.get(p.ID)
	require.Equal(t, int64(2), over.RealRepet)
	require.Equal(t, repeat.StatusFinish, over.Status)
}

func TestAFailureThatALaterExecutionReplacesHasNoResult(t *testing.T) {
	w := newWorld(t)
	w.fails = func(_ repeat.Args[string], attempt int) error {
		if attempt <= 12 {
			return fmt.Errorf("no data %d", attempt)
		}
		return nil
	}
	most := 12
	p := w.publish(every("p", 1, func(s *repeat.Spec) {
		s.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: &most}
	}))
	w.drain(mstest.SkipTime())
	want := []string{}
	for n := 4; n <= 12; n++ { // the last three executions replace the first
		want = append(want, fmt.Sprintf("1.0 ERROR no data %d", n))
	}
	require.Equal(t, append(want, "1.0 OK report 1"), w.results(p.ID))
}

func TestAStepThatPingsIsNotStartedAgainAlthoughItsTimeoutHasPassed(t *testing.T) {
	t.Parallel()
	const timeout = 12 * time.Second // between two pings the machine may stand still
	w := newWorld(t)
	var begun atomic.Int32
	enough := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 { // either could take the step over
		c, err := consumer.New(consumer.Config{Database: w.db})
		require.NoError(t, err)
		require.NoError(t, consumer.Handle(c, model.NewType[repeat.Args[string], string]("report"), func(context.Context, *consumer.Task[repeat.Args[string]]) (string, error) {
			begun.Add(1)
			<-enough
			return "long", nil
		}))
		running.Go(func() { assert.NoError(t, c.Run(ctx)) })
	}
	running.Go(func() { assert.NoError(t, w.plans.Run(ctx)) })
	p := w.publish(repeat.Spec{PlanID: "p", Station: "report", PlanType: repeat.None, Messages: []any{"x"}, PlanExecTimeout: timeout, Options: model.Options{PingInterval: time.Second}})
	require.Eventually(t, func() bool {
		var task struct {
			States []struct {
				Began   time.Time `bson:"claimed_at"`
				Expires time.Time `bson:"ping_expire_time"`
			} `bson:"worker_states"`
		}
		require.NoError(t, w.db.Collection("tasks").FindOne(ctx, bson.D{{Key: "_id", Value: model.TaskID("", "report", "p@1")}}).Decode(&task))
		return len(task.States) > 0 && task.States[0].Expires.Sub(task.States[0].Began) > 2*timeout
	}, testdb.Patience, 20*time.Millisecond, "pings extend the lease by more than the timeout")
	close(enough)
	require.Eventually(t, func() bool { return w.get(p.ID).Status == repeat.StatusFinish }, testdb.Patience, 20*time.Millisecond)
	require.EqualValues(t, 1, begun.Load())
	require.Equal(t, []string{"1.0 OK long"}, w.results(p.ID))
	cancel()
	running.Wait()
}

func TestAPlanErrorTakesThePlanOutOfTheQueueUntilItIsReset(t *testing.T) {
	w := newWorld(t)
	wrong := true
	w.fails = func(args repeat.Args[string], _ int) error {
		if args.Step == 2 && wrong {
			return consumer.PlanError(errors.New("there is no such region"))
		}
		return nil
	}
	p := w.publish(every("p", 3))
	_, err := w.plans.Reset(t.Context(), p.ID)
	require.ErrorContains(t, err, "it is RUNNING; only a plan that is ERROR can be reset")
	require.Equal(t, 2, w.drain(mstest.SkipTime()).Executions)
	broken := w.get(p.ID)
	require.Equal(t, repeat.StatusError, broken.Status)
	require.Equal(t, stepplan.StatePlanError, broken.LastState)
	require.Equal(t, "there is no such region", broken.Reason)
	require.Equal(t, int64(1), broken.RealRepet)
	wrong = false
	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, 2, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, []string{"1.0 OK report 1", "2.0 PLAN_ERROR there is no such region", "2.1 OK report 2", "3.0 OK report 3"}, w.results(p.ID))
	require.Equal(t, int64(3), w.get(p.ID).RealRepet)
}

func TestAStepThatNoRetryHelpsTakesThePlanOutOfTheQueueUntilItIsReset(t *testing.T) {
	w := newWorld(t)
	w.fails = func(repeat.Args[string], int) error { return consumer.Fatal(errors.New("no such region")) }
	p := w.publish(every("p", 2))
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, repeat.StatusError, w.get(p.ID).Status)
	w.fails = nil
	_, err := w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, 2, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, []string{"1.0 PLAN_ERROR no such region", "1.1 OK report 1", "2.0 OK report 2"}, w.results(p.ID))
}

func TestAPlanErrorThatAWorkerReportsByPullTakesThePlanOutOfTheQueueUntilItIsReset(t *testing.T) {
	w := newWorld(t)
	sender, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	testdb.Closes(t, sender.Close)
	p := w.publish(repeat.Spec{PlanID: "p", Station: "report", PlanType: repeat.Time, PlanTime: time.Now().Add(-time.Hour), NoKeep: true, Messages: []any{"x"}})
	puller := pull.New(sender)
	fetch := func() []pull.Fetched {
		got, err := puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: "python-1", Types: []string{"report"}})
		require.NoError(t, err)
		return got
	}
	got := fetch()
	require.Len(t, got, 1)
	task, err := puller.Fail(t.Context(), got[0].Handle, "there is no such region", producer.Failure{PlanError: true})
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, task.Status)
	w.drain()
	broken := w.get(p.ID)
	require.Equal(t, repeat.StatusError, broken.Status)
	require.Equal(t, stepplan.StatePlanError, broken.LastState)
	require.Equal(t, "there is no such region", broken.Reason)
	require.Empty(t, fetch(), "no step of it is in the queue")

	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, repeat.StatusFinish, w.get(p.ID).Status)
}

func TestADocumentThatSomebodyBrokeIsAPlanError(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 3))
	unset := func(op string, v any) {
		_, err := w.db.Collection("plans").UpdateByID(t.Context(), p.ID, bson.D{{Key: op, Value: bson.D{{Key: "messages", Value: v}}}})
		require.NoError(t, err)
	}
	unset("$unset", "")
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions, "the step that waited had its messages")
	broken := w.get(p.ID)
	require.Equal(t, repeat.StatusError, broken.Status)
	require.Contains(t, broken.Reason, "messages")
	_, err := w.plans.Reset(t.Context(), p.ID)
	require.ErrorContains(t, err, "messages")
	unset("$set", bson.A{"north"})
	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusFinish, w.get(p.ID).Status)
	require.Equal(t, int64(3), w.get(p.ID).RealRepet)
}

// A step that fails is not started again while the document is broken: no engine can make its task.
func TestADocumentThatIsBrokenWhenItsStepFailsIsAPlanError(t *testing.T) {
	w := newWorld(t)
	w.fails = func(repeat.Args[string], int) error { return errors.New("no data") }
	p := w.publish(every("p", 3, unretried))
	_, err := w.db.Collection("plans").UpdateByID(t.Context(), p.ID, bson.D{{Key: "$unset", Value: bson.D{{Key: "messages", Value: ""}}}})
	require.NoError(t, err)
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, repeat.StatusError, w.get(p.ID).Status)
	require.Equal(t, []string{"1.0 ERROR no data"}, w.results(p.ID))
}

// A publisher dies before it sends the first step. Whoever publishes the plan again sends it, and else an
// engine does.
func TestTheFirstStepOfAPublisherThatDiesIsSent(t *testing.T) {
	w := newWorld(t)
	for i, sent := range []func(id string){
		func(id string) { w.publish(every(id, 1)) },
		func(string) { w.plans.Skip(time.Minute) },
	} {
		p := w.publish(every(fmt.Sprint("p", i), 1))
		task := bson.D{{Key: "_id", Value: model.TaskID("", "report", p.PlanID+"@1")}}
		_, err := w.db.Collection("tasks").DeleteOne(t.Context(), task)
		require.NoError(t, err)
		sent(p.PlanID)
		w.drain(mstest.SkipTime())
		require.Equal(t, repeat.StatusFinish, w.get(p.ID).Status)
		require.Len(t, w.ran, i+1)
	}
}

// Somebody holds the delivery of its callback: the plan waits for it with what it plans.
func TestAPlanThatIsOverLeavesWhenAllIsSent(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1))
	over := *p
	over.Status, over.EndedAt, over.Rev = repeat.StatusFinish, time.Now(), p.Rev+1
	over.Planned = []repeat.Planned{{ID: "2.1", Do: "leave", Step: 1}}
	_, err := w.db.Collection("plans").UpdateByID(t.Context(), p.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: over.Status}, {Key: "ended_at", Value: over.EndedAt}}}})
	require.NoError(t, err)
	_, err = w.plans.Finish(t.Context(), []*repeat.Plan{&over}, map[string]error{p.ID: errors.New("held")})
	require.NoError(t, err)
	require.EqualValues(t, 0, w.count("plan_history", bson.D{}))
	require.NotEmpty(t, over.Planned)
	require.NotEmpty(t, w.get(p.ID).Planned)
	_, err = w.plans.Finish(t.Context(), []*repeat.Plan{&over}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.count("plan_history", bson.D{}))
	require.Empty(t, w.get(p.ID).Planned)
}

// The next try begins a new life of the step's task, which somebody's open transaction may hold.
func TestATaskThatIsHeldKeepsBackOnlyTheNextTryOfItsOwnPlan(t *testing.T) {
	w := newWorld(t)
	var plans []*repeat.Plan
	for _, id := range []string{"held", "free"} {
		p := w.publish(every(id, 1))
		p.Try++
		p.Planned = []repeat.Planned{{ID: "1.2", Do: "again", Step: 1, Try: p.Try}}
		plans = append(plans, p)
	}
	tasks := w.db.Collection("tasks")
	failed := bson.D{{Key: "status", Value: model.StatusFailure}, {Key: "finished_at", Value: time.Now()}}
	_, err := tasks.UpdateMany(t.Context(), bson.D{{Key: "type", Value: "report"}}, bson.D{{Key: "$set", Value: failed}})
	require.NoError(t, err)
	session := w.transaction()
	_, err = tasks.UpdateOne(mongo.NewSessionContext(t.Context(), session), bson.D{{Key: "origin.id", Value: plans[0].ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)

	began := func() (ids []string) {
		require.NoError(t, tasks.Distinct(t.Context(), "origin.id", bson.D{{Key: "type", Value: "report"}, {Key: "origin.generation", Value: plans[0].Try}}).Decode(&ids))
		return ids
	}
	held, err := w.plans.Finish(t.Context(), plans, nil)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.ErrorIs(t, held[plans[0].ID], store.ErrHeld)
	require.Equal(t, []string{plans[1].ID}, began())
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Eventually(t, func() bool {
		held, err = w.plans.Finish(t.Context(), plans, nil)
		return err == nil && len(held) == 0
	}, testdb.Patience, 10*time.Millisecond)
	require.Len(t, began(), 2)
}

// What is planned of a broken document cannot be carried out, and does not wait for ever.
func TestAPlanThatBreaksBeforeItsNextTryIsERRORUntilItIsMended(t *testing.T) {
	w := newWorld(t)
	w.served()
	p := w.publish(every("p", 2))
	set := func(update bson.D) {
		_, err := w.db.Collection("plans").UpdateByID(t.Context(), p.ID, update)
		require.NoError(t, err)
	}
	set(bson.D{
		{Key: "$unset", Value: bson.D{{Key: "messages", Value: ""}}},
		{Key: "$inc", Value: bson.D{{Key: "try", Value: 1}}},
		{Key: "$set", Value: bson.D{{Key: "planned", Value: bson.A{bson.D{{Key: "id", Value: "1.2"}, {Key: "do", Value: "again"}, {Key: "step", Value: 1}, {Key: "try", Value: 1}}}}, {Key: "planned_at", Value: p.CreatedAt}}},
	})
	w.drain()
	require.Equal(t, repeat.StatusRunning, w.get(p.ID).Status)
	require.Len(t, w.get(p.ID).Planned, 1, "it waits")
	w.sweep(10 * time.Minute)
	broken := w.get(p.ID)
	require.Equal(t, repeat.StatusError, broken.Status)
	require.Contains(t, broken.Reason, "messages")
	w.drain()
	require.Empty(t, w.get(p.ID).Planned, "nothing of it is to be done")
	_, err := w.plans.Reset(t.Context(), p.ID)
	require.ErrorAs(t, err, new(*model.RefusedError))
	set(bson.D{{Key: "$set", Value: bson.D{{Key: "messages", Value: bson.A{"north"}}}}})
	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusFinish, w.get(p.ID).Status)
}

// Whoever reads on behind the last result gets all of them, however large they are.
func TestResultsAreReadAFewMegabytesAtATime(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1))
	const n, each, page = 20, 600 << 10, 8 << 20
	large := strings.Repeat("x", each)
	var docs []any
	for i := range n {
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%02d", p.ID, i)}, {Key: "plan", Value: p.ID}, {Key: "step", Value: int64(i)}, {Key: "at", Value: bson.DateTime(0)}, {Key: "result", Value: large}})
	}
	_, err := w.db.Collection("plan_results").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	var all []repeat.Result
	for after := (*repeat.Result)(nil); ; after = &all[len(all)-1] {
		some, err := w.plans.Results(t.Context(), p.ID, after, 100)
		require.NoError(t, err)
		require.LessOrEqual(t, len(some)*each, page+each)
		if len(some) == 0 {
			break
		}
		all = append(all, some...)
	}
	require.Len(t, all, n)
	for i, r := range all {
		require.EqualValues(t, i, r.Step)
	}
}

// The seed's participants: with concurrent_worker_count n each of n workers has a result.
func TestEachParticipantOfAStepHasAResult(t *testing.T) {
	w := newWorld(t)
	p := w.publish(every("p", 1, func(s *repeat.Spec) { s.Options.ConcurrentWorkerCount = 2 }))
	w.c = w.worker("first")
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusRunning, w.get(p.ID).Status)
	w.c = w.worker("second")
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusFinish, w.get(p.ID).Status)
	all, err := w.plans.Results(t.Context(), p.ID, nil, 10)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.ElementsMatch(t, []string{"first", "second"}, []string{all[0].Worker, all[1].Worker})
	require.Equal(t, []string{"1.0 OK report 1", "1.0 OK report 1"}, w.results(p.ID))
}

func TestAWorkerThatRunsTheTasksOfSomeCreatorsRunsTheStepsOfTheirPlans(t *testing.T) {
	w := newWorld(t)
	var err error
	w.c, err = consumer.New(consumer.Config{Database: w.db, Creators: []string{"ann"}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(w.c, model.NewType[repeat.Args[string], string]("report"), w.report))
	for _, caller := range []string{"ann", "bob", ""} {
		w.publish(every("of-"+caller, 1, func(s *repeat.Spec) { s.Caller = caller }))
	}
	require.Equal(t, 1, w.drain(mstest.SkipTime()).Executions)
	require.Equal(t, "ann", w.ran[0].Caller)
}
