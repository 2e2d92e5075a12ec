package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
)

// A census walks the keys that it counts, and besides them a few for each type and scene: no count scans a
// collection or sorts.
func TestACensusReadsIndexesOnly(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		n := e.Of(10_000, 2_000)
		x.crowd(n)
		const scenes = 5
		streams := e.Of(1_000, 200)
		x.streams(scenes, streams)
		var c store.Census
		take := func() explained {
			return x.explain("aggregate", func() {
				var err error
				c, err = x.store.TakeCensus(t.Context(), c)
				require.NoError(t, err)
			})
		}
		types := map[string]store.TypeCensus{}
		whole := func() bool { // where a count takes too long, the census has its number of the one before
			for _, typ := range c.Types {
				types[typ.Type] = typ
			}
			hot := types["hot"]
			return hot.Due.N > 0 && hot.Delayed > 0 && hot.Running > 0 && types["other"].Due.N > 0 &&
				len(c.Scenes) == scenes && !slices.ContainsFunc(c.Scenes, func(s store.SceneCensus) bool { return s.Open == 0 })
		}
		counts := take()
		for try := 1; !whole() && try <= 100; try++ {
			counts = take()
		}
		require.EqualValues(t, n, types["hot"].Due.N, "somebody else's")
		require.EqualValues(t, n, types["hot"].Delayed)
		require.EqualValues(t, n, types["hot"].Running)
		require.EqualValues(t, n, types["other"].Due.N)
		require.Len(t, c.Scenes, scenes)
		require.EqualValues(t, streams/scenes, c.Scenes[0].Open)
		require.EqualValues(t, streams/scenes*(2+3), c.Scenes[0].Backlog)
		// MongoDB skips what is due later behind each audience and priority. A server that does not looks
		// at all keys of a type in both counts. Of a stream the count and its linked nodes take a key each,
		// as does each node that is not linked: the explained find reads its document.
		counts.within(t, 6*n+(2+3)*streams+100, 6*n+(2+3)*streams+10)
	})
}

// streams stores that many streams in equally many of each scene, with two linked nodes and three that are not
// linked. It stores as many graphs, too, which the census must not read.
func (x *explaining) streams(scenes, n int) {
	x.t.Helper()
	now := x.store.Clock.Now()
	var flows, nodes []any
	for i := range n {
		scene, group := fmt.Sprintf("s%d", i%scenes), fmt.Sprint(i)
		id := scene + "/" + group
		flows = append(flows,
			&graph.Flow{
				ID: id, Kind: graph.KindStream, Key: group, Scene: scene, Group: group, Status: graph.StatusRunning, UpdatedAt: now,
				States: []graph.State{{Status: graph.NodeSuccess}, {Status: graph.NodeReady}, {Status: graph.NodeWait}},
			},
			&graph.Flow{ID: "-/" + group, Key: group, Status: graph.StatusFinish, UpdatedAt: now})
		for k := range 5 {
			node := &graph.Node{ID: fmt.Sprintf("%s/%d", id, k), FlowID: id, Status: graph.NodeSuccess, At: now}
			if k > 1 {
				node.Status, node.No = graph.NodeInit, int64(k)
			}
			nodes = append(nodes, node)
		}
	}
	for coll, docs := range map[string][]any{"flows": flows, "flow_nodes": nodes} {
		_, err := x.db.Collection(coll).InsertMany(x.t.Context(), docs)
		require.NoError(x.t, err)
	}
}
