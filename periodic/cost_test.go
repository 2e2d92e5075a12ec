package periodic

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// counted is an engine whose commands are counted, and whose time the test moves.
type counted struct {
	*driven
	db       *mongo.Database
	clock    *testdb.Clock
	commands map[string]int // by command and collection
	answered int            // bytes of the answers
	finds    map[int64]bool // commands that read tasks
	read     int            // bytes of their answers
}

func newCounted(t *testing.T) *counted {
	db := testdb.New(t)
	c := &counted{driven: &driven{t: t}, db: db, clock: testdb.NewClock(), commands: map[string]int{}, finds: map[int64]bool{}}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(t).URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
			c.commands[e.CommandName+" "+coll]++
			c.finds[e.RequestID] = e.CommandName == "find" && (coll == "tasks" || coll == "task_history")
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.answered += len(e.Reply)
			if c.finds[e.RequestID] {
				c.read += len(e.Reply)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c.p, err = New(Config{Database: client.Database(db.Name()), Clock: c.clock})
	require.NoError(t, err)
	c.prod, err = producer.New(producer.Config{Database: db, Clock: c.clock})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.prod.Close(context.Background())) })
	c.e = c.p.engine()
	require.NoError(t, c.e.Start(t.Context()))
	sent, err := c.prod.SendJSON(t.Context(), "other", nil)
	require.NoError(t, err)
	task, err := c.prod.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	c.p.store.Clock.Skip(task.CreatedAt.Sub(c.p.store.Clock.Now())) // the producer has read the database's time later
	return c
}

// round lets the engine work once, at a later time, and returns its commands.
func (c *counted) round(later time.Duration) (pause time.Duration, commands map[string]int) {
	c.clock.Move(later)
	clear(c.commands)
	c.answered = 0
	pause = c.e.Round(c.t.Context())
	return pause, maps.Clone(c.commands)
}

// One look asks all there is to ask. An engine whose rules fire in a year looks twelve times a
// minute.
func TestAnIdleEngineSendsOneCommandEveryFiveSeconds(t *testing.T) {
	c := newCounted(t)
	_, err := c.p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "@yearly", Type: "tick"})
	require.NoError(t, err)
	r, err := c.p.Named(t.Context(), "", "a")
	require.NoError(t, err)
	_, err = c.p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	c.round(0) // the first one reads the types, too
	for range 4 {
		pause, commands := c.round(5 * time.Second)
		require.Equal(t, map[string]int{"aggregate control": 1}, commands)
		require.Greater(t, pause, 4*time.Second)
		require.LessOrEqual(t, pause, 5*time.Second)
	}
}

// The end of the last run and the next tick are one decision. What the last tick planned leaves
// the rule with it, and the ends leave their outboxes every few ticks.
func TestATickCostsFourCommandsAndItsEndHardlyAnother(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	r, err := c.p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick"})
	require.NoError(t, err)
	_, err = c.p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	const ticks = 12
	removals := 0
	for n := range ticks {
		r, err := c.p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		if n > 1 {
			require.Len(t, r.Planned, 2, "an end and a tick, and nothing of earlier decisions")
		}
		_, got := c.round(max(r.NextFireAt.Sub(c.p.store.Clock.Now())+time.Millisecond, 0))
		removals += got["update tasks"]
		delete(got, "update tasks")
		delete(got, "update series") // once a minute
		if n > 0 {                   // the first one reads the types, too
			require.Equal(t, map[string]int{"aggregate control": 1, "update periodic_rules": 1, "insert tasks": 1, "update periodic_runs": 1}, got, "tick %d", n)
		}
		r, err = c.p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		require.Len(t, r.Active, 1, "the run before has ended")
		_, err = c.prod.Cancel(t.Context(), model.TaskID("", "tick", r.Active[0].ID), "over")
		require.NoError(t, err)
	}
	require.Positive(t, removals)
	require.LessOrEqual(t, removals, ticks/2)
	c.e.Flush(t.Context())
	r, err = c.p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Empty(t, r.Planned)
	require.Zero(t, r.PlannedAt)
}

