package flowplan

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// endedEarly is n1, which has failed and ends the flow while n2 runs, n3 behind n2, n4 on a branch that is not taken, and
// n5 behind all of them.
func endedEarly(t *testing.T) *graph.Flow {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, OnFailure: graph.End}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{2}},
		graph.Vertex{After: []int{0}, When: []string{`{"output.yes": true}`}}, graph.Vertex{After: []int{1, 3, 4}})
	f = ended(t, f, &Inputs{Taken: map[Edge]bool{{Node: 4}: false}}, model.StatusSuccess, 0)
	f = ended(t, f, &Inputs{}, model.StatusFailure, 1)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeError, graph.NodeReady, graph.NodeSkipped, graph.NodeSkipped, graph.NodeSkipped}, statuses(f))
	return f
}

// A branch that the end of the flow has cut off does not count as one that is not taken.
func TestWhatTheEndOfAFlowSkippedIsJudgedAgainWhenTheFlowGoesOn(t *testing.T) {
	f := ended(t, endedEarly(t), &Inputs{}, model.StatusCancelled, 2)
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Equal(t, "It waits for its parents again if the flow is retried.", Explain(f, 3)[1])
	require.Len(t, Explain(f, 4), 1)
	f.Planned = nil
	f, err := RetryFrom(f, 1, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeReady, graph.NodeError, graph.NodePending, graph.NodeSkipped, graph.NodePending}, statuses(f))
	require.Equal(t, "n2 failed, and all parents must succeed", f.States[3].Reason)
	require.Equal(t, []string{DoReset, DoAlert}, actions(f, 3))
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 1)
	require.Equal(t, graph.StatusPending, f.Status)

	f.Planned = nil
	f, err = RetryFrom(f, 2, &Inputs{}, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	for _, i := range []int{2, 3, 5} {
		require.Equal(t, graph.NodeReady, f.States[i].Status)
		f = ended(t, f, &Inputs{}, model.StatusSuccess, i)
	}
	require.Equal(t, graph.StatusFinish, f.Status)
}

func TestWhatTheEndOfAFlowSkippedRunsAfterWhatStillRuns(t *testing.T) {
	f := endedEarly(t)
	f.Planned = nil
	f, err := RetryFrom(f, 1, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodeWait, f.States[3].Status)
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 2)
	require.Equal(t, map[int]string{3: DoRelease}, plans(f), "its task is of the life that the retry began")
	require.Equal(t, int64(1), f.States[3].Life)
}

func TestElementsOfTheLastLifeThatMayNotHaveEndedAreDropped(t *testing.T) {
	in := itemsOf(t, []int{1, 2, 3, 4})
	f := ended(t, eachOf(graph.Suspend), in, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusFailure, 1, 2)
	f = elements(t, f, model.StatusPending, 3)
	require.Equal(t, "seep", f.States[1].Elements)
	require.Equal(t, graph.NodePending, f.States[1].Status)
	for node, want := range []string{"", "rrww"} {
		f.Planned = nil
		again, err := RetryFrom(f, node, in, time.UnixMilli(4_000_000))
		require.NoError(t, err)
		require.Equal(t, want, again.States[1].Elements)
		drop := again.Planned[slices.IndexFunc(again.Planned, func(p graph.Planned) bool { return p.Do == DoDrop })]
		require.Equal(t, graph.Planned{ID: drop.ID, Node: 1, Do: DoDrop, Elements: []int{1, 2, 3}}, drop)
		again.States[1].Status = graph.NodePending
		for status, after := range map[model.Status]model.Status{model.StatusPending: model.StatusCancelled, model.StatusNew: model.StatusCancelled, model.StatusFailure: model.StatusFailure} {
			require.Equal(t, after, Aborted(again, &drop, &model.Task{Status: status}, lifecycle.ResolveOptions(), time.UnixMilli(4_000_000)).Status)
		}
	}
}
