package flow

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// counted is a driven engine whose commands are counted, by command and collection, and the
// statements in them.
type counted struct {
	*driven
	mu                   sync.Mutex // of all below
	commands, statements map[string]int
	documents, bytes     int // that were read
}

func newCounted(t *testing.T) *counted {
	c := &counted{commands: map[string]int{}, statements: map[string]int{}}
	db := testdb.New(t)
	sent := map[int64]bson.Raw{}
	// What ran out of its time would be looked for.
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(t).URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			sent[e.RequestID] = slices.Clone(e.Command)
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.answered(e.CommandName, sent[e.RequestID], e.Reply)
			delete(sent, e.RequestID)
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c.driven = drive(t, db, client.Database(db.Name()), clock.System())
	return c
}

// removesFromOutbox says whether a command removes what was told: entries, or the mark with the last one.
func removesFromOutbox(command bson.Raw) bool {
	text := command.String()
	return strings.Contains(text, "$pull") || strings.Contains(text, `"outbox": {"$size"`)
}

// answered counts a command.
func (c *counted) answered(name string, command, reply bson.Raw) {
	coll, _ := command.Lookup(name).StringValueOK()
	full := name + " " + coll
	if full == "update tasks" && removesFromOutbox(command) {
		full += ", outboxes"
	}
	c.commands[full]++
	for _, field := range []string{"documents", "updates"} {
		if list, ok := command.Lookup(field).ArrayOK(); ok {
			of, _ := list.Values()
			c.statements[full] += len(of)
		}
	}
	for _, field := range []string{"firstBatch", "nextBatch"} {
		if list, ok := reply.Lookup("cursor", field).ArrayOK(); ok {
			of, _ := list.Values()
			c.documents += len(of)
			c.bytes += len(list)
		}
	}
}

// read is how many bytes of documents the engine has read.
func (c *counted) read() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// count lets something be done, and returns its commands.
func (c *counted) count(do func()) (commands, statements map[string]int) {
	c.mu.Lock()
	clear(c.commands)
	clear(c.statements)
	c.mu.Unlock()
	do()
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.commands), maps.Clone(c.statements)
}

// The flow is one document, and its tasks are sent by one command. Ends that are there together are
// one decision, whether one node ended or two hundred, and the releases that follow are one
// statement. So a node costs three writes from its start to its end beside those of its task: it is
// sent, and its record is stored when it waits, is ready and has ended.
func TestANodeOfAFanOutCostsItsTaskItsRecordAndNoCommandOfItsOwn(t *testing.T) {
	t.Parallel()
	const n = 200
	c := newCounted(t)
	s := graph.Spec{Key: "f", Nodes: []graph.NodeSpec{{ID: "a", Type: "t", OnFailure: graph.Continue}}}
	last := graph.NodeSpec{ID: "z", Type: "t", Join: graph.Join{Strategy: graph.AllEnded}, OnFailure: graph.Continue}
	var middle []int
	for i := range n {
		id := fmt.Sprintf("n%03d", i)
		s.Nodes = append(s.Nodes, graph.NodeSpec{ID: id, Type: "t", After: []string{"a"}, Join: graph.Join{Strategy: graph.AllEnded}, OnFailure: graph.Continue})
		last.After, middle = append(last.After, id), append(middle, i+1)
	}
	s.Nodes = append(s.Nodes, last)
	beside := c.beside()
	c.e.Round(t.Context()) // the first one reads the types, too

	var doc *graph.Flow
	commands, statements := c.count(func() {
		var err error
		doc, err = c.f.Start(t.Context(), s)
		require.NoError(t, err)
	})
	require.Equal(t, map[string]int{"insert tasks": 1, "insert flow_nodes": 1, "update flows": 2}, commands)
	require.Equal(t, map[string]int{"insert tasks": n + 2, "insert flow_nodes": n + 2, "update flows": 2}, statements)

	first := map[string]int{"aggregate control": 1, "find flows": 1, "find tasks": 1, "update flow_nodes": 1, "update flows": 1, "update tasks": 1}
	later := map[string]int{"aggregate control": 1, "find tasks": 1, "update flow_nodes": 1, "update flows": 1, "update tasks": 1} // the engine remembers the flow
	for _, step := range []struct {
		ends              []int
		commands, written map[string]int
	}{
		{[]int{0}, first, map[string]int{"update flow_nodes": 2, "update flows": 1, "update tasks": 1}},
		{middle, later, map[string]int{"update flow_nodes": 2, "update flows": 1, "update tasks": 1}},
		{[]int{n + 1}, map[string]int{"aggregate control": 1, "update flow_nodes": 2, "update flows": 1}, map[string]int{"update flow_nodes": 2, "update flows": 1}},
	} {
		c.succeed(beside, idsOf(doc, step.ends)) // at once: what stays planned for long is looked for
		commands, statements := c.count(func() { c.e.Round(t.Context()) })
		for _, all := range []map[string]int{commands, statements} {
			delete(all, "update tasks, outboxes") // what was told leaves its outbox at any time
			delete(all, "findAndModify workers")  // a heartbeat
		}
		require.Equal(t, step.commands, commands)
		require.Equal(t, step.written, statements)
	}
	require.Equal(t, graph.StatusFinish, c.get(doc).Status)

	_, statements = c.count(func() { c.e.Flush(t.Context()) })
	require.LessOrEqual(t, statements["update tasks, outboxes"], n+2, "each end leaves its outbox once")
	require.LessOrEqual(t, statements["update flows"], 1)
}