// How late ticks were is counted by the minute, for all rules together.
func TestTheLatenessOfTicksCostsACommandAMinute(t *testing.T) {
	c := newCounted(t)
	r, err := c.p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * *", Type: "tick"})
	require.NoError(t, err)
	_, err = c.p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	const ticks = 5
	recorded := 0
	for range ticks {
		r, err := c.p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		_, got := c.round(r.NextFireAt.Sub(c.p.store.Clock.Now()) + 20*time.Second)
		require.LessOrEqual(t, got["update series"], 1)
		recorded += got["update series"]
	}
	require.Equal(t, ticks-1, recorded, "each but the first begins another minute")
	fine, now := measure.Resolutions[0], c.p.store.Clock.Now()
	slots, err := c.p.store.Series.Of(t.Context(), fine, "", now.Add(-time.Hour), now.Add(time.Hour)) // the heartbeat has read the time again
	require.NoError(t, err)
	late := int64(0)
	for _, s := range slots {
		late += s.Late[lifecycle.OutcomePeriodic].Over(10 * time.Second)
	}
	require.EqualValues(t, ticks, late)
}

// A rule needs no results. After an outage of the engines many runs have ended, and some are in the history.
func TestTheEndsOfRunsAreReadWithoutTheirResults(t *testing.T) {
	for name, moved := range map[string]int{"tasks": 0, "history": 3} {
		t.Run(name, func(t *testing.T) { endsWithoutResults(t, moved) })
	}
}

func endsWithoutResults(t *testing.T, moved int) {
	c := newCounted(t)
	r, err := c.p.Create(t.Context(), schedule.Spec{Name: "a", Cron: "* * * * * *", Type: "tick"})
	require.NoError(t, err)
	_, err = c.p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	const runs, each = 10, 200 << 10
	for range runs {
		r, err = c.p.Get(t.Context(), r.ID)
		require.NoError(t, err)
		c.round(max(r.NextFireAt.Sub(c.p.store.Clock.Now())+time.Millisecond, 0))
	}
	r, err = c.p.Get(t.Context(), r.ID)
	require.NoError(t, err)
	require.Len(t, r.Active, runs)
	for _, a := range r.Active {
		_, err = c.prod.Cancel(t.Context(), model.TaskID("", "tick", a.ID), "over")
		require.NoError(t, err)
	}
	large := strings.Repeat("x", each)
	_, err = c.db.Collection("tasks").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "result", Value: large}, {Key: "checkpoint", Value: large}}}})
	require.NoError(t, err)
	for _, a := range r.Active[:moved] {
		var doc bson.D
		id := model.TaskID("", "tick", a.ID)
		require.NoError(t, c.db.Collection("tasks").FindOneAndDelete(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc))
		doc[0].Value = id + "@1"
		_, err = c.db.Collection("task_history").InsertOne(t.Context(), append(doc, bson.E{Key: "task_id", Value: id}))
		require.NoError(t, err)
	}
	c.round(5 * time.Second)
	require.Less(t, c.answered, each)
	records, err := c.p.Runs(t.Context(), r.ID, RunFilter{Statuses: []schedule.RunStatus{schedule.RunCanceled}}, nil, 100)
	require.NoError(t, err)
	require.Len(t, records, runs)
	for _, run := range records {
		require.Equal(t, "over", run.Error)
	}
}

// Tasks may be as large as documents, and a rule has many runs.
func TestWhatBecameOfRunsIsReadWithoutTheArgumentsOfTheirTasks(t *testing.T) {
	c := newCounted(t)
	const runs, each = 20, 50 << 10
	trigger := func(name string) (rule, run string) {
		r, err := c.p.Apply(t.Context(), schedule.Spec{
			Name: name, Cron: "@yearly", Type: "tick", Args: strings.Repeat("x", each), Log: map[string]schedule.RunLog{"unrecorded": schedule.LogNone}[name],
		})
		require.NoError(t, err)
		for n := range runs {
			run, err = c.p.Trigger(t.Context(), r.ID, TriggerOptions{Request: string(rune('a' + n))})
			require.NoError(t, err)
		}
		return r.ID, run
	}
	rule, run := trigger("a")
	_, unrecorded := trigger("unrecorded")
	for what, do := range map[string]func(){
		"a list": func() {
			all, err := c.p.Runs(t.Context(), rule, RunFilter{}, nil, 100)
			require.NoError(t, err)
			require.Len(t, all, runs)
		},
		"a run": func() {
			_, err := c.p.GetRun(t.Context(), run)
			require.NoError(t, err)
		},
		"a run without a record": func() {
			_, err := c.p.GetRun(t.Context(), unrecorded)
			require.NoError(t, err)
		},
		"requests that are repeated": func() { trigger("unrecorded") },
		"a sweep":                    func() { require.NoError(t, planner{c.p}.Sweep(t.Context())) },
	} {
		c.clock.Move(2 * lostAfter)
		before := c.read
		do()
		require.Greater(t, c.read, before, "%s reads tasks", what)
		require.Less(t, c.read-before, each, what)
	}
}
