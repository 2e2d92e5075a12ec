package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestASweepLinksNodesForWhichNobodyLooks(t *testing.T) {
	f, err := New(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	var lost []*graph.Node
	for s := range 3 {
		group := fmt.Sprint(s)
		_, err = f.Append(t.Context(), "s", group, graph.NodeSpec{ID: "a", Type: "t"})
		require.NoError(t, err)
		nodes, err := flowspec.Append("s", group, []graph.NodeSpec{{ID: "b", Type: "t"}, {ID: "c", Type: "t"}}, nil, f.store.Clock.Now())
		require.NoError(t, err)
		nodes[0].No, nodes[1].No = 2, 7 // the document knows of one
		lost = append(lost, nodes...)
	}
	require.NoError(t, f.Flush(t.Context()))
	require.NoError(t, f.store.Nodes.Append(t.Context(), lost))
	require.NoError(t, planner{f}.Sweep(t.Context()))
	for s := range 3 {
		doc, err := f.Get(t.Context(), fmt.Sprint("s/", s))
		require.NoError(t, err)
		require.Len(t, doc.Nodes, 3)
	}
}
