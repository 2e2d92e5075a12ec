package plan_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// counted is an engine whose commands are counted, by command and collection, and whose time the test moves.
type counted struct {
	*world
	p        *plan.Plans // of the engine
	e        *decision.Engine
	clock    *testdb.Clock
	commands map[string]int
	answered int            // bytes of the answers
	largest  map[string]int // bytes of the largest answer, by command
}

func newCounted(t *testing.T) *counted {
	still := testdb.NewClock()
	c := &counted{clock: still, commands: map[string]int{}, largest: map[string]int{}, world: newWorld(t, func(cfg *plan.Config) { cfg.Clock = still })}
	var err error
	c.c, err = consumer.New(consumer.Config{Database: c.db, Clock: still})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c.c, model.NewType[repeat.Args[string], string]("report"), c.report))
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
			c.commands[e.CommandName+" "+coll]++
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.answered += len(e.Reply)
			c.largest[e.CommandName] = max(c.largest[e.CommandName], len(e.Reply))
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c.p, err = plan.New(plan.Config{Database: client.Database(c.db.Name()), Clock: still})
	require.NoError(t, err)
	c.e = c.p.Engine()
	require.NoError(t, c.e.Start(t.Context()))
	c.round(0) // the first one reads the types, too
	return c
}

// round lets the engine work once, at a later time, and returns its commands but for its heartbeat.
func (c *counted) round(later time.Duration) (pause time.Duration, commands map[string]int) {
	c.clock.Move(later)
	clear(c.commands)
	clear(c.largest)
	c.answered = 0
	pause = c.e.Round(c.t.Context())
	delete(c.commands, "find workers")
	delete(c.commands, "findAndModify workers")
	return pause, maps.Clone(c.commands)
}

// work has the worker run what is due. It has read the database's time later than the engine, which goes by the
// worker's from then on.
func (c *counted) work() {
	c.t.Helper()
	require.Equal(c.t, 1, mstest.Drain(c.t, c.c).Succeeded)
	var last struct {
		At time.Time `bson:"finished_at"`
	}
	err := c.db.Collection("tasks").FindOne(c.t.Context(), bson.D{}, options.FindOne().SetSort(bson.D{{Key: "finished_at", Value: -1}})).Decode(&last)
	require.NoError(c.t, err)
	c.p.Skip(max(last.At.Sub(c.p.Now()), 0))
}

// rest publishes n plans that are due in days: some have one step, the engine waits for the ends of others.
func (c *counted) rest(n int) {
	c.t.Helper()
	specs := make([]repeat.Spec, n)
	for i := range specs {
		specs[i] = repeat.Spec{PlanID: fmt.Sprintf("rest-%d-%d", n, i), Station: "rest", PlanType: repeat.Time, PlanTime: time.Now().AddDate(0, 0, 3), Messages: []any{"north"}}
		if i%2 == 0 {
			specs[i].PlanType, specs[i].PlanValue, specs[i].PlanRepet = repeat.Day, 1, -1
		}
	}
	_, err := c.plans.PublishMany(c.t.Context(), specs)
	require.NoError(c.t, err)
}

// A look asks whether anything is due, not for each plan: many that rest cost no more than few.
func TestAnIdleEngineSendsOneCommandEveryFiveSecondsHoweverManyPlansRest(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	var answers []int
	for _, n := range []int{2, 500} {
		c.rest(n)
		for range 4 {
			pause, commands := c.round(5 * time.Second)
			require.Equal(t, map[string]int{"aggregate control": 1}, commands)
			require.Equal(t, 5*time.Second, pause)
		}
		answers = append(answers, c.answered)
	}
	require.Equal(t, answers[0], answers[1], "the bytes that a look reads")
}

// What follows the end of a step is its result, which is read apart since it may be large, a decision and the next task. After the last one the plan goes
// to the history. Plans that rest beside it change nothing.
func TestAStepCostsItsEngineSixCommandsHoweverManyPlansRest(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 500} {
		require.Equal(t, []map[string]int{
			{"aggregate control": 1, "find tasks": 1, "insert plan_results": 1, "find plans": 1, "update plans": 1, "insert tasks": 1},
			{"aggregate control": 1, "find tasks": 1, "insert plan_results": 1, "update plans": 1, "insert tasks": 1}, // the engine remembers the plan
			{"aggregate control": 1, "find tasks": 1, "insert plan_results": 1, "update plans": 2, "insert plan_history": 1},
			{"aggregate control": 1, "update tasks": 1}, // the three ends leave their outboxes together
		}, stepsBeside(t, n), "beside %d plans", n)
	}
}

