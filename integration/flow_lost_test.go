package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// flowWrites are the writes between the end of a node and the start of its child, and those that
// follow, with those that start flows and elements.
var flowWrites = map[string]proxy.Rule{
	"claim":       {Command: "update", Collection: "tasks", Contains: "Executing"},
	"end":         {Command: "update", Collection: "tasks", Contains: "finished_at"},
	"decision":    {Command: "update", Collection: "flows", Contains: "decision"},
	"release":     {Command: "update", Collection: "tasks", Contains: "wake_at"},
	"record":      {Command: "update", Collection: "flow_nodes", Contains: "status"},
	"carried out": {Command: "update", Collection: "flows", Lacks: "$set"},
	"child":       {Command: "update", Collection: "flows", Contains: "parent"},
	"elements":    {Command: "insert", Collection: "tasks", Contains: "element"},
	"told":        {Command: "update", Collection: "tasks", Contains: "$size"},
}

// flowHand is a process that runs nodes and decides about flows, as `work --flow` does.
func (a *arena) flowHand(name string, db *mongo.Database) (stop func()) {
	a.t.Helper()
	h := a.hire(name, nil, through(db), func(c *handConfig) {
		c.register = func(c *consumer.Consumer) error {
			return errors.Join(consumer.Handle(c, flowWork, runFlowNode(a.db)), consumer.Handle(c, flowPlain, runFlowPlain(a.db)))
		}
	})
	f, err := flow.New(flow.Config{Database: db, EngineID: "engine-" + name})
	require.NoError(a.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(a.t, f.Run(ctx))
	}()
	stop = func() {
		cancel()
		<-ended
		require.NoError(a.t, h.stop())
	}
	a.t.Cleanup(stop)
	return stop
}

// seenFlows are the flows, their nodes and their tasks as they are stored, by id.
func (a *arena) seenFlows() map[string]bson.M {
	a.t.Helper()
	out := map[string]bson.M{}
	for _, coll := range []string{"flows", "flow_nodes", "tasks"} {
		cur, err := a.db.Collection(coll).Find(a.t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "chaos"}}}})
		require.NoError(a.t, err)
		var docs []bson.M
		require.NoError(a.t, cur.All(a.t.Context(), &docs))
		for _, doc := range docs {
			out[coll+" "+doc["_id"].(string)] = doc
		}
	}
	return out
}

// A write is cut off, before or after the server sees it: the process goes on by itself.
func TestALostAnswerBetweenTwoNodesOfAFlowLosesNoneAndDoublesNone(t *testing.T) {
	t.Parallel()
	for name, rule := range flowWrites {
		for cut, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
			t.Run(name+" "+cut, func(t *testing.T) {
				onEngines(t, func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, away := a.behind()
					rule := rule
					rule.Do, rule.Times = action, 2
					trap := px.Set(rule)
					f := a.startFlows(3)
					a.flowHand("one", away)
					a.awaitQuietFlows()
					require.Positive(t, trap.Sprung(), "the write never came")
					a.checkFlows(f, lostSeed, 3)
				})
			})
		}
	}
}

// A process stands still in a write, before or after the server sees it. To the others it is dead:
// they go on without it. When it wakes up, its late write changes nothing.
func TestAProcessFrozenBetweenTwoNodesOfAFlowIsReplacedAndItsLateWriteRefused(t *testing.T) {
	t.Parallel()
	for name, rule := range flowWrites {
		for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
			t.Run(name+" "+when, func(t *testing.T) {
				onEngines(t, func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, away := a.behind()
					rule := rule
					rule.Do = action
					trap := px.Set(rule)
					f := a.startFlows(3)
					stop := a.flowHand("frozen", away)
					select {
					case <-trap.Hit():
					case <-time.After(chaosPatience):
						require.FailNow(t, "the write never came")
					}
					rest := px.Set(proxy.Rule{Do: proxy.HoldBefore, Times: -1}) // nor does it do anything else
					a.flowHand("other", a.db)
					a.awaitQuietFlows()
					a.checkFlows(f, lostSeed, 3)
					before := a.seenFlows()
					trap.Release()
					rest.Release()
					stop()
					for id, doc := range a.seenFlows() {
						require.Equal(t, before[id], doc, id)
					}
				})
			})
		}
	}
}

// lostSeed is of flows of a few nodes. Among them are one that waits, one that starts a flow, and one
// that has elements.
const lostSeed = 317

func (a *arena) startFlows(count int) *flow.Flows {
	a.t.Helper()
	f, err := flow.New(flow.Config{Database: a.db})
	require.NoError(a.t, err)
	for n := range count {
		s, _ := flowDef(lostSeed, n)
		_, err := f.Start(a.t.Context(), s)
		require.NoError(a.t, err)
	}
	return f
}
