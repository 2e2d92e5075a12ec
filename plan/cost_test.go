package plan_test

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// ahead is a clock that is ahead.
type ahead struct {
	clock.Clock
	by *atomic.Int64
}

func (a ahead) Now() time.Time           { return a.Clock.Now().Add(time.Duration(a.by.Load())) }
func (a ahead) Monotonic() time.Duration { return a.Clock.Monotonic() + time.Duration(a.by.Load()) }

// counted is an engine whose commands are counted, by command and collection, and whose time the test moves.
type counted struct {
	*world
	e        *decision.Engine
	off      *atomic.Int64
	commands map[string]int
	answered int // bytes of the answers
}

func newCounted(t *testing.T) *counted {
	off := &atomic.Int64{}
	shifted := ahead{clock.System(), off}
	c := &counted{off: off, commands: map[string]int{}, world: newWorld(t, func(cfg *plan.Config) { cfg.Clock = shifted })}
	var err error
	c.c, err = consumer.New(consumer.Config{Database: c.db, Clock: shifted})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c.c, model.NewType[repeat.Args[string], string]("report"), c.report))
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
			c.commands[e.CommandName+" "+coll]++
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { c.answered += len(e.Reply) },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	p, err := plan.New(plan.Config{Database: client.Database(c.db.Name()), Clock: shifted})
	require.NoError(t, err)
	c.e = p.Engine()
	require.NoError(t, c.e.Start(t.Context()))
	c.round(0) // the first one reads the types, too
	return c
}

// round lets the engine work once, at a later time, and returns its commands but for its heartbeat.
func (c *counted) round(later time.Duration) (pause time.Duration, commands map[string]int) {
	c.off.Add(int64(later))
	clear(c.commands)
	c.answered = 0
	pause = c.e.Round(c.t.Context())
	delete(c.commands, "find workers")
	delete(c.commands, "findAndModify workers")
	return pause, maps.Clone(c.commands)
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
		var longest time.Duration // some may be shorter on a busy machine
		for range 4 {
			pause, commands := c.round(5 * time.Second)
			require.Equal(t, map[string]int{"aggregate control": 1}, commands)
			longest = max(longest, pause)
		}
		require.Greater(t, longest, 4*time.Second)
		require.LessOrEqual(t, longest, 5*time.Second)
		answers = append(answers, c.answered)
	}
	require.Equal(t, answers[0], answers[1], "the bytes that a look reads")
}

// What follows the end of a step is a result, a decision and the next task. After the last one the plan goes
// to the history. Plans that rest beside it change nothing.
func TestAStepCostsItsEngineFiveCommandsHoweverManyPlansRest(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 500} {
		steps, took := stepsBeside(t, n)
		for took >= 2*time.Second { // on a busy machine, what waits for three seconds is removed in between
			steps, took = stepsBeside(t, n)
		}
		require.Equal(t, []map[string]int{
			{"aggregate control": 1, "insert plan_results": 1, "find plans": 1, "update plans": 1, "insert tasks": 1},
			{"aggregate control": 1, "insert plan_results": 1, "update plans": 1, "insert tasks": 1}, // the engine remembers the plan
			{"aggregate control": 1, "insert plan_results": 1, "update plans": 2, "insert plan_history": 1},
			{"aggregate control": 1, "update tasks": 1}, // the three ends leave their outboxes together
		}, steps, "beside %d plans", n)
	}
}

// stepsBeside are the commands of an engine after each of the three steps of a plan, beside n plans that rest, and
// those five seconds later. took is how long the steps took.
func stepsBeside(t *testing.T, n int) (steps []map[string]int, took time.Duration) {
	t.Helper()
	c := newCounted(t)
	c.rest(n)
	p := c.publish(every("due", 3, func(s *repeat.Spec) { s.PlanValue = 0 }))
	began := time.Now()
	for step := range 3 {
		require.EqualValues(t, step+1, c.get(p.ID).Step)
		require.Equal(t, 1, mstest.Drain(t, c.c).Succeeded)
		_, commands := c.round(100 * time.Millisecond)
		steps = append(steps, commands)
	}
	took = time.Since(began)
	require.Equal(t, repeat.StatusFinish, c.get(p.ID).Status)
	_, commands := c.round(5 * time.Second)
	return append(steps, commands), took
}
