package flowplan

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// saving is n0 and n1, then nodes with a custom join after both. It saves so many bytes, until both have ended.
func saving(t *testing.T, joins, size int) (*graph.Flow, *Inputs) {
	t.Helper()
	nodes := []graph.Vertex{{}, {After: []int{0}, Join: graph.AllEnded}}
	for range joins {
		nodes = append(nodes, graph.Vertex{After: []int{0, 1}, Join: graph.Custom, Custom: "j"})
	}
	kind, raw, err := bson.MarshalValue(strings.Repeat("x", size))
	require.NoError(t, err)
	in := &Inputs{Outputs: map[Life]bson.RawValue{{Node: 0}: {}, {Node: 1}: {}}, Joins: map[string]JoinFunc{"j": func(parents []Parent, _ bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		verdict := graph.NodeReady
		if parents[1].Status != graph.NodeSuccess {
			verdict = graph.NodeWait
		}
		return verdict, bson.RawValue{Type: kind, Value: raw}, nil
	}}}
	return made(nodes...), in
}

func savedBytes(f *graph.Flow) (n int) {
	for i := range f.States {
		n += len(f.States[i].Context.Value)
	}
	return n
}

// The document of a flow must not become larger than MongoDB allows.
func TestWhatCustomJoinsSaveTogetherIsBounded(t *testing.T) {
	f, in := saving(t, 300, 60<<10)
	end := []End{{Node: 0, Status: model.StatusSuccess}}
	_, err := Ended(f, end, in, time.UnixMilli(2_000_000))
	require.ErrorAs(t, err, new(*JoinError))
	const why = "it saves 61445 bytes; joins may save 1048576 together beside the first values, and others have 1044565"
	require.ErrorContains(t, err, why)
	in.Impatient = true
	f, err = Ended(f, end, in, time.UnixMilli(2_000_000))
	require.NoError(t, err)
	require.LessOrEqual(t, savedBytes(f), 1<<20)
	n := map[graph.NodeStatus]int{}
	for i := 2; i < len(f.States); i++ {
		if n[f.States[i].Status]++; f.States[i].Status == graph.NodePending {
			require.Equal(t, fmt.Sprintf("join function %q fails: %s", "j", why), f.States[i].Reason)
		}
	}
	require.Equal(t, map[graph.NodeStatus]int{graph.NodeWait: 17, graph.NodePending: 283}, n)
	f = ended(t, f, in, model.StatusSuccess, 1)
	for i := 2; i < len(f.States); i++ {
		require.Equal(t, graph.NodeReady, f.States[i].Status, "what is saved no more needs no room")
	}
	require.Zero(t, savedBytes(f))
}

// The first values are in the definition, whose size is checked, so there is as much room beside them.
func TestFirstValuesOfCustomJoinsNeedNoRoom(t *testing.T) {
	f, in := saving(t, 40, 60<<10)
	kind, raw, err := bson.MarshalValue(strings.Repeat("y", 60<<10))
	require.NoError(t, err)
	for i := 2; i < len(f.Nodes)-1; i++ {
		f.Nodes[i].Context = bson.RawValue{Type: kind, Value: raw}
		f.States[i].Context = f.Nodes[i].Context
	}
	f = ended(t, f, in, model.StatusSuccess, 0)
	require.Greater(t, savedBytes(f), 2<<20)
	f = ended(t, f, in, model.StatusSuccess, 1)
	require.Zero(t, savedBytes(f))
	var all []int
	for i := 2; i < len(f.Nodes); i++ {
		all = append(all, i)
	}
	f, err = RetryFrom(ended(t, f, in, model.StatusSuccess, all...), 0, in, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	for i := range f.Nodes {
		require.True(t, bytes.Equal(f.Nodes[i].Context.Value, f.States[i].Context.Value), "a new life begins with the first value")
	}
}
