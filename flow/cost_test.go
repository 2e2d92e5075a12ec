package flow

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// counted is a driven engine whose commands are counted, by command and collection, and the
// statements in them.
type counted struct {
	*driven
	commands, statements map[string]int
}

func newCounted(t *testing.T) *counted {
	c := &counted{commands: map[string]int{}, statements: map[string]int{}}
	db := testdb.New(t)
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
			name := e.CommandName + " " + coll
			if name == "update tasks" && strings.Contains(e.Command.String(), "$pull") {
				name += ", outboxes"
			}
			c.commands[name]++
			for _, field := range []string{"documents", "updates"} {
				if list, ok := e.Command.Lookup(field).ArrayOK(); ok {
					of, _ := list.Values()
					c.statements[name] += len(of)
				}
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c.driven = drive(t, db, client.Database(db.Name()))
	return c
}

// count lets something be done, and returns its commands.
func (c *counted) count(do func()) (commands, statements map[string]int) {
	clear(c.commands)
	clear(c.statements)
	do()
	return maps.Clone(c.commands), maps.Clone(c.statements)
}

// The flow is one document, and its tasks are sent by one command. Ends that are there together are
// one decision, whether one node ended or two hundred, and the releases that follow are one
// statement. So a node costs three writes from its start to its end beside those of its task: it is
// sent, and its record is stored when it waits, is ready and has ended.
func TestANodeOfAFanOutCostsItsTaskItsRecordAndNoCommandOfItsOwn(t *testing.T) {
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
	c.e.Round(t.Context()) // the first one reads the types, too

	var doc *graph.Flow
	commands, statements := c.count(func() {
		var err error
		doc, err = c.f.Start(t.Context(), s)
		require.NoError(t, err)
	})
	require.Equal(t, map[string]int{"insert tasks": 1, "insert flow_nodes": 1, "update flows": 2}, commands)
	require.Equal(t, map[string]int{"insert tasks": n + 2, "insert flow_nodes": n + 2, "update flows": 2}, statements)

	decided := map[string]int{"aggregate control": 1, "find flows": 1, "find tasks": 1, "update flow_nodes": 1, "update flows": 1, "update tasks": 1}
	for _, step := range []struct {
		ends              []int
		commands, written map[string]int
	}{
		{[]int{0}, decided, map[string]int{"update flow_nodes": 2, "update flows": 1, "update tasks": 1}},
		{middle, decided, map[string]int{"update flow_nodes": 2, "update flows": 1, "update tasks": 1}},
		{[]int{n + 1}, map[string]int{"aggregate control": 1, "find flows": 1, "update flow_nodes": 2, "update flows": 1}, map[string]int{"update flow_nodes": 2, "update flows": 1}},
	} {
		c.end(doc, step.ends)
		commands, statements := c.count(func() { c.e.Round(t.Context()) })
		for _, later := range []map[string]int{commands, statements} { // what was told leaves its outbox at any time
			delete(later, "update tasks, outboxes")
		}
		require.Equal(t, step.commands, commands)
		require.Equal(t, step.written, statements)
	}
	require.Equal(t, graph.StatusFinish, c.get(doc).Status)

	_, statements = c.count(func() { c.e.Flush(t.Context()) })
	require.LessOrEqual(t, statements["update tasks, outboxes"], n+2, "each end leaves its outbox once")
	require.LessOrEqual(t, statements["update flows"], 1)
}

// end ends the tasks of nodes. When it returns, all ends can be found.
func (c *counted) end(doc *graph.Flow, nodes []int) {
	c.t.Helper()
	var ids []string
	for _, i := range nodes {
		ids = append(ids, taskID(doc, i))
	}
	for _, id := range ids {
		_, err := c.prod.Cancel(c.t.Context(), id, "over")
		require.NoError(c.t, err)
	}
	require.Eventually(c.t, func() bool { return !c.f.store.Clock.Now().Before(c.task(doc, nodes[len(nodes)-1]).OutboxAt) }, time.Minute, time.Millisecond)
}
