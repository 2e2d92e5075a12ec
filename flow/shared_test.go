package flow_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
)

// engines lists the engines of a database, each with the kinds that it decides about.
func engines(t *testing.T, db *mongo.Database) map[string][]string {
	t.Helper()
	cur, err := db.Collection("workers").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var docs []store.Worker
	require.NoError(t, cur.All(t.Context(), &docs))
	out := map[string][]string{}
	for _, w := range docs {
		slices.Sort(w.Types)
		out[w.ID] = w.Types
	}
	return out
}

// going runs an engine until stop is called.
func going(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			require.NoError(t, testdb.Receive(t, done))
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestAnEngineRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	flows, err := flow.New(flow.Config{Database: db, EngineID: "flows"})
	require.NoError(t, err)
	plans, err := plan.New(plan.Config{Database: db, EngineID: "plans"})
	require.NoError(t, err)
	rules, err := periodic.New(periodic.Config{Database: db, EngineID: "rules"})
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel() // a run would end at once
	type drain = func(context.Context, time.Time) (time.Time, bool, error)
	for name, e := range map[string]struct {
		run   func(context.Context) error
		drain drain
	}{"flows": {flows.Run, flows.Drain}, "plans": {plans.Run, plans.Drain}, "rules": {rules.Run, rules.Drain}} {
		for range 2 { // the second when the first has returned
			stop := going(t, e.run)
			testdb.Eventually(t, "the engine runs", func() bool { return len(engines(t, db)[name]) > 0 })
			require.ErrorContains(t, e.run(over), "already runs")
			_, _, err := e.drain(t.Context(), time.Now())
			require.ErrorContains(t, err, "already runs")
			stop()
			_, _, err = e.drain(t.Context(), time.Now())
			require.NoError(t, err)
		}
	}
}

func TestPlannersOfOneProcessShareTheirLooks(t *testing.T) {
	t.Parallel() // it mostly waits
	db := testdb.New(t)
	looks := make(chan bson.Raw, 1000)
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "aggregate" && e.Command.Lookup("aggregate").StringValue() == "control" {
				looks <- slices.Clone(e.Command)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	mine := client.Database(db.Name())
	rules, err := periodic.New(periodic.Config{Database: mine, EngineID: "first"})
	require.NoError(t, err)
	flows, err := flow.New(flow.Config{Database: mine, EngineID: "second"})
	require.NoError(t, err)
	others, err := flow.New(flow.Config{Database: mine, EngineID: "third"})
	require.NoError(t, err)
	become := func(want map[string][]string) {
		t.Helper()
		testdb.Eventually(t, fmt.Sprint("the engines become ", want), func() bool { return fmt.Sprint(engines(t, db)) == fmt.Sprint(want) })
	}

	stopRules := going(t, rules.Run)
	become(map[string][]string{"first": {tickplan.EngineType}})
	testdb.Receive(t, looks) // it runs: whoever comes now joins it
	stopFlows := going(t, flows.Run)
	become(map[string][]string{"first": {flowplan.EngineType, tickplan.EngineType}})
	for len(looks) > 0 {
		<-looks
	}
	for range 2 {
		pipeline := testdb.Receive(t, looks).Lookup("pipeline").String()
		require.Contains(t, pipeline, `"coll": "periodic_rules"`)
		require.Contains(t, pipeline, `"coll": "flows"`)
	}
	stopOthers := going(t, others.Run) // a second planner of the same kind is an engine of its own
	become(map[string][]string{"first": {flowplan.EngineType, tickplan.EngineType}, "third": {flowplan.EngineType}})
	stopOthers()
	stopRules()
	become(map[string][]string{"first": {flowplan.EngineType}})
	w := &world{t: t, db: db, flows: flows, broken: map[string]bool{}}
	w.work()
	w.becomes(w.start(diamond("goes on")).ID, graph.StatusFinish)
	stopFlows()
	require.Empty(t, engines(t, db)["first"])
}

func TestPlannersOfOneNameAreListedAsLongAsOneRuns(t *testing.T) {
	db := testdb.New(t)
	var signedOff atomic.Int32
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "delete" && e.Command.Lookup("delete").StringValue() == "workers" {
				signedOff.Add(1)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	mine := client.Database(db.Name())
	rules, err := periodic.New(periodic.Config{Database: mine, EngineID: "one"})
	require.NoError(t, err)
	flows, err := flow.New(flow.Config{Database: mine, EngineID: "one"})
	require.NoError(t, err)
	stopRules, stopFlows := going(t, rules.Run), going(t, flows.Run)
	testdb.Eventually(t, "one engine has both kinds", func() bool { return len(engines(t, db)["one"]) == 2 })
	stopRules()
	require.Zero(t, signedOff.Load())
	stopFlows()
	require.EqualValues(t, 1, signedOff.Load())
}

func TestAFunctionThatIsToldOfPendingNodesHoldsUpNobody(t *testing.T) {
	told, over := make(chan string, 10), make(chan struct{})
	w := newWorld(t, func(c *flow.Config) {
		c.OnPending = func(_ context.Context, _ *graph.Flow, node, _ string) {
			told <- node
			<-over
		}
	})
	defer close(over)
	w.breaks("bad", "a", true)
	bad := w.start(diamond("bad"))
	require.Equal(t, "a", testdb.Receive(t, told))
	w.becomes(w.start(diamond("good")).ID, graph.StatusFinish)
	w.becomes(bad.ID, graph.StatusPending)
}

// Ten thousand engines are listed that do not work: without news of the end of a node, this one
// would wait until the end is late by ten seconds.
func TestAnEngineHearsOfTheEndsOfItsOwnProcess(t *testing.T) {
	t.Parallel()
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}}
	var ghosts []any
	for i := range 10_000 {
		ghosts = append(ghosts, bson.D{{Key: "_id", Value: fmt.Sprintf("a-%05d", i)}, {Key: "types", Value: bson.A{flowplan.EngineType}}, {Key: "heartbeat_at", Value: time.Now().Add(time.Hour)}})
	}
	_, err := w.db.Collection("workers").InsertMany(t.Context(), ghosts)
	require.NoError(t, err)
	w.flows, err = flow.New(flow.Config{Database: w.db, EngineID: "z"})
	require.NoError(t, err)
	w.work()
	w.run(w.flows.Run)
	w.eventually("the engine is listed", func() bool { return engines(t, w.db)["z"] != nil })
	f := w.start(diamond("f"))
	w.becomes(f.ID, graph.StatusFinish)
	nodes, err := w.flows.Nodes(t.Context(), f.ID)
	require.NoError(t, err)
	require.Less(t, min(nodes[1].At.Sub(nodes[0].At), nodes[3].At.Sub(nodes[1].At)), 10*time.Second)
}
