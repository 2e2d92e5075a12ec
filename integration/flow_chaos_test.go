package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/flowmodel"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// The size of the scenario: so many flows, so long, with these random numbers.
const (
	flowCount   = "MSCHEDULER_FLOWS_COUNT"
	flowSeconds = "MSCHEDULER_FLOWS_SECONDS"
	flowSeed    = "MSCHEDULER_FLOWS_SEED"
)

// flowArgs tell the handler of a node what it does, and how to judge whether it may.
type flowArgs struct {
	Flow    int            `json:"flow"`
	Node    string         `json:"node"`
	Fails   bool           `json:"fails"`
	Parents []string       `json:"parents"` // without those that are skipped
	Join    graph.Strategy `json:"join"`
	N       int            `json:"n"`
	These   []string       `json:"these"`
	Before  string         `json:"before"` // the output of the first parent
}

type flowOut struct {
	Node string `json:"node"`
	Even bool   `json:"even"`
}

var flowWork = model.NewType[flowArgs, flowOut]("chaos.node")

// flowPlain is the type of elements, and of nodes of flows that nodes start.
var flowPlain = model.NewType[model.None, flowOut]("chaos.plain")

// runFlowPlain is the handler of those. It notes that it began.
func runFlowPlain(db *mongo.Database) func(context.Context, *consumer.Task[model.None]) (flowOut, error) {
	return func(ctx context.Context, task *consumer.Task[model.None]) (flowOut, error) {
		mark := bson.D{{Key: "_id", Value: task.ID}, {Key: "key", Value: task.Key}, {Key: "life", Value: task.Token.Generation}}
		if ctx.Err() != nil {
			return flowOut{}, consumer.Release()
		}
		// An insert that is cut off may be done all the same.
		if _, err := db.Collection("plain_marks").InsertOne(context.WithoutCancel(ctx), mark); err != nil {
			return flowOut{}, err
		}
		return flowOut{Node: "plain"}, nil
	}
}

// flowMark is what a handler notes when it begins.
type flowMark struct {
	Exec   string `bson:"_id"`
	Flow   int    `bson:"flow"`
	Node   string `bson:"node"`
	Life   int64  `bson:"life"` // of the task
	Early  string `bson:"early,omitempty"`
	Before string `bson:"before,omitempty"`
}

func flowKey(seed, n int) string { return fmt.Sprintf("chaos-%d-%d", seed, n) }

// flowDef is the flow of that number: a random graph of up to thirty nodes with one first and one
// last node. It is the same whoever asks.
func flowDef(seed, n int) (s graph.Spec, fails map[string]bool) {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	s, fails = graph.Spec{Key: flowKey(seed, n)}, map[string]bool{}
	count, hasChild := 2+r.IntN(29), map[string]bool{}
	for i := range count {
		node := graph.NodeSpec{
			ID: fmt.Sprint("n", i), Type: flowWork.Name(), OnFailure: []graph.Policy{graph.Suspend, graph.Continue}[r.IntN(2)],
			Options: flowOptions(),
		}
		for p := range i {
			if id := s.Nodes[p].ID; i == count-1 && !hasChild[id] || r.IntN(i) < 2 {
				node.After = append(node.After, id)
			}
		}
		if i > 0 && len(node.After) == 0 {
			node.After = []string{s.Nodes[r.IntN(i)].ID}
		}
		for _, p := range node.After {
			hasChild[p] = true
		}
		fails[node.ID] = r.IntN(8) == 0
		if i > 0 && i < count-1 && r.IntN(8) == 0 {
			node.Type, node.Options = "", model.Options{}
			switch r.IntN(3) {
			case 0:
				node.Wait = &graph.Wait{For: time.Duration(1+r.IntN(300)) * time.Millisecond}
			case 1:
				node.Flow = &graph.Spec{Nodes: []graph.NodeSpec{{ID: "x", Type: flowPlain.Name(), Options: flowOptions()}}}
			case 2:
				node.Type, node.Options = flowPlain.Name(), flowOptions()
				node.Each = &graph.Each{Items: []int{1, 2, 3}, Limit: r.IntN(3)}
			}
			fails[node.ID] = false
		}
		args := map[string]any{"flow": n, "node": node.ID, "fails": fails[node.ID]}
		if i > 0 {
			node.Join.Strategy = []graph.Strategy{graph.AllSucceeded, graph.AllEnded, graph.AtLeast, graph.These}[r.IntN(4)]
			switch node.Join.Strategy {
			case graph.AtLeast:
				node.Join.N = 1 + r.IntN(len(node.After))
			case graph.These:
				node.Join.Nodes = node.After[:1+r.IntN(len(node.After))]
			}
			if r.IntN(5) == 0 {
				node.When = map[string]any{node.After[0]: map[string]any{"output.even": true}}
			}
			args["join"], args["n"], args["these"] = node.Join.Strategy, node.Join.N, node.Join.Nodes
			args["before"] = map[string]any{"$output": node.After[0] + ".node"}
		}
		if runsItself(&node) {
			node.Args = args
		}
		s.Nodes = append(s.Nodes, node)
	}
	becomes := flowSettled(s, fails)
	for _, node := range s.Nodes {
		if !runsItself(&node) {
			continue
		}
		node.Args.(map[string]any)["parents"] = slices.DeleteFunc(slices.Clone(node.After), func(p string) bool { return becomes[p] == graph.NodeSkipped })
	}
	return s, fails
}

