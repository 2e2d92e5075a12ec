package flow

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// driven is an engine that works only when the test tells it to. No worker runs: the test ends the
// tasks.
type driven struct {
	t    *testing.T
	db   *mongo.Database
	f    *Flows
	e    *decision.Engine
	prod *producer.Producer
}

// newDriven has an engine whose commands do not run out of their time, however slow the machine is.
func newDriven(t *testing.T) *driven {
	db := testdb.New(t)
	return drive(t, db, testdb.Patient(t).Client().Database(db.Name()), clock.System())
}

// drive has its engine reach the database in a way of its own.
func drive(t *testing.T, db, engine *mongo.Database, c clock.Clock) *driven {
	d := &driven{t: t, db: db}
	var err error
	d.f, err = New(Config{Database: engine, Clock: c})
	require.NoError(t, err)
	d.prod, err = producer.New(producer.Config{Database: db, Clock: c})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.prod.Close(context.Background())) })
	d.e = decision.NewEngine(d.f.id, flowplan.EngineType, d.f.decider)
	require.NoError(t, d.e.Start(t.Context()))
	return d
}

// chain is a before b before c: each goes on whatever becomes of the one before.
func chain(key string) graph.Spec {
	n := func(id string, after ...string) graph.NodeSpec {
		spec := graph.NodeSpec{ID: id, Type: "t", After: after, OnFailure: graph.Continue}
		if len(after) > 0 {
			spec.Join.Strategy = graph.AllEnded
		}
		return spec
	}
	return graph.Spec{Key: key, Nodes: []graph.NodeSpec{n("a"), n("b", "a"), n("c", "b")}}
}

func (d *driven) start(key string) *graph.Flow {
	d.t.Helper()
	doc, err := d.f.Start(d.t.Context(), chain(key))
	require.NoError(d.t, err)
	return doc
}

func (d *driven) task(doc *graph.Flow, i int) *model.Task {
	d.t.Helper()
	task, err := d.prod.Get(d.t.Context(), taskID(doc, i))
	require.NoError(d.t, err)
	return task
}

// cancels ends the tasks of nodes, one after the other, and lets the engine work after each.
func (d *driven) cancels(doc *graph.Flow, nodes ...int) *graph.Flow {
	d.t.Helper()
	for _, i := range nodes {
		_, err := d.prod.Cancel(d.t.Context(), taskID(doc, i), "over")
		require.NoError(d.t, err)
		d.told(doc, i)
	}
	now, err := d.f.Get(d.t.Context(), doc.ID)
	require.NoError(d.t, err)
	return now
}

// told lets the engine work until it has been told of the end of a node's task.
func (d *driven) told(doc *graph.Flow, i int) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		d.e.Round(d.t.Context())
		d.e.Flush(d.t.Context())
		return len(d.task(doc, i).Outbox) == 0
	}, testdb.Patience, time.Millisecond)
}

func (d *driven) retry(doc *graph.Flow, node string) *graph.Flow {
	d.t.Helper()
	after, err := d.f.RetryFrom(d.t.Context(), doc.ID, node)
	require.NoError(d.t, err)
	return after
}

func (d *driven) finish(docs ...*graph.Flow) map[string]error {
	d.t.Helper()
	held, err := planner{d.f}.Finish(d.t.Context(), docs, nil)
	require.NoError(d.t, err)
	return held
}

// A process that died after it had carried out a decision has told nobody. The next one does so
// again.
func TestANewLifeThatWaitsGoesOnWaitingWhenItIsBegunTwice(t *testing.T) {
	d := newDriven(t)
	doc := d.start("f")
	require.Equal(t, graph.StatusFinish, d.cancels(doc, 0, 1, 2).Status)
	again := d.retry(doc, "a")
	for range 2 {
		require.Equal(t, []model.Status{model.StatusNew, model.StatusWait, model.StatusWait},
			[]model.Status{d.task(doc, 0).Status, d.task(doc, 1).Status, d.task(doc, 2).Status})
		before := d.task(doc, 0).Generation
		d.finish(again)
		require.Equal(t, before, d.task(doc, 0).Generation)
	}
}

// The decision is of an engine that stood still, while the life that it was to begin ran, ended and
// moved to the history.
func TestANewLifeThatIsInTheHistoryIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc := d.start("f")
	d.cancels(doc, 0, 1, 2)
	late := d.retry(doc, "c")
	d.cancels(doc, 2)
	d.retry(doc, "c")
	_, err := d.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: taskID(doc, 2)}})
	require.NoError(t, err)
	d.finish(late)
	n, err := d.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: taskID(doc, 2)}})
	require.NoError(t, err)
	require.Zero(t, n)
}

