package flow

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
)

func TestWhatChangedInAFlowIsToldInTheOrderOfTime(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	before := &graph.Flow{
		ID: "-/k", Rev: 1, Status: graph.StatusRunning, UpdatedAt: at, Nodes: []graph.Vertex{{ID: "a"}, {ID: "b"}, {ID: "c"}},
		States: []graph.State{{Status: graph.NodeReady, At: at}, {Status: graph.NodeWait, At: at}, {Status: graph.NodeWait, At: at}},
	}
	var told []string
	w := &watch{yield: func(e Event, err error) bool {
		told = append(told, fmt.Sprintf("%d %s %s %s %s", e.At.Unix()-at.Unix(), e.Node, e.Status, e.Reason, e.Flow))
		return true
	}}
	became := func(doc *graph.Flow) []string {
		told = nil
		require.NoError(t, w.became(doc))
		return told
	}
	require.Equal(t, []string{"0 a READY  RUNNING", "0    RUNNING"}, became(before))
	require.Empty(t, became(before))
	after := *before
	after.Rev, after.Status, after.Reason, after.UpdatedAt = 3, graph.StatusPending, "node b: broken", at.Add(2*time.Second)
	after.States = []graph.State{
		{Status: graph.NodeSuccess, At: at.Add(time.Second)}, {Status: graph.NodePending, Reason: "broken", At: at.Add(2 * time.Second)}, {Status: graph.NodeWait, At: at},
	}
	require.Equal(t, []string{"1 a SUCCESS  PENDING", "2 b PENDING broken PENDING", "2   node b: broken PENDING"}, became(&after))
}