// stepsBeside are the commands of an engine after each of the three steps of a plan, beside n plans that rest, and
// those five seconds later.
func stepsBeside(t *testing.T, n int) (steps []map[string]int) {
	t.Helper()
	c := newCounted(t)
	c.rest(n)
	p := c.publish(every("due", 3, func(s *repeat.Spec) { s.PlanValue = 0 }))
	for step := range 3 {
		require.EqualValues(t, step+1, c.get(p.ID).Step)
		c.work()
		_, commands := c.round(100 * time.Millisecond)
		steps = append(steps, commands)
	}
	require.Equal(t, repeat.StatusFinish, c.get(p.ID).Status)
	_, commands := c.round(5 * time.Second)
	return append(steps, commands)
}

// After an outage of the engines many steps have ended. A look finds all of them. Their results are read in pages, and
// again by no look until their ends leave their outboxes.
func TestABacklogOfLargeResultsIsReadInPages(t *testing.T) {
	c := newCounted(t)
	const plans, each, page = 25, 600 << 10, 8 << 20
	specs := make([]repeat.Spec, plans)
	for i := range specs {
		specs[i] = repeat.Spec{PlanID: fmt.Sprint("p", i), Station: "report", PlanType: repeat.None, Messages: []any{"north"}}
	}
	_, err := c.plans.PublishMany(t.Context(), specs)
	require.NoError(t, err)
	require.Equal(t, plans, mstest.Drain(t, c.c).Succeeded)
	large := strings.Repeat("x", each)
	_, err = c.db.Collection("tasks").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "result", Value: large}}}})
	require.NoError(t, err)
	_, commands := c.round(time.Minute)
	require.Less(t, c.largest["aggregate"], each, "a look reads no results")
	require.LessOrEqual(t, c.largest["find"], page+each)
	require.Less(t, c.answered, plans*each+page, "each is read once")
	require.GreaterOrEqual(t, commands["find tasks"], plans*each/page)
	for i := range plans {
		require.Equal(t, repeat.StatusFinish, c.get(fmt.Sprint("-/p", i)).Status)
	}
	cur, err := c.db.Collection("plan_results").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var results []repeat.Result
	require.NoError(t, cur.All(t.Context(), &results))
	require.Len(t, results, plans)
	for _, r := range results {
		text, _ := r.Result.StringValueOK()
		require.Len(t, text, each)
	}
	c.round(100 * time.Millisecond)
	require.Less(t, c.answered, each)
}

// A sweep looks at many steps: those that nobody serves, and those whose ends are lost.
func TestASweepReadsOneLargeTaskAtATime(t *testing.T) {
	c := newCounted(t)
	const plans, each = 12, 300 << 10
	specs := make([]repeat.Spec, plans)
	for i := range specs {
		specs[i] = repeat.Spec{PlanID: fmt.Sprint("p", i), Station: "report", PlanType: repeat.None, Messages: []any{"north"}}
	}
	sweep := func(changes bson.D) {
		t.Helper()
		_, err := c.db.Collection("tasks").UpdateMany(t.Context(), bson.D{}, changes)
		require.NoError(t, err)
		clear(c.largest)
		c.p.Skip(6 * time.Minute)
		require.NoError(t, c.p.Sweep(t.Context()))
		require.Less(t, c.largest["find"], 3*each, "a task with its checkpoint and its result")
	}
	large := strings.Repeat("x", each)
	_, err := c.plans.PublishMany(t.Context(), specs)
	require.NoError(t, err)
	sweep(bson.D{{Key: "$set", Value: bson.D{{Key: "checkpoint", Value: large}}}})
	require.Equal(t, stepplan.StateNoWorker, c.get("-/p0").LastState)
	require.Equal(t, plans, mstest.Drain(t, c.c).Succeeded)
	sweep(bson.D{{Key: "$set", Value: bson.D{{Key: "result", Value: large}}}, {Key: "$unset", Value: bson.D{{Key: "outbox", Value: ""}, {Key: "outbox_at", Value: ""}}}})
	for i := range plans {
		id := fmt.Sprint("-/p", i)
		require.Equal(t, repeat.StatusFinish, c.get(id).Status)
		results, err := c.plans.Results(t.Context(), id, nil, 10)
		require.NoError(t, err)
		require.Len(t, results, 2, "that nobody served it, and that it succeeded")
		require.True(t, slices.ContainsFunc(results, func(r repeat.Result) bool {
			text, _ := r.Result.StringValueOK()
			return r.State == stepplan.StateOK && len(text) == each
		}))
	}
}
