package flowplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// made is a flow that runs. Each node but the first is given with its parents; the first is READY.
func made(nodes ...graph.Vertex) *graph.Flow {
	at := time.UnixMilli(1_000_000)
	f := &graph.Flow{ID: "-/f", Status: graph.StatusRunning, Rev: 1, RunningAt: at}
	for i, v := range nodes {
		v.ID, v.Type = fmt.Sprint("n", i), "t"
		f.Nodes = append(f.Nodes, v)
		f.States = append(f.States, graph.State{Status: graph.NodeWait, At: at})
	}
	f.States[0].Status = graph.NodeReady
	return f
}

// ended is the flow after the tasks of nodes have ended, and what that planned.
func ended(t *testing.T, f *graph.Flow, in *Inputs, status model.Status, nodes ...int) *graph.Flow {
	t.Helper()
	f.Planned = nil
	var ends []End
	for _, i := range nodes {
		ends = append(ends, End{Node: i, Life: f.States[i].Life, Status: status})
	}
	after, err := Ended(f, ends, in, time.UnixMilli(2_000_000))
	require.NoError(t, err)
	return after
}

// plans are what a flow plans about nodes, by node.
func plans(f *graph.Flow) map[int]string {
	out := map[int]string{}
	for _, p := range f.Planned {
		if p.Do != "" && OfNode(&p) {
			out[p.Node] = p.Do
		}
	}
	return out
}

// suspended is n1 that fails, n2 behind it, n3 that succeeds, and n4, which one of these satisfies.
func suspended(t *testing.T) *graph.Flow {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{1}}, graph.Vertex{After: []int{0}},
		graph.Vertex{After: []int{2, 3}, Join: graph.AtLeast, N: 1})
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 0)
	f = ended(t, f, &Inputs{}, model.StatusFailure, 1)
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 3)
	require.Equal(t, graph.NodeReady, f.States[4].Status)
	return f
}

func TestANodeWhoseJoinHoldsAlreadyRunsAtOnceInItsNewLife(t *testing.T) {
	f := ended(t, suspended(t), &Inputs{}, model.StatusSuccess, 4)
	f.Planned = nil
	f, err := RetryFrom(f, 2, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodeReady, f.States[4].Status)
	require.Equal(t, map[int]string{2: DoRestart, 4: DoRestart}, plans(f), "its old task has ended: a release alone does nothing")
}

func TestAnEndAfterTheFlowIsOverChangesNothing(t *testing.T) {
	f := ended(t, suspended(t), &Inputs{}, model.StatusSuccess, 4)
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Equal(t, graph.NodePending, f.States[1].Status)
	require.Same(t, f, ended(t, f, &Inputs{}, model.StatusSuccess, 1), "a person had the task run again")
}

func TestANodeThatHangsCanRunAfterTheFlowThatWasOverGoesOn(t *testing.T) {
	f := ended(t, suspended(t), &Inputs{}, model.StatusSuccess, 4)
	require.Equal(t, map[int]string{1: DoAbort, 2: DoAbort}, plans(f))
	f.Planned = nil
	f, err := RetryFrom(f, 3, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, map[int]string{2: DoReset, 3: DoRestart, 4: DoReset}, plans(f))
	f.Planned = nil
	f, err = Resolve(f, 1, graph.NodeSuccess, "", &Inputs{}, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, map[int]string{1: DoAbort, 2: DoRelease}, plans(f))
}

// A node hangs on one parent, and the other one begins again: in its new life it hangs at once, and its task is
// of that life when it is released.
func TestANodeThatHangsAgainInItsNewLifeHasATaskOfThatLife(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{1, 2}, Join: graph.AllEnded})
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 0)
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 2)
	f = ended(t, f, &Inputs{}, model.StatusFailure, 1)
	require.Equal(t, graph.NodePending, f.States[3].Status)
	f.Planned = nil
	f, err := RetryFrom(f, 2, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodePending, f.States[3].Status)
	require.Equal(t, []string{DoReset}, actions(f, 3))
	ids := map[string]bool{}
	for _, p := range f.Planned {
		ids[p.ID] = true
		require.True(t, p.Node != 3 || p.Life == 1)
	}
	require.Len(t, ids, len(f.Planned))

	again, err := Resolve(f, 1, graph.NodeError, "", &Inputs{}, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodeWait, again.States[3].Status, "its other parent runs")
	require.Equal(t, DoRelease, plans(ended(t, again, &Inputs{}, model.StatusSuccess, 2))[3])
}

