package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

const isGone = "the output of node n0 is gone: its task has been deleted"

// The first parent has succeeded long ago; the second one ends now.
func TestANodeWhoseConditionNeedsAnOutputThatIsGoneFails(t *testing.T) {
	gone := &Inputs{Gone: map[Life]bool{{}: true}}
	for _, c := range []struct {
		policy graph.Policy
		nodes  []graph.NodeStatus
		status graph.Status
	}{
		{graph.Suspend, []graph.NodeStatus{graph.NodeSuccess, graph.NodeSuccess, graph.NodePending, graph.NodePending}, graph.StatusPending},
		{graph.Continue, []graph.NodeStatus{graph.NodeSuccess, graph.NodeSuccess, graph.NodeError, graph.NodeReady}, graph.StatusRunning},
		{graph.End, []graph.NodeStatus{graph.NodeSuccess, graph.NodeSuccess, graph.NodeError, graph.NodeSkipped}, graph.StatusFinish},
	} {
		f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0, 1}, When: []string{`{"output.n": 7}`, ""}, OnFailure: c.policy},
			graph.Vertex{After: []int{2}, Join: graph.AllEnded})
		f = ended(t, f, &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, bson.M{"n": 7})}}, model.StatusSuccess, 0)
		require.Equal(t, graph.NodeWait, f.States[2].Status)
		f.Planned = nil
		f = ended(t, f, gone, model.StatusSuccess, 1)
		require.Equal(t, c.nodes, statuses(f), c.policy)
		require.Contains(t, f.States[2].Reason, isGone)
		require.Equal(t, c.status, f.Status)
		require.Equal(t, DoAbort, plans(f)[2], "its task does not stay behind")
	}
}

func TestACustomJoinIsNotAskedAboutAnOutputThatIsGone(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, Join: graph.Custom, Custom: "any"})
	in := &Inputs{Gone: map[Life]bool{{}: true}, Joins: map[string]JoinFunc{"any": func([]Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		t.Fatal("it is asked")
		return "", bson.RawValue{}, nil
	}}}
	f = ended(t, f, in, model.StatusSuccess, 0)
	require.Equal(t, graph.NodePending, f.States[1].Status)
	require.Contains(t, f.States[1].Reason, isGone)
}

func TestANodeWhoseTimeOrElementsAreGoneFails(t *testing.T) {
	f := waiting()
	f.Nodes[1].For, f.Nodes[1].Type, f.Nodes[1].Each = 0, "t", &graph.Each{Items: `{"$output": "n0.list"}`}
	f = ended(t, f, &Inputs{Gone: map[Life]bool{{}: true}}, model.StatusSuccess, 0)
	for _, i := range []int{1, 2} {
		require.Equal(t, graph.NodePending, f.States[i].Status)
		require.Equal(t, isGone, f.States[i].Reason)
	}
}

// n3 fails when it is to start, and ends the flow. n2 comes before it among the nodes, and has been judged.
func TestANodeThatCannotStartEndsAlsoThoseBeforeIt(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, For: time.Hour}, graph.Vertex{After: []int{1}},
		graph.Vertex{After: []int{0}, Until: `{"$output": "n0.at"}`, OnFailure: graph.End}, graph.Vertex{After: []int{2, 3}})
	f.Nodes[1].Type, f.Nodes[3].Type = "", ""
	f = ended(t, f, &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, bson.M{"at": "never"})}}, model.StatusSuccess, 0)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeError, graph.NodeSkipped, graph.NodeError, graph.NodeSkipped}, statuses(f))
	require.Equal(t, graph.StatusFinish, f.Status)
}