// Its end was told when the node could not use it.
func TestATaskThatEndedWhileItsNodeWaitedEndsTheNodeWhenThatIsReady(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc := d.start("f")
	now := d.cancels(doc, 1)
	require.Equal(t, graph.NodeWait, now.States[1].Status)
	now = d.cancels(doc, 0)
	require.Equal(t, graph.NodeReady, now.States[1].Status)
	d.told(doc, 1)
	now = d.get(doc)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeError, graph.NodeReady},
		[]graph.NodeStatus{now.States[0].Status, now.States[1].Status, now.States[2].Status})
}

func TestATaskThatCannotBeReadHoldsUpItsOwnFlowAlone(t *testing.T) {
	t.Parallel()
	db := testdb.Patient(t) // on a slow machine the good one would seem to be held
	d := drive(t, db, db, clock.System())
	bad, good := d.start("bad"), d.start("good")
	d.cancels(bad, 0, 1, 2)
	d.cancels(good, 0, 1, 2)
	badAgain, err := flowplan.RetryFrom(d.get(bad), 0, &flowplan.Inputs{}, time.Now())
	require.NoError(t, err)
	goodAgain, err := flowplan.RetryFrom(d.get(good), 0, &flowplan.Inputs{}, time.Now())
	require.NoError(t, err)
	_, err = d.db.Collection("tasks").UpdateByID(t.Context(), taskID(bad, 0), bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: 7}}}})
	require.NoError(t, err)
	held := d.finish(badAgain, goodAgain)
	require.Len(t, held, 1)
	require.Error(t, held[bad.ID])
	require.Equal(t, model.StatusNew, d.task(good, 0).Status)
}

// The new life of a task cannot begin while somebody's open transaction holds the old one.
func TestATaskThatIsHeldHoldsUpItsOwnFlowAlone(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	d := drive(t, db, db, clock.System()) // a transaction holds a task
	var again []*graph.Flow
	for _, key := range []string{"held", "free"} {
		doc := d.start(key)
		d.cancels(doc, 0, 1, 2)
		after, err := flowplan.RetryFrom(d.get(doc), 0, &flowplan.Inputs{}, time.Now())
		require.NoError(t, err)
		again = append(again, after)
	}
	session, err := d.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = d.db.Collection("tasks").UpdateByID(mongo.NewSessionContext(t.Context(), session), taskID(again[0], 0), bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // on a slow machine the free one may seem to be held, too
		held := d.finish(again...)
		require.ErrorIs(t, held[again[0].ID], store.ErrHeld)
		return held[again[1].ID] == nil
	}, testdb.Patience, time.Millisecond)
	require.Equal(t, []model.Status{model.StatusCancelled, model.StatusNew}, []model.Status{d.task(again[0], 0).Status, d.task(again[1], 0).Status})
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Eventually(t, func() bool { return len(d.finish(again...)) == 0 }, testdb.Patience, 10*time.Millisecond)
	require.Equal(t, model.StatusNew, d.task(again[0], 0).Status)
}

// asks is a chain whose b waits for a person.
func (d *driven) asks() *graph.Flow {
	d.t.Helper()
	s := chain("f")
	s.Nodes[1].OnFailure = graph.Suspend
	doc, err := d.f.Start(d.t.Context(), s)
	require.NoError(d.t, err)
	require.Equal(d.t, graph.NodePending, d.cancels(doc, 0, 1).States[1].Status)
	return doc
}

// A person has the task of b run again, and then all from a on.
func TestANewLifeIsNotTheOneThatAPersonHasBegun(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc := d.asks()
	retried, err := d.prod.Retry(t.Context(), taskID(doc, 1), "")
	require.NoError(t, err)
	require.Equal(t, model.StatusNew, retried.Status)
	d.retry(doc, "a")
	b := d.task(doc, 1)
	require.Equal(t, model.StatusWait, b.Status, "a is before it")
	require.Equal(t, int64(1), b.Origin.Generation)
	require.Greater(t, b.Generation, retried.Generation)
	require.Equal(t, model.StatusNew, d.task(doc, 0).Status)
}

