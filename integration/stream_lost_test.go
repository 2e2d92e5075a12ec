package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/proxy"
)

// appendWrites are the writes of an append and of the linking that it triggers.
var appendWrites = map[string]proxy.Rule{
	"numbers":     {Command: "update", Collection: "flows", Contains: "$setOnInsert"},
	"nodes":       {Command: "insert", Collection: "flow_nodes"},
	"link":        {Command: "update", Collection: "flows", Contains: "decision"},
	"tasks":       {Command: "insert", Collection: "tasks"},
	"records":     {Command: "update", Collection: "flow_nodes"},
	"carried out": {Command: "update", Collection: "flows", Lacks: "$set"},
}

// streamWrites are the writes between the end of a node of a stream and the start of the next one, and
// those that follow.
var streamWrites = map[string]proxy.Rule{
	"claim":       {Command: "update", Collection: "tasks", Contains: "Executing"},
	"end":         {Command: "update", Collection: "tasks", Contains: "finished_at"},
	"decision":    {Command: "update", Collection: "flows", Contains: "decision"},
	"release":     {Command: "update", Collection: "tasks", Contains: "wake_at"},
	"record":      {Command: "update", Collection: "flow_nodes", Contains: "status"},
	"carried out": {Command: "update", Collection: "flows", Lacks: "$set"},
	"told":        {Command: "update", Collection: "tasks", Contains: "$size"},
}

// lostNodes is how many nodes an appender of these scenarios appends, to one stream.
const lostNodes = 40

// streamHand is a process that runs nodes and decides about streams, as `work --flow` does.
func (a *arena) streamHand() {
	a.t.Helper()
	a.hire("hand", nil, func(c *handConfig) {
		c.register = func(c *consumer.Consumer) error { return consumer.Handle(c, streamWork, runLink(a.db)) }
	})
	f, err := flow.New(flow.Config{Database: a.db})
	require.NoError(a.t, err)
	a.runEngine(f.Run)
}

// checkAppended proves that the appender's parts and the other nodes are in the stream, each once, the
// parts in their order, and that all ran in the order of the chain.
func (a *arena) checkAppended(others []string) {
	a.t.Helper()
	chains := a.chains()
	require.Len(a.t, chains, 1)
	chain, place := chains["chaos/0"], map[string]int{}
	for i, n := range chain {
		place[n.Node] = i
	}
	require.Len(a.t, place, lostNodes+len(others))
	for i, id := range others {
		require.Contains(a.t, place, id)
		require.True(a.t, i == 0 || place[others[i-1]] < place[id], "%s keeps its place", id)
	}
	before := -1
	for _, p := range streamParts(0, lostNodes, 1) {
		last := -1
		for _, n := range p.nodes {
			require.Contains(a.t, place, n.ID)
			require.Greater(a.t, place[n.ID], before, "%s is behind the append before", n.ID)
			last = max(last, place[n.ID])
		}
		before = last
	}
}

// A write is cut off, before or after the server sees it. Whoever appends tries again.
func TestALostAnswerOfAnAppendLosesNoNodeAndDoublesNone(t *testing.T) {
	t.Parallel()
	cutEach(t, appendWrites, func(a *arena, away *mongo.Database, trap *proxy.Trap) {
		f, err := flow.New(flow.Config{Database: away})
		require.NoError(a.t, err)
		for i, p := range streamParts(0, lostNodes, 1) {
			require.Eventually(a.t, func() bool {
				_, err := f.Append(a.t.Context(), "chaos", p.group, p.nodes...)
				return err == nil
			}, chaosPatience, 10*time.Millisecond)
			if i == 0 { // nobody else links the first nodes
				require.NoError(a.t, f.Flush(a.t.Context()))
				a.streamHand()
			}
		}
		require.NoError(a.t, f.Flush(a.t.Context()))
		a.awaitQuietStreams()
		require.Positive(a.t, trap.Sprung(), "the write never came")
		a.checkAppended(nil)
	})
}

// A process that runs the nodes of a stream is killed in a write, before or after the server sees it.
// Another one goes on from there.
func TestAProcessKilledBetweenTwoNodesOfAStreamLeavesNothingUndone(t *testing.T) {
	t.Parallel()
	killEach(t, streamWrites, func(a *arena) killedWork {
		f, err := flow.New(flow.Config{Database: a.db})
		require.NoError(a.t, err)
		require.NoError(a.t, appendParts(a.t.Context(), a.db, f, 0, lostNodes, 1))
		require.NoError(a.t, f.Flush(a.t.Context()))
		return killedWork{
			child: func(uri string) *fleet.Process { return a.process("TestStreamChild", "killed", "stream-worker", uri) },
			goOn:  func() { a.streamHand(); a.awaitQuietStreams() },
			check: func() { a.checkAppended(nil) },
		}
	})
}

// A process is killed in a write, or stands still there, before or after the server sees it. The
// others append to the stream and link without it, also what it has left. What is late changes nothing.
func TestAnAppenderThatDiesOrFreezesInAWriteHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, rule := range appendWrites {
		for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
			for _, fate := range []string{"killed", "frozen"} {
				t.Run(fate+" "+when+" "+name, func(t *testing.T) {
					onEnginesAtFullSizeInRealTime(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
						a := newArena(t, e)
						px, _ := a.behind()
						rule := rule
						rule.Do = action
						trap := px.Set(rule)
						a.streamHand()
						child := a.process("TestStreamChild", fmt.Sprintf("appender-0-%d-1", lostNodes), "stream-appender", px.URI())
						select {
						case <-trap.Hit():
						case <-time.After(chaosPatience):
							require.FailNow(t, "the write never came")
						}
						if fate == "killed" {
							child.Kill()
						} else {
							require.NoError(t, child.Freeze())
						}
						f, err := flow.New(flow.Config{Database: a.db})
						require.NoError(t, err)
						var others []string
						for n := range 5 {
							ids, err := f.Append(t.Context(), "chaos", "0", streamNode(fmt.Sprint("other-", n), false), streamNode(fmt.Sprint("other-", n, "-too"), false))
							require.NoError(t, err)
							others = append(others, ids...)
						}
						a.awaitQuietStreams()
						last, _, err := a.store.Nodes.Appended(t.Context(), []string{"chaos/0/" + others[len(others)-1]})
						require.NoError(t, err)
						require.Equal(t, graph.NodeSuccess, last["chaos/0/"+others[len(others)-1]].Status, "the others did not wait")
						trap.Release()
						if fate == "frozen" {
							require.NoError(t, child.Thaw())
						}
						require.NoError(t, appendParts(t.Context(), a.db, f, 0, lostNodes, 1))
						a.awaitQuietStreams()
						a.checkAppended(others)
					})))
				})
			}
		}
	}
}