func TestTheTaskOfANodeThatItsJoinStoppedDoesNotStayBehind(t *testing.T) {
	for _, over := range []bool{false, true} {
		f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, Join: graph.Custom, Custom: "no"}, graph.Vertex{After: []int{0}},
			graph.Vertex{After: []int{1, 2}, Join: graph.AtLeast, N: 1})
		in := &Inputs{Outputs: map[Life]bson.RawValue{{}: {}}, Joins: map[string]JoinFunc{
			"no": func([]Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
				return graph.NodePending, bson.RawValue{}, nil
			},
		}}
		f = ended(t, f, in, model.StatusSuccess, 0)
		require.True(t, f.States[1].Own)
		if over {
			f = ended(t, f, in, model.StatusSuccess, 2)
			f = ended(t, f, in, model.StatusSuccess, 3)
			require.Equal(t, graph.StatusFinish, f.Status)
		} else {
			var err error
			f.Planned = nil
			f, err = Cancel(f, "", in, time.UnixMilli(3_000_000))
			require.NoError(t, err)
		}
		require.Equal(t, DoAbort, plans(f)[1])
	}
}

// Ten thousand nodes that fail, each with an error of 4 KB, do not make the document too large.
func TestReasonsOfManyNodesStaySmall(t *testing.T) {
	nodes := slices.Repeat([]graph.Vertex{{After: []int{0}}}, 10_000)
	nodes[0] = graph.Vertex{}
	f := ended(t, made(nodes...), &Inputs{}, model.StatusSuccess, 0)
	f.Planned = nil
	var ends []End
	for i := 1; i < len(nodes); i++ {
		ends = append(ends, End{Node: i, Status: model.StatusFailure, ErrorInfo: strings.Repeat("no ", 1300)})
	}
	f, err := Ended(f, ends, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	raw, err := bson.Marshal(f)
	require.NoError(t, err)
	require.Less(t, len(raw), 4<<20)
	require.Contains(t, f.States[1].Reason, "its task failed: no no no")
}

// n1 is skipped and n2 fails, in either order: what is behind them is SKIPPED.
func TestTheOrderOfEndsDoesNotMatterToASkippedNode(t *testing.T) {
	for _, join := range []graph.Vertex{{Join: graph.AtLeast, N: 2}, {Join: graph.These, These: []int{1, 2}}} {
		for _, order := range [][]int{{1, 2}, {2, 1}} {
			join.After = []int{1, 2}
			f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}, OnFailure: graph.Continue}, join)
			f.Nodes[3].When = []string{`{"output.yes": true}`, ""}
			in := &Inputs{Outputs: map[Life]bson.RawValue{{Node: 1}: {}}}
			f = ended(t, f, in, model.StatusSuccess, 0)
			for _, i := range order {
				f = ended(t, f, in, map[int]model.Status{1: model.StatusSuccess, 2: model.StatusFailure}[i], i)
			}
			require.Equal(t, graph.NodeSkipped, f.States[3].Status, "%s, %v", join.Join, order)
		}
	}
}