func flowOptions() model.Options {
	return model.Options{Retry: &model.Retry{Strategy: model.RetryNone}, WorkerTimeout: time.Second, PingInterval: 250 * time.Millisecond, MaxLapses: new(1000)}
}

// runsItself says whether a node is a task of its own. The others wait for a time, start a flow, or
// have elements.
func runsItself(n *graph.NodeSpec) bool { return n.Wait == nil && n.Flow == nil && n.Each == nil }

// flowEven says whether the output of a node is even, which conditions ask for. That of a node that
// is no task of its own is not.
func flowEven(s graph.Spec, node string) bool {
	return runsItself(&s.Nodes[nodeAt(s, node)]) && isEven(node)
}

func isEven(node string) bool { return node[len(node)-1]%2 == 0 }

// flowSettled is the result of the sequential rule for a flow whose nodes have all ended as planned.
func flowSettled(s graph.Spec, fails map[string]bool) map[string]graph.NodeStatus {
	f, err := flowspec.Build(&s, s.Key, time.UnixMilli(0))
	if err != nil {
		panic(err)
	}
	said, is := make([]graph.NodeStatus, len(f.Nodes)), []graph.NodeStatus(nil)
	for at := 0; at >= 0; at = slices.Index(is, graph.NodeReady) {
		switch v := &f.Nodes[at]; {
		case !fails[v.ID]:
			said[at] = graph.NodeSuccess
		case v.OnFailure == graph.Continue:
			said[at] = graph.NodeError
		default:
			said[at] = graph.NodePending
		}
		is = flowmodel.Settled(f, said, func(child, parent int, is graph.NodeStatus) graph.NodeStatus {
			from := f.Nodes[parent].ID
			if is == graph.NodeSuccess && s.Nodes[nodeAt(s, f.Nodes[child].ID)].When[from] != nil && !flowEven(s, from) {
				return graph.NodeSkipped
			}
			return is
		})
	}
	out := map[string]graph.NodeStatus{}
	for i, v := range f.Nodes {
		out[v.ID] = is[i]
	}
	return out
}

// TestFlowChild is no test: it is what the processes of the scenario run.
func TestFlowChild(t *testing.T) {
	role, name, db := asChild(t, "flow-")
	if role == "flow-worker" || role == "flow-both" {
		c, err := consumer.New(consumer.Config{Database: db, WorkerID: name, Concurrency: 50})
		require.NoError(t, err)
		require.NoError(t, consumer.Handle(c, flowWork, runFlowNode(db)))
		require.NoError(t, consumer.Handle(c, flowPlain, runFlowPlain(db)))
		if role == "flow-both" { // the engine hears of the ends of its worker
			f, err := flow.New(flow.Config{Database: db})
			require.NoError(t, err)
			go func() { assert.NoError(t, f.Run(t.Context())) }()
		}
		require.NoError(t, c.Run(t.Context()))
		return
	}
	f, err := flow.New(flow.Config{Database: db, Logger: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)})
	require.NoError(t, err)
	if role == "flow-engine" {
		require.NoError(t, f.Run(t.Context()))
		return
	}
	var seed, count int
	_, err = fmt.Sscanf(name, "starter-%d-%d", &seed, &count)
	require.NoError(t, err)
	for n := range count { // from the beginning: those that exist stay as they are
		s, _ := flowDef(seed, n)
		_, err := f.Start(t.Context(), s)
		require.NoError(t, err)
	}
}

// runFlowNode is the handler of the nodes. It notes that it began, and whether the tasks of its
// parents were as its join wants.
func runFlowNode(db *mongo.Database) func(context.Context, *consumer.Task[flowArgs]) (flowOut, error) {
	return func(ctx context.Context, task *consumer.Task[flowArgs]) (flowOut, error) {
		a := task.Args
		early, err := flowEarly(ctx, db, task.Key, a)
		if err != nil {
			return flowOut{}, err
		}
		mark := flowMark{Exec: task.ID, Flow: a.Flow, Node: a.Node, Life: task.Token.Generation, Early: early, Before: a.Before}
		if ctx.Err() != nil {
			return flowOut{}, consumer.Release()
		}
		// An insert that is cut off may be done all the same, and a released execution is not counted.
		if _, err := db.Collection("marks").InsertOne(context.WithoutCancel(ctx), mark); err != nil {
			return flowOut{}, err
		}
		select { // so that nodes end at any time
		case <-time.After(rand.N(80 * time.Millisecond)):
		case <-ctx.Done():
			return flowOut{}, ctx.Err()
		}
		if a.Fails {
			return flowOut{}, consumer.Fatal(errors.New("as it was told"))
		}
		return flowOut{Node: a.Node, Even: isEven(a.Node)}, nil
	}
}

