package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// Each of the outputs is small, and the arguments are not read at all.
func TestPagesOfNodesHaveFewMegabytesOfOutputs(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	t.Parallel()
	var read atomic.Int64 // bytes
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		read.Add(int64(len(e.Reply)))
	}}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	w := newWorld(t, func(c *rest.Config) { c.Database = client.Database(c.Database.Name()) })
	const n, each = 30, 600 << 10
	var nodes, want []any
	succeeded := bson.D{}
	for i := range n {
		node := map[string]any{"id": fmt.Sprint("n", i), "type": "t", "args": strings.Repeat("x", 1000)}
		if i > 0 {
			node["after"] = []string{fmt.Sprint("n", i-1)}
		}
		nodes, want = append(nodes, node), append(want, node["id"])
		succeeded = append(succeeded, bson.E{Key: fmt.Sprintf("states.%d.s", i), Value: "SUCCESS"})
	}
	body, err := json.Marshal(map[string]any{"key": "k", "nodes": nodes})
	require.NoError(t, err)
	w.ok("POST", flowsAt, string(body))
	_, err = w.db.Collection("flows").UpdateByID(t.Context(), "-/k", bson.D{{Key: "$set", Value: succeeded}})
	require.NoError(t, err)
	_, err = w.db.Collection("tasks").UpdateMany(t.Context(), bson.D{{Key: "type", Value: "t"}}, bson.D{{Key: "$set", Value: bson.D{
		{Key: "status", Value: "Success"}, {Key: "result", Value: strings.Repeat("x", each)}, {Key: "checkpoint", Value: strings.Repeat("y", 1<<20)},
	}}})
	require.NoError(t, err)

	const page, all = 8<<20 + 2*each, n * each
	var got []any
	pages := 0
	for token := ""; ; pages++ {
		read.Store(0)
		a := w.ok("GET", flowsAt+"/-/k/nodes?limit=1000&page_token="+token, "")
		require.Less(t, read.Load(), int64(2*page), "and no checkpoints")
		bytes := 0
		for _, node := range a["nodes"].([]any) {
			got = append(got, at(node, "node"))
			output, _ := at(node, "output").(string)
			require.Len(t, output, each, "%v", node)
			bytes += each
		}
		require.Less(t, bytes, page)
		next, more := a["next"].(string)
		if !more {
			break
		}
		token = next
	}
	require.Equal(t, want, got)
	require.GreaterOrEqual(t, pages, all/page)

	for path, outputs := range map[string]int{"/nodes?limit=1000&outputs=false": 0, "/picture": 0, "/picture?format=gantt": 0, "/nodes?node=n7": 1} {
		read.Store(0)
		a := w.do("GET", flowsAt+"/-/k"+path, "")
		require.Equal(t, 200, a.status, a.text)
		require.Less(t, read.Load(), int64(outputs*each+200<<10), path)
		require.Equal(t, outputs, strings.Count(a.text, `"output"`), path)
	}
	one := w.ok("GET", flowsAt+"/-/k/nodes?node=n7", "")
	require.Len(t, one["nodes"], 1)
	require.Equal(t, "n7", at(one, "nodes.0.node"))
	require.NotContains(t, one, "next")
	require.Empty(t, w.ok("GET", flowsAt+"/-/k/nodes?node=nobody", "")["nodes"])
}
