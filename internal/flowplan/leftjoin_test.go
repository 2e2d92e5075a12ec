package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// A person resolves n1 in a process that does not have the join of n4. n2 has succeeded, and n3 runs.
func TestAJoinThatAProcessDoesNotHaveIsLeftToAnEngineThatHas(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}},
		graph.Vertex{After: []int{1, 2}, Join: graph.Custom, Custom: "two"}, graph.Vertex{After: []int{3, 4}})
	asked := 0
	has := &Inputs{Outputs: map[Life]bson.RawValue{{}: {}, {Node: 1}: {}, {Node: 2}: {}}, Joins: map[string]JoinFunc{
		"two": func(ps []Parent, _ bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
			if asked++; ps[0].Status == graph.NodeSuccess && ps[1].Status == graph.NodeSuccess {
				return graph.NodeReady, bson.RawValue{}, nil
			}
			return graph.NodeWait, bson.RawValue{}, nil
		},
	}}
	f = ended(t, f, has, model.StatusSuccess, 0)
	f = ended(t, f, has, model.StatusSuccess, 2)
	f = ended(t, f, has, model.StatusFailure, 1)
	require.Equal(t, graph.NodePending, f.States[4].Status)
	lacks, asking, now := &Inputs{}, asked, time.UnixMilli(3_000_000)
	for what, decide := range map[string]func(in *Inputs) (*graph.Flow, error){
		"resolve": func(in *Inputs) (*graph.Flow, error) { return Resolve(f, 1, graph.NodeSuccess, "", in, now) },
		"retry":   func(in *Inputs) (*graph.Flow, error) { return RetryFrom(f, 1, in, now) },
	} {
		_, err := decide(lacks)
		require.ErrorAs(t, err, new(*NoJoinError), what)
		left, err := decide(&Inputs{Person: true})
		require.NoError(t, err)
		require.Equal(t, []graph.NodeStatus{graph.NodeWait, graph.NodeWait}, statuses(left)[4:], what)
		require.True(t, left.DueAt.Equal(now))
		require.Contains(t, Explain(left, 4), "An engine that has this function calls it within seconds; one must run.")
		require.Equal(t, asking, asked)

		later := time.UnixMilli(4_000_000)
		_, err = Ended(left, nil, lacks, later)
		require.ErrorAs(t, err, new(*NoJoinError), "another engine has it")
		more, err := Ended(left, []End{{Node: 3, Status: model.StatusSuccess}}, lacks, later)
		require.NoError(t, err, "the other nodes do not wait for that engine")
		require.Equal(t, graph.NodeSuccess, more.States[3].Status)
		require.True(t, more.DueAt.Equal(now))
		require.Equal(t, graph.StatusRunning, more.Status)
		done, err := Ended(more, nil, has, later)
		require.NoError(t, err)
		require.True(t, done.DueAt.IsZero())
		require.Equal(t, map[string]graph.NodeStatus{"resolve": graph.NodeReady, "retry": graph.NodeWait}[what], done.States[4].Status)
		asking = asked

		over, err := Cancel(left, "", lacks, later)
		require.NoError(t, err)
		require.True(t, over.DueAt.IsZero(), "nobody asks any more")
	}
}