// flowEarly says why a node may not run yet; "" = it may.
func flowEarly(ctx context.Context, db *mongo.Database, key string, a flowArgs) (string, error) {
	prefix := strings.TrimSuffix(key, a.Node)
	cur, err := db.Collection("tasks").Find(ctx, bson.D{{Key: "type", Value: flowWork.Name()}, {Key: "key", Value: bson.D{{Key: "$in", Value: nodeKeys(prefix, a.Parents)}}}})
	if err != nil {
		return "", consumer.Release()
	}
	var tasks []struct{ Key, Status string }
	if err := cur.All(ctx, &tasks); err != nil {
		return "", consumer.Release()
	}
	var doc struct {
		Nodes []struct {
			ID   string `bson:"id"`
			Type string `bson:"type"`
		} `bson:"nodes"`
		States []graph.State `bson:"states"`
	}
	id := "-/" + strings.TrimSuffix(strings.TrimPrefix(prefix, "flow:"), ":")
	if err := db.Collection("flows").FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&doc); err != nil {
		return "", consumer.Release()
	}
	succeeded, ended := 0, 0
	for i, v := range doc.Nodes { // those that are no task of their own
		of := a.Parents
		if a.Join == graph.These {
			of = a.These
		}
		if v.Type != flowWork.Name() && slices.Contains(of, v.ID) && doc.States[i].Status == graph.NodeSuccess {
			succeeded, ended = succeeded+1, ended+1
		}
	}
	for _, t := range tasks {
		s := model.Status(t.Status)
		if a.Join == graph.These && !slices.Contains(a.These, strings.TrimPrefix(t.Key, prefix)) {
			continue
		}
		if s.Ended() {
			ended++
		}
		if s.Succeeded() {
			succeeded++
		}
	}
	switch {
	case a.Join == graph.AtLeast && succeeded < a.N, a.Join == graph.These && succeeded < len(a.These),
		(a.Join == graph.AllEnded || a.Join == graph.AllSucceeded) && ended < len(a.Parents):
		return fmt.Sprintf("%d parents ended, %d succeeded", ended, succeeded), nil
	}
	return "", nil
}

func nodeKeys(prefix string, nodes []string) bson.A {
	keys := make(bson.A, len(nodes))
	for i, n := range nodes {
		keys[i] = prefix + n
	}
	return keys
}

// Flows come to the end that the sequential rule says, although the processes that start them, run
// their nodes and decide about them are killed and frozen at random moments. Each node that runs
// has one life, and none runs before its join allows.
func TestFlowsEndAsTheRuleSaysAlthoughProcessesDieAndFreeze(t *testing.T) {
	aloneWithRace(t)
	onEnginesAlone(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		seed := number(t, flowSeed, int(time.Now().UnixNano()&0xffffff))
		count := number(t, flowCount, e.Of(40, 12))
		lasts := time.Duration(number(t, flowSeconds, 5)) * time.Second
		t.Logf("seed %d, %d flows, %v", seed, count, lasts)
		a.flowRager(seed, count).rage(lasts)
		f, err := flow.New(flow.Config{Database: a.db})
		require.NoError(t, err)
		for n := range count { // what the starters left
			s, _ := flowDef(seed, n)
			_, err := f.Start(t.Context(), s)
			require.NoError(t, err)
		}
		a.awaitQuietFlows()
		a.checkFlows(f, seed, count)
	})))
}

// flowRoles are the processes of the scenario.
var flowRoles = [...]string{"flow-engine", "flow-engine", "flow-both", "flow-both", "flow-worker", "flow-starter"}

// flowRager starts the processes, and kills and freezes them.
func (a *arena) flowRager(seed, count int) *rager {
	ways, started := [len(flowRoles)]string{}, 0 // their ways to the server
	for n := range ways {
		ways[n] = a.slowly(time.Duration(5*(n+1)) * time.Millisecond)
	}
	c := &rager{arena: a, rand: rand.New(rand.NewPCG(uint64(seed), 1)), freezes: func(n int) bool { return flowRoles[n] != "flow-starter" }}
	c.begin = func(n int) *fleet.Process {
		started++
		name := fmt.Sprint(flowRoles[n], "-", started)
		if flowRoles[n] == "flow-starter" {
			name = fmt.Sprintf("starter-%d-%d", seed, count)
		}
		return a.process("TestFlowChild", name, flowRoles[n], ways[n])
	}
	c.start(len(flowRoles))
	return c
}

// awaitQuietFlows waits until no flow runs and nothing is left to do, as long as that goes on.
func (a *arena) awaitQuietFlows() {
	a.t.Helper()
	exists := bson.D{{Key: "$exists", Value: true}}
	a.awaitNone("marks", []left{
		{"flows that run", "flows", bson.D{{Key: "status", Value: "RUNNING"}}},
		{"flows with plans", "flows", bson.D{{Key: "planned_at", Value: exists}}},
		{"tasks that go on", "tasks", bson.D{{Key: "finished_at", Value: bson.D{{Key: "$exists", Value: false}}}, {Key: "status", Value: bson.D{{Key: "$ne", Value: "Wait"}}}, noSentinel}},
		{"tasks with an outbox", "tasks", bson.D{{Key: "outbox_at", Value: exists}, noSentinel}},
	})
}