func TestANewLifeThatIsSkippedAtOnceBeginsAllTheSame(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{1, 2}, Join: graph.Custom, Custom: "first"})
	f.Nodes[3].Flow = &graph.Spec{}
	in := &Inputs{Outputs: map[Life]bson.RawValue{{}: {}, {Node: 2}: {}, {Node: 1}: {}}, Joins: map[string]JoinFunc{
		"first": func(ps []Parent, _ bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
			if ps[0].Status == graph.NodeSuccess {
				return graph.NodeReady, bson.RawValue{}, nil
			}
			return graph.NodeSkipped, bson.RawValue{}, nil
		},
	}}
	f = ended(t, f, in, model.StatusSuccess, 0)
	f = ended(t, f, in, model.StatusSuccess, 1)
	require.Equal(t, graph.NodeReady, f.States[3].Status)
	f = ended(t, f, in, model.StatusSuccess, 2)
	f = ended(t, f, in, model.StatusPending, 3)
	require.Equal(t, graph.NodePending, f.States[3].Status)
	f.Planned = nil
	f, err := RetryFrom(f, 1, in, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodeSkipped, f.States[3].Status)
	require.Equal(t, []string{DoReset, DoAbort}, actions(f, 3), "the flow of its earlier life is cancelled with that")
}

func TestANewLifeThatCannotStartBeginsAllTheSame(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}})
	f.Nodes[1].Args = `{"$output":"n0"}`
	in := &Inputs{}
	f = ended(t, f, in, model.StatusSuccess, 0)
	f = ended(t, f, in, model.StatusFailure, 1)
	f.Planned = nil
	f, err := RetryFrom(f, 1, in, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	f, err = Fail(f, 1, "args", in, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, []string{DoReset, DoAlert, DoAbort}, actions(f, 1))
}

func TestAJoinWhoseAnswerCannotBeUsedFails(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, Join: graph.Custom, Custom: "broken"})
	type answer struct {
		verdict graph.NodeStatus
		save    bson.RawValue
	}
	for why, answers := range map[string][]answer{
		"it saves a value that is not BSON":    {{graph.NodeWait, bson.RawValue{Type: bson.TypeString, Value: []byte("abc")}}, {graph.NodeReady, bson.RawValue{Type: 0x42, Value: []byte{1}}}, {graph.NodeWait, bson.RawValue{Value: []byte{1}}}},
		"want WAIT, READY, PENDING or SKIPPED": {{"", bson.RawValue{}}, {graph.NodeSuccess, bson.RawValue{}}, {"ready", bson.RawValue{}}},
	} {
		for _, said := range answers {
			in := &Inputs{Outputs: map[Life]bson.RawValue{{}: {}}, Joins: map[string]JoinFunc{
				"broken": func([]Parent, bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
					return said.verdict, said.save, nil
				},
			}}
			_, err := Ended(f, []End{{Node: 0, Status: model.StatusSuccess}}, in, time.UnixMilli(2_000_000))
			failed := (*JoinError)(nil)
			require.ErrorAs(t, err, &failed, "%v", said)
			require.Equal(t, JoinError{Flow: f.ID, Node: f.Nodes[1].ID, Join: "broken", Err: failed.Err}, *failed)
			require.ErrorContains(t, err, why)
			in.Impatient = true
			after, err := Ended(f, []End{{Node: 0, Status: model.StatusSuccess}}, in, time.UnixMilli(2_000_000))
			require.NoError(t, err)
			require.Equal(t, graph.NodePending, after.States[1].Status, "a person decides")
			require.Contains(t, after.States[1].Reason, why)
		}
	}
}

// A flow ends the task of the node that started it. A person may do that, too: then nobody waits for the flow.
func TestTheFlowOfANodeIsCancelledWhenSomethingElseEndsTheTask(t *testing.T) {
	for status, aborts := range map[model.Status]bool{
		model.StatusCancelled: true, model.StatusManuallyProcessed: true,
		model.StatusSuccess: false, model.StatusFailure: false, model.StatusPending: false,
	} {
		for _, policy := range []graph.Policy{graph.Suspend, graph.Continue, graph.End} {
			f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, Flow: &graph.Spec{}, OnFailure: policy})
			f = ended(t, f, &Inputs{}, model.StatusSuccess, 0)
			if status == model.StatusManuallyProcessed { // what a person resolves was Pending
				f = ended(t, f, &Inputs{}, model.StatusPending, 1)
			}
			f = ended(t, f, &Inputs{}, status, 1)
			require.Equal(t, aborts, slices.Contains(actions(f, 1), DoAbort), "%s, %s", status, policy)
		}
	}
}
