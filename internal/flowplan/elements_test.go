package flowplan

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// eachOf is n0, then n1 with an element for each of its output, at most two at once, then n2.
func eachOf(policy graph.Policy) *graph.Flow {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, OnFailure: policy}, graph.Vertex{After: []int{1}})
	f.Nodes[1].Each, f.Nodes[1].Task = &graph.Each{Items: `{"$output":"n0"}`, Limit: 2, Max: 10}, &model.Task{Type: "t"}
	return f
}

func elements(t *testing.T, f *graph.Flow, status model.Status, which ...int) *graph.Flow {
	t.Helper()
	f.Planned = nil
	var ends []End
	for _, k := range which {
		ends = append(ends, End{Node: 1, Element: k + 1, Life: f.States[1].Life, Status: status})
	}
	after, err := Ended(f, ends, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	return after
}

func itemsOf(t *testing.T, list any) *Inputs {
	return &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, list)}}
}

func TestElementsRunAsManyAtOnceAsAreAllowed(t *testing.T) {
	f := ended(t, eachOf(graph.Suspend), itemsOf(t, []int{1, 2, 3, 4, 5}), model.StatusSuccess, 0)
	require.Equal(t, "rrwww", f.States[1].Elements)
	require.Equal(t, map[int]string{1: DoRelease}, plans(f))
	require.NotZero(t, f.RunningAt)
	f = elements(t, f, model.StatusSuccess, 1)
	require.Equal(t, "rsrww", f.States[1].Elements)
	require.Equal(t, map[int]string{1: DoElements}, plans(f))
	require.Equal(t, []int{2}, f.Planned[0].Elements)
	require.Equal(t, []string{"1 of its 5 elements have ended; 2 may run now."}, Explain(f, 1))
	require.Same(t, f, elements(t, f, model.StatusSuccess, 1), "a repeated end changes nothing")
	f = elements(t, f, model.StatusSuccess, 0, 2)
	require.Equal(t, "sssrr", f.States[1].Elements)
	require.Equal(t, []int{3, 4}, f.Planned[0].Elements)
	f = elements(t, f, model.StatusSuccess, 3, 4)
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	require.Equal(t, graph.NodeReady, f.States[1].Status, "its output is gathered first")
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 1)
	require.Equal(t, graph.NodeReady, f.States[2].Status)
}

// The last element that ran ends, and another one is Pending. In the same decision the node's own task ends.
func TestTheEndOfANodeCountsMoreThanThoseOfItsElements(t *testing.T) {
	for policy, want := range map[graph.Policy]graph.State{
		graph.Continue: {Status: graph.NodeError, Reason: "no longer wanted"},
		graph.Suspend:  {Status: graph.NodePending, Own: true, Reason: "no longer wanted"},
	} {
		f := ended(t, eachOf(policy), itemsOf(t, []int{1, 2}), model.StatusSuccess, 0)
		f = elements(t, f, model.StatusPending, 1)
		require.Equal(t, "rp", f.States[1].Elements)
		own, element := End{Node: 1, Status: model.StatusCancelled, ErrorInfo: "no longer wanted"}, End{Node: 1, Element: 1, Status: model.StatusFailure}
		for _, ends := range [][]End{{own, element}, {element, own}} {
			f.Planned = nil
			after, err := Ended(f, ends, &Inputs{}, time.UnixMilli(3_000_000))
			require.NoError(t, err)
			is := after.States[1]
			require.Equal(t, want, graph.State{Status: is.Status, Own: is.Own, Reason: is.Reason})
			require.True(t, slices.ContainsFunc(after.Planned, func(p graph.Planned) bool { return p.Node == 1 && p.Do == DoAbort }), "of the element that is Pending")
		}
	}
}

func TestAnEmptyListIsASuccessAndWhatIsNoneAFailure(t *testing.T) {
	f := ended(t, eachOf(graph.Suspend), itemsOf(t, []int{}), model.StatusSuccess, 0)
	require.Equal(t, graph.NodeReady, f.States[1].Status)
	require.True(t, Gathers(f, 1))
	for want, list := range map[string]any{
		"each.items has 11 elements; at most 10 are allowed (each.max)": make([]int, 11),
		`each.items is "x"; want a list`:                                "x",
	} {
		f := ended(t, eachOf(graph.Suspend), itemsOf(t, list), model.StatusSuccess, 0)
		require.Equal(t, graph.NodePending, f.States[1].Status)
		require.Equal(t, want, f.States[1].Reason)
		f = ended(t, eachOf(graph.Continue), itemsOf(t, list), model.StatusSuccess, 0)
		require.Equal(t, graph.NodeError, f.States[1].Status)
		require.Equal(t, DoAbort, plans(f)[1], "its task does not stay behind")
	}
}

func TestAnElementThatFailsIsAFailureWhenAllHaveEnded(t *testing.T) {
	in := itemsOf(t, []int{1, 2, 3})
	f := ended(t, eachOf(graph.Suspend), in, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusFailure, 0)
	require.Equal(t, map[int]string{1: DoElements}, plans(f), "the others run")
	f = elements(t, f, model.StatusSuccess, 1, 2)
	require.Equal(t, "ess", f.States[1].Elements)
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	f = ended(t, f, in, model.StatusFailure, 1)
	require.Equal(t, graph.NodePending, f.States[1].Status)
	f = elements(t, f, model.StatusSuccess, 0) // a person had it run again
	require.Equal(t, "sss", f.States[1].Elements)
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	f = ended(t, f, in, model.StatusSuccess, 1)
	require.Equal(t, graph.NodeReady, f.States[2].Status)

	f = ended(t, eachOf(graph.End), in, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusFailure, 0)
	require.Equal(t, map[int]string{1: DoGather}, plans(f), "it ends the flow at once")
	f = ended(t, f, in, model.StatusFailure, 1)
	require.Equal(t, graph.StatusFinish, f.Status)
}

