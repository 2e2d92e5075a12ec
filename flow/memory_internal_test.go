package flow

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
)

// The bound on what an engine remembers holds only if the largest parts of a flow count.
func TestTheSizeOfAFlowCountsWhatItsNodesStart(t *testing.T) {
	const much = 1 << 20
	text := strings.Repeat("x", much)
	for name, v := range map[string]graph.Vertex{
		"flow": {Flow: &graph.Spec{Description: text}}, "when": {When: []string{text}}, "args": {Args: text},
	} {
		require.Greater(t, sizeOf(&graph.Flow{Nodes: []graph.Vertex{v}, States: []graph.State{{}}}), much, name)
	}
	require.Greater(t, sizeOf(&graph.Flow{Nodes: []graph.Vertex{{}}, States: []graph.State{{Elements: text}}}), much)
	require.True(t, isOver(&graph.Flow{Status: graph.StatusFinish}), "nothing is decided about it any more")
	require.False(t, isOver(&graph.Flow{Status: graph.StatusPending}))
}

func TestManySmallMemoriesOfFlowsAreBounded(t *testing.T) {
	t.Parallel()
	m := memory{flows: map[string]*memo{}}
	for i := range 2 * maxMemory >> 10 {
		f := &graph.Flow{ID: strconv.Itoa(i)}
		what := newMemo(f)
		what.taken[flowplan.Edge{}] = true
		m.keep(f, what)
	}
	require.LessOrEqual(t, len(m.flows), maxMemory>>10)
	require.LessOrEqual(t, m.bytes, maxMemory)
}
