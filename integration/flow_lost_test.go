package integration

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/fleet"
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
	engine := a.runEngine(f.Run)
	return func() {
		engine()
		require.NoError(a.t, h.stop())
	}
}

// A write is cut off, before or after the server sees it: the process goes on by itself.
func TestALostAnswerBetweenTwoNodesOfAFlowLosesNoneAndDoublesNone(t *testing.T) {
	t.Parallel()
	cutEach(t, flowWrites, func(a *arena, away *mongo.Database, trap *proxy.Trap) {
		f := a.startFlows(3)
		a.flowHand("one", away)
		a.awaitQuietFlows()
		require.Positive(a.t, trap.Sprung(), "the write never came")
		a.checkFlows(f, lostSeed, 3)
	})
}

// A process stands still in a write, before or after the server sees it. To the others it is dead:
// they go on without it. When it wakes up, its late write changes nothing.
func TestAProcessFrozenBetweenTwoNodesOfAFlowIsReplacedAndItsLateWriteRefused(t *testing.T) {
	t.Parallel()
	freezeEach(t, flowWrites, func(a *arena) frozenWork {
		f := a.startFlows(3)
		return frozenWork{
			hand: a.flowHand, quiet: a.awaitQuietFlows, check: func() { a.checkFlows(f, lostSeed, 3) },
			seen: func() map[string]bson.M { return a.stored("chaos", "flows", "flow_nodes", "tasks") },
		}
	})
}

// A process is killed in a write, before or after the server sees it. Another one goes on from there.
func TestAProcessKilledBetweenTwoNodesOfAFlowLeavesNothingUndone(t *testing.T) {
	t.Parallel()
	killEach(t, flowWrites, func(a *arena) killedWork {
		f := a.startFlows(3)
		return killedWork{
			child: func(uri string) *fleet.Process { return a.process("TestFlowChild", "killed", "flow-both", uri) },
			goOn:  func() { a.flowHand("other", a.db); a.awaitQuietFlows() },
			check: func() { a.checkFlows(f, lostSeed, 3) },
		}
	})
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
