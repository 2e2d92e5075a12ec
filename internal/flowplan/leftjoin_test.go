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
		left, err := decide(lacks)
		require.NoError(t, err)
		require.Equal(t, []graph.NodeStatus{graph.NodeWait, graph.NodeWait}, statuses(left)[4:], what)
		require.True(t, left.DueAt.Equal(now))
		require.Contains(t, Explain(left, 4), "An engine that has this function calls it within two minutes; one must run.")
		require.Equal(t, asking, asked)

		later := now.Add(time.Minute)
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

// n1 and the join of n2 are behind n0. No process here has that join.
func TestAJoinThatNoEngineHasKeepsNothingButItsOwnNode(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}, Join: graph.Custom, Custom: "nobody"}, graph.Vertex{After: []int{1, 2}})
	lacks, now := &Inputs{}, time.UnixMilli(3_000_000)
	end := func(f *graph.Flow, node int, now time.Time) *graph.Flow {
		t.Helper()
		f, err := Ended(f, []End{{Node: node, Status: model.StatusSuccess}}, lacks, now)
		require.NoError(t, err)
		return f
	}
	f = end(f, 0, now)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeReady, graph.NodeWait, graph.NodeWait}, statuses(f))
	require.True(t, f.DueAt.Equal(now), "an engine that has the join is asked at once")
	require.Equal(t, graph.StatusRunning, f.Status)

	later := now.Add(time.Second)
	f = end(f, 1, later)
	require.Equal(t, graph.NodeSuccess, f.States[1].Status)
	require.True(t, f.DueAt.Equal(now), "the turns of the other engines go on")

	for range 3 {
		last := f.DueAt.Add(leftTurns - time.Millisecond)
		_, err := Ended(f, nil, lacks, last)
		require.ErrorAs(t, err, new(*NoJoinError))
		rare := last.Add(time.Millisecond)
		if f, err = Ended(f, nil, lacks, rare); err != nil {
			t.Fatal(err)
		}
		require.True(t, f.DueAt.Equal(rare.Add(leftPause)), "no engine has it")
		require.Equal(t, graph.StatusRunning, f.Status)
		same, err := Ended(f, nil, lacks, f.DueAt.Add(-time.Millisecond))
		require.NoError(t, err)
		require.Same(t, f, same)
	}

	has := &Inputs{Outputs: map[Life]bson.RawValue{{}: {}}, Joins: map[string]JoinFunc{"nobody": func([]Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
		return graph.NodeReady, bson.RawValue{}, nil
	}}}
	f, err := Ended(f, nil, has, f.DueAt)
	require.NoError(t, err)
	require.Equal(t, graph.NodeReady, f.States[2].Status)
	require.True(t, f.DueAt.IsZero())
}

// A parent that ends asks the engines anew, also where none had the join before.
func TestAnEndAsksForALeftJoinAtOnce(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0, 1}, Join: graph.Custom, Custom: "nobody"})
	now := time.UnixMilli(3_000_000)
	f, err := Ended(f, []End{{Node: 0, Status: model.StatusSuccess}}, &Inputs{}, now)
	require.NoError(t, err)
	f, err = Ended(f, nil, &Inputs{}, now.Add(leftTurns))
	require.NoError(t, err)
	later := now.Add(leftTurns + time.Second)
	f, err = Ended(f, []End{{Node: 1, Status: model.StatusSuccess}}, &Inputs{}, later)
	require.NoError(t, err)
	require.True(t, f.DueAt.Equal(later))
}