// beside is a store whose commands are not counted.
func (c *counted) beside() *store.Store {
	c.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(c.t).URI()))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, client.Disconnect(context.Background())) })
	s, err := store.Open(store.Config{Database: client.Database(c.db.Name())})
	require.NoError(c.t, err)
	require.NoError(c.t, s.Ready(c.t.Context()))
	require.NoError(c.t, s.FreshClock(c.t.Context()))
	return s
}

// succeed ends tasks, each with an output, beside the engine. When it returns, all ends can be found.
func (c *counted) succeed(beside *store.Store, ids []string) {
	c.t.Helper()
	output, err := codec.EncodeValue("result", map[string]any{"n": 1, "text": strings.Repeat("x", 100)}, 1000)
	require.NoError(c.t, err)
	var at time.Time
	held, err := decision.ChangeTasks(c.t.Context(), beside, "ending", ids, func(t *model.Task) *model.Task {
		waiting := *t // so it need not be claimed
		waiting.Status = model.StatusWait
		after := lifecycle.Conclude(&waiting, model.StatusSuccess, output, "", lifecycle.EffectiveOf(t, model.Options{}), beside.Clock.Now())
		after.Rev, at = t.Rev+1, after.OutboxAt
		return after
	})
	require.NoError(c.t, err)
	require.Empty(c.t, held)
	require.Eventually(c.t, func() bool { return !c.f.store.Clock.Now().Before(at) }, testdb.Patience, time.Millisecond)
}

// toldOf lets the engine work until it has been told of the ends of the nodes' tasks. On a busy machine
// one round may not do: a command of it may run out of time.
func (c *counted) toldOf(beside *store.Store, doc *graph.Flow, nodes []int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		c.e.Round(c.t.Context())
		c.e.Flush(c.t.Context())
		tasks, err := beside.Tasks.ByIDs(c.t.Context(), idsOf(doc, nodes))
		require.NoError(c.t, err)
		for _, task := range tasks {
			if len(task.Outbox) > 0 {
				return false
			}
		}
		return len(tasks) == len(nodes)
	}, testdb.Patience, time.Millisecond)
}

func idsOf(doc *graph.Flow, nodes []int) (ids []string) {
	for _, i := range nodes {
		ids = append(ids, taskID(doc, i))
	}
	return ids
}

