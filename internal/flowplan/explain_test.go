package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// chain is a flow whose nodes come one after the other.
func chain(names ...string) *graph.Flow {
	f := &graph.Flow{ID: "-/f", Status: graph.StatusRunning}
	for i, name := range names {
		v, st := graph.Vertex{ID: name, Join: graph.AllSucceeded}, graph.State{Status: graph.NodeReady}
		if i > 0 {
			v.After, st.Status = []int{i - 1}, graph.NodeWait
		}
		f.Nodes, f.States = append(f.Nodes, v), append(f.States, st)
	}
	return f
}

func alerts(f *graph.Flow) (nodes []int) {
	for _, p := range f.Planned {
		if p.Do == DoAlert {
			nodes = append(nodes, p.Node)
		}
	}
	return nodes
}

func TestAnExplanationNamesTheNodeThatAPersonMustResolve(t *testing.T) {
	f := chain("a", "b", "c")
	require.Equal(t, []string{"It starts when all its parents have succeeded.", "It waits for b."}, Explain(f, 2))
	now := time.UnixMilli(1000)
	f, err := Ended(f, []End{{Node: 0, Status: model.StatusFailure, ErrorInfo: "no"}}, &Inputs{}, now)
	require.NoError(t, err)
	require.Equal(t, []string{"It is PENDING: blocked by b, which is PENDING.", "It starts when all its parents have succeeded.", "Resolve a to let it go on."}, Explain(f, 2))
	require.Equal(t, []int{0}, alerts(f), "the others hang on it")
	require.Equal(t, "node a: its task failed: no", f.Reason)

	f.Planned = nil
	f, err = Resolve(f, 1, graph.NodeSuccess, "by hand", &Inputs{}, now)
	require.NoError(t, err)
	require.Empty(t, alerts(f), "a was told of before")
	f, err = Ended(f, []End{{Node: 2, Status: model.StatusSuccess}}, &Inputs{}, now)
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Empty(t, f.Reason, "nobody waits for a any more")
}