func TestANewLifeBeginsWhenTheOneThatAPersonHasBegunHasEnded(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	doc := d.asks()
	_, err := d.prod.Retry(t.Context(), taskID(doc, 1), "")
	require.NoError(t, err)
	runs, stopped, gate := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c, err := consumer.New(consumer.Config{Database: d.db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, model.NewType[any, any]("t"), func(ctx context.Context, task *consumer.Task[any]) (any, error) {
		if task.TaskID == taskID(doc, 1) {
			close(runs)
			<-ctx.Done()
			close(stopped)
			<-gate
		}
		return nil, ctx.Err()
	}))
	ctx, stop := context.WithCancel(context.Background())
	done, end := make(chan error, 1), sync.OnceFunc(func() { close(gate) })
	go func() { done <- c.Run(ctx) }()
	defer func() {
		stop()
		end()
		require.NoError(t, <-done)
	}()
	<-runs
	_, err = d.f.RetryFrom(t.Context(), doc.ID, "a")
	var refused *model.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "node b: a worker runs its task; cancel the task or wait", refused.Reason)

	// It began to run after somebody had looked.
	before := d.get(doc)
	after, err := flowplan.RetryFrom(before, 0, &flowplan.Inputs{}, d.f.store.Clock.Now())
	require.NoError(t, err)
	d.write(before, after)
	require.ErrorIs(t, d.finish(after)[doc.ID], runsError{})
	<-stopped
	b := d.task(doc, 1)
	require.Equal(t, model.StatusExecuting, b.Status)
	require.Zero(t, b.Origin.Generation)
	end()
	require.Eventually(t, func() bool { return d.task(doc, 1).Status == model.StatusCancelled }, testdb.Patience, time.Millisecond)
	require.Empty(t, d.finish(after))
	b = d.task(doc, 1)
	require.Equal(t, model.StatusWait, b.Status)
	require.Equal(t, int64(1), b.Origin.Generation)
}

func (d *driven) get(doc *graph.Flow) *graph.Flow {
	d.t.Helper()
	now, err := d.f.Get(d.t.Context(), doc.ID)
	require.NoError(d.t, err)
	return now
}

// An engine remembers what it has decided. A task that could not be sent is sent with what is decided
// next.
func TestAFlowThatIsRememberedKeepsTheTasksThatItPlans(t *testing.T) {
	d := newDriven(t)
	doc := d.start("f")
	doc.Planned = []graph.Planned{{ID: "elements", Task: d.task(doc, 0)}}
	require.Empty(t, d.finish(doc))
	require.Len(t, planner{d.f}.Tasks(doc), 1)
}

// Arguments may be large, and one output may be in those of many nodes.
func TestAFlowThatIsRememberedKeepsNoArguments(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	node := func(id string, v graph.NodeSpec) graph.NodeSpec {
		v.ID, v.Type, v.After, v.OnFailure = id, "t", []string{"a"}, graph.Continue
		return v
	}
	doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{
		{ID: "a", Type: "t"}, node("b", graph.NodeSpec{Args: Output("a")}), node("c", graph.NodeSpec{Args: Item(""), Each: &graph.Each{Items: []int{1, 2}}}),
		{ID: "z", Type: "t", After: []string{"b", "c"}, Join: graph.Join{Strategy: graph.AllEnded}},
	}})
	require.NoError(t, err)
	d.succeeds(taskID(doc, 0), "large")
	before := d.get(doc)
	answers, err := planner{d.f}.Decide(t.Context(), []decision.Case[*graph.Flow]{{Doc: before, Ends: []store.OutboxLife{{Task: d.task(doc, 0)}}}}, d.f.store.Clock.Now())
	require.NoError(t, err)
	after := answers[0].After
	filledOnes := func() (n int) {
		for k := range after.Planned {
			if filled(&after.Planned[k]) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 2, filledOnes())
	d.write(before, after)
	require.Empty(t, d.finish(after))
	require.Zero(t, filledOnes())
	require.Equal(t, "large", d.task(doc, 1).Args.StringValue())
	require.Empty(t, d.finish(after), "once more")
}

// An ask node or a wait node has no task, so a retry restarts none.
func TestTheRecordsOfAFlowThatGoesOnFromANodeWithoutATaskAreKept(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]graph.NodeSpec{"ask": {Ask: &graph.Ask{Title: "Go on?"}}, "wait": {Wait: &graph.Wait{For: time.Hour}}} {
		d := newDriven(t)
		last.ID, last.After = "last", []string{"a"}
		doc, err := d.f.Start(t.Context(), graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}, last}})
		require.NoError(t, err)
		d.succeeds(taskID(doc, 0), 1)
		d.told(doc, 0)
		kept := func() int64 {
			n, err := d.db.Collection("flow_nodes").CountDocuments(t.Context(), bson.D{{Key: "flow_id", Value: doc.ID}, {Key: "delete_at", Value: bson.D{{Key: "$exists", Value: false}}}})
			require.NoError(t, err)
			return n
		}
		if name == "ask" {
			_, err = d.f.Answer(t.Context(), doc.ID, "last", map[string]any{}, "")
		} else {
			_, err = d.f.Cancel(t.Context(), doc.ID, "")
		}
		require.NoError(t, err)
		require.Equal(t, graph.StatusFinish, d.get(doc).Status)
		require.Zero(t, kept(), name)
		require.NotEqual(t, graph.StatusFinish, d.retry(doc, "last").Status)
		require.EqualValues(t, 2, kept(), name)
	}
}