// Flows of a shape are told of the ends of their nodes in pieces, each by one decision. What the engine
// reads for that grows as the number of nodes does: neither the states nor the outputs are read again
// for each piece.
func TestWhatAnEngineReadsOfAFlowGrowsAsItsNodesDo(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	fanIn := func(n int, last graph.NodeSpec) graph.Spec {
		s := graph.Spec{Key: fmt.Sprint(n), Nodes: []graph.NodeSpec{{ID: "a", Type: "t"}}}
		last.ID, last.Type = "z", "t"
		for i := range n {
			id := fmt.Sprintf("n%d", i)
			s.Nodes, last.After = append(s.Nodes, graph.NodeSpec{ID: id, Type: "t", After: []string{"a"}}), append(last.After, id)
		}
		if last.When != nil {
			for _, id := range last.After {
				last.When[id] = map[string]any{"output.n": 1}
			}
		}
		s.Nodes = append(s.Nodes, last)
		return s
	}
	most := 1600
	if os.Getenv("MSCHEDULER_TEST_LONG") != "" {
		most = 10_000 - 2 // between the first and the last
	}
	for _, shape := range []struct {
		name         string
		small, large int
		piece        int // of ends that are told together; 1 = each step in a chain
		spec         func(n int) graph.Spec
	}{
		{"a fan-in", most / 8, most, 100, func(n int) graph.Spec { return fanIn(n, graph.NodeSpec{}) }},
		{"a custom join", 100, 800, 10, func(n int) graph.Spec {
			return fanIn(n, graph.NodeSpec{Join: graph.Join{Strategy: graph.Custom, Custom: "all"}})
		}},
		{"conditions", 100, 800, 10, func(n int) graph.Spec { return fanIn(n, graph.NodeSpec{When: map[string]any{}}) }},
		{"a chain", 30, 240, 1, func(n int) graph.Spec {
			s := graph.Spec{Key: fmt.Sprint(n)}
			for i := range n {
				v := graph.NodeSpec{ID: fmt.Sprintf("n%d", i), Type: "t"}
				if i > 0 {
					v.After = []string{fmt.Sprintf("n%d", i-1)}
				}
				s.Nodes = append(s.Nodes, v)
			}
			return s
		}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			c := newCounted(t)
			c.f.joins["all"] = func(parents []flowplan.Parent, saved bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
				for _, p := range parents {
					if p.Status == graph.NodeSuccess && p.Output.Type == 0 {
						return "", saved, fmt.Errorf("the output of %s is missing", p.Node)
					}
					if p.Status != graph.NodeSuccess {
						return graph.NodeWait, saved, nil
					}
				}
				return graph.NodeReady, saved, nil
			}
			beside := c.beside()
			cost := func(n int) (documents, bytes int) {
				doc, err := c.f.Start(t.Context(), shape.spec(n))
				require.NoError(t, err)
				tell := func(nodes ...int) {
					c.succeed(beside, idsOf(doc, nodes))
					c.toldOf(beside, doc, nodes)
				}
				c.documents, c.bytes = 0, 0
				tell(0)
				for from := 1; from < len(doc.Nodes)-1; from += shape.piece {
					var piece []int
					for i := from; i < min(from+shape.piece, len(doc.Nodes)-1); i++ {
						piece = append(piece, i)
					}
					tell(piece...)
				}
				tell(len(doc.Nodes) - 1)
				documents, bytes = c.documents, c.bytes
				now := c.get(doc)
				require.Equal(t, graph.StatusFinish, now.Status)
				for i := range now.States {
					require.Equal(t, graph.NodeSuccess, now.States[i].Status, now.Nodes[i].ID)
				}
				return documents, bytes
			}
			c.e.Round(t.Context()) // the first one reads the types, too
			documents, bytes := cost(shape.small)
			more, larger := cost(shape.large)
			t.Logf("%d nodes: %d documents, %d bytes; %d nodes: %d documents, %d bytes", shape.small, documents, bytes, shape.large, more, larger)
			const spare = 1.5
			times := spare * float64(shape.large) / float64(shape.small)
			require.LessOrEqual(t, float64(more), times*float64(documents))
			require.LessOrEqual(t, float64(larger), times*float64(bytes))
		})
	}
}