func TestElementsEndWithTheirFlowAndBeginAnew(t *testing.T) {
	in := itemsOf(t, []int{1, 2, 3})
	f := ended(t, eachOf(graph.Suspend), in, model.StatusSuccess, 0)
	f.Planned = nil
	f, err := Cancel(f, "", in, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, DoAbort, plans(f)[1])
	require.Equal(t, graph.StatusRunning, f.Status, "elements may run")
	f = elements(t, f, model.StatusCancelled, 0, 1)
	require.Equal(t, "eew", f.States[1].Elements, "no more of them start")
	f = elements(t, f, model.StatusCancelled, 2)
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	f = ended(t, f, in, model.StatusFailure, 1)
	require.Equal(t, graph.StatusFinish, f.Status)
	f.Planned = nil
	f, err = RetryFrom(f, 1, in, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, "rrw", f.States[1].Elements)
	require.Equal(t, DoRestart, plans(f)[1])
	old, err := Ended(f, []End{{Node: 1, Element: 1, Status: model.StatusSuccess}}, in, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Same(t, f, old, "an element of an old life")
}

func TestTheOtherElementsOfANodeThatEndsTheFlowAreCancelled(t *testing.T) {
	in := itemsOf(t, []int{1, 2, 3, 4})
	f := ended(t, eachOf(graph.End), in, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusFailure, 0)
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	f = ended(t, f, in, model.StatusFailure, 1)
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Equal(t, DoAbort, plans(f)[1])
}

// The others go on. When only a person can end the rest, the node is PENDING, whatever its policy.
func TestAnElementWhoseTaskIsPendingKeepsItsNodeOpen(t *testing.T) {
	for _, policy := range []graph.Policy{graph.Suspend, graph.Continue, graph.End} {
		in := itemsOf(t, []int{1, 2, 3, 4})
		f := ended(t, eachOf(policy), in, model.StatusSuccess, 0)
		f = elements(t, f, model.StatusPending, 1)
		require.Equal(t, "rprw", f.States[1].Elements, "it takes no turn from the others")
		require.Equal(t, []string{"0 of its 4 elements have ended; 1 are Pending; 2 may run now."}, Explain(f, 1))
		f = elements(t, f, model.StatusPending, 2)
		require.Equal(t, "rppr", f.States[1].Elements)
		require.Equal(t, graph.NodeReady, f.States[1].Status)
		f = elements(t, f, model.StatusSuccess, 0, 3)
		require.Equal(t, graph.NodePending, f.States[1].Status)
		require.Equal(t, "2 of its 4 elements are Pending, the first is element 1", f.States[1].Reason)
		require.Equal(t, map[int]string{1: DoAlert}, plans(f))
		require.Contains(t, Explain(f, 1), "Resolve or retry the tasks of these elements, or decide about the node.")
		require.Same(t, f, elements(t, f, model.StatusPending, 1), "a repeated end changes nothing")

		f = elements(t, f, model.StatusManuallyProcessed, 1)
		require.Equal(t, "1 of its 4 elements are Pending, the first is element 2", f.States[1].Reason)
		require.Equal(t, map[int]string{}, plans(f))

		good := elements(t, f, model.StatusSuccess, 2) // a person had it run again
		require.Equal(t, map[int]string{1: DoGather}, plans(good))
		good = ended(t, good, in, model.StatusSuccess, 1)
		require.Equal(t, graph.NodeReady, good.States[2].Status)

		bad := elements(t, f, model.StatusCancelled, 2) // or gave it up
		require.Equal(t, "sses", bad.States[1].Elements)
		require.Equal(t, map[int]string{1: DoGather}, plans(bad))
		bad = ended(t, bad, in, model.StatusFailure, 1)
		require.Equal(t, map[graph.Policy]graph.NodeStatus{graph.Suspend: graph.NodePending, graph.Continue: graph.NodeError, graph.End: graph.NodeError}[policy], bad.States[1].Status)
	}
}

func TestAPendingElementOfAFlowThatEndsIsCancelled(t *testing.T) {
	in := itemsOf(t, []int{1, 2, 3})
	f := ended(t, eachOf(graph.End), in, model.StatusSuccess, 0)
	f = elements(t, f, model.StatusPending, 0)
	f.Planned = nil
	closed, err := Cancel(f, "", in, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	closed = elements(t, closed, model.StatusPending, 1) // before its cancel arrived
	closed = elements(t, closed, model.StatusCancelled, 2)
	require.Equal(t, "ppe", closed.States[1].Elements)
	require.Equal(t, graph.NodeReady, closed.States[1].Status, "they are cancelled")
	closed = elements(t, closed, model.StatusCancelled, 0, 1)
	require.Equal(t, map[int]string{1: DoGather}, plans(closed))

	f = elements(t, f, model.StatusFailure, 1) // which ends the flow
	require.Equal(t, map[int]string{1: DoGather}, plans(f))
	f = ended(t, f, in, model.StatusFailure, 1)
	require.Equal(t, DoAbort, plans(f)[1])
}
