package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// told are the events that a flow plans, without their ids.
func told(t *testing.T, f *graph.Flow) (out []lifecycle.FlowEvent) {
	t.Helper()
	ids := map[string]bool{}
	for i := range f.Planned {
		d, is := Delivery(f, &f.Planned[i])
		if !is {
			continue
		}
		var args lifecycle.DeliveryArgs
		require.NoError(t, codec.DecodeValue(d.Args, &args))
		require.Equal(t, d.Key, args.Flow.ID)
		require.False(t, ids[d.Key], "each has an id of its own")
		ids[d.Key] = true
		require.Nil(t, d.Origin)
		args.Flow.ID = ""
		out = append(out, *args.Flow)
	}
	return out
}

// What else is to be done with the task of a node does not take the place of the alert.
func TestANodeThatFailsBeforeItsTaskRunsOrInTheLastDecisionIsTold(t *testing.T) {
	url := &model.CallbackTarget{URL: "http://x/"}
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}},
		graph.Vertex{After: []int{1, 2}, Join: graph.AtLeast, N: 1})
	f.Callback = &model.Callback{Success: url, Error: url}
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 0)
	refused, err := Fail(f, 1, "args.n has no value", &Inputs{}, time.UnixMilli(2_000_000))
	require.NoError(t, err)
	require.Equal(t, []lifecycle.FlowEvent{{FlowID: "-/f", Node: "n1", Status: "PENDING", ErrorInfo: "its task failed: args.n has no value"}}, told(t, refused))
	require.Contains(t, actions(refused, 1), DoAbort)

	f = ended(t, f, &Inputs{}, model.StatusSuccess, 2)
	f.Planned = nil
	f, err = Ended(f, []End{{Node: 1, Status: model.StatusFailure}, {Node: 3, Status: model.StatusSuccess}}, &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, []lifecycle.FlowEvent{
		{FlowID: "-/f", Node: "n1", Status: "PENDING", ErrorInfo: "its task ended as Failure"}, {FlowID: "-/f", Node: "n3", Status: "FINISH"},
	}, told(t, f))
	require.Equal(t, []string{DoAlert, DoAbort}, actions(f, 1))
}

// actions are what a flow plans about a node.
func actions(f *graph.Flow, node int) (do []string) {
	for _, p := range f.Planned {
		if p.Node == node && p.Do != "" {
			do = append(do, p.Do)
		}
	}
	return do
}

func TestACallbackNamesTheNodesThatWaitForAPersonAndTheEnd(t *testing.T) {
	url := &model.CallbackTarget{URL: "http://x/"}
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{1, 2}}, graph.Vertex{After: []int{3}})
	f.Callback = &model.Callback{Success: url, Error: url}
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 0)
	require.Empty(t, told(t, f))
	f = ended(t, f, &Inputs{}, model.StatusFailure, 1, 2)
	require.Equal(t, []lifecycle.FlowEvent{
		{FlowID: "-/f", Node: "n1", Status: "PENDING", ErrorInfo: "its task ended as Failure"},
		{FlowID: "-/f", Node: "n2", Status: "PENDING", ErrorInfo: "its task ended as Failure"},
	}, told(t, f), "what only hangs on them causes no call")
	at := time.UnixMilli(3_000_000)
	f.Planned = nil
	f, err := Resolve(f, 1, graph.NodeError, "", &Inputs{}, at)
	require.NoError(t, err)
	require.Equal(t, []lifecycle.FlowEvent{{FlowID: "-/f", Node: "n3", Status: "PENDING", ErrorInfo: "n1 failed, and all parents must succeed"}}, told(t, f), "it only hung before")
	f.Planned = nil
	f, err = Resolve(f, 3, graph.NodeSuccess, "", &Inputs{}, at)
	require.NoError(t, err)
	f = ended(t, f, &Inputs{}, model.StatusSuccess, 4)
	require.Equal(t, []lifecycle.FlowEvent{{FlowID: "-/f", Node: "n4", Status: "FINISH"}}, told(t, f))
	first := f.Planned[len(f.Planned)-1].ID

	f.Planned = nil
	f, err = RetryFrom(f, 4, &Inputs{}, at)
	require.NoError(t, err)
	require.Empty(t, told(t, f))
	f.Planned = nil
	f, err = Cancel(f, "no longer wanted", &Inputs{}, at)
	require.NoError(t, err)
	f = ended(t, f, &Inputs{}, model.StatusCancelled, 4)
	require.Equal(t, []lifecycle.FlowEvent{{FlowID: "-/f", Node: "n4", Status: "FINISH", ErrorInfo: "no longer wanted"}}, told(t, f))
	require.NotEqual(t, first, f.Planned[len(f.Planned)-1].ID, "it is another end")
}

func TestOnlyTheReceiversThatThereAreAreCalled(t *testing.T) {
	for _, c := range []*model.Callback{nil, {Success: &model.CallbackTarget{URL: "http://x/"}}, {Error: &model.CallbackTarget{URL: "http://x/"}}} {
		f := made(graph.Vertex{})
		f.Callback = c
		f = ended(t, f, &Inputs{}, model.StatusFailure, 0)
		require.Len(t, told(t, f), map[bool]int{true: 1, false: 0}[c != nil && c.Error != nil])
		f.Planned = nil
		f, err := Resolve(f, 0, graph.NodeError, "it is", &Inputs{}, time.UnixMilli(3_000_000))
		require.NoError(t, err)
		if c == nil || c.Success == nil {
			require.Empty(t, told(t, f))
		} else {
			require.Equal(t, []lifecycle.FlowEvent{{FlowID: "-/f", Node: "n0", Status: "FINISH", ErrorInfo: "it is"}}, told(t, f))
		}
	}
}

// The callback may be sent when the stream is open again, and has nodes.
func TestAStreamThatIsClosedBeforeANodeIsLinkedTellsOfItsEndOnce(t *testing.T) {
	at := time.UnixMilli(3_000_000)
	f := &graph.Flow{ID: "s/g", Kind: graph.KindStream, Status: graph.StatusRunning, CreatedAt: at, Callback: &model.Callback{Success: &model.CallbackTarget{URL: "http://x/"}}}
	f, err := Cancel(f, "enough", &Inputs{}, at)
	require.NoError(t, err)
	want := []lifecycle.FlowEvent{{FlowID: "s/g", Status: "FINISH", ErrorInfo: "enough"}}
	require.Equal(t, want, told(t, f))
	f, err = Open(f, at)
	require.NoError(t, err)
	f = Link(f, []*graph.Node{{ID: "s/g/a", Node: "a"}, {ID: "s/g/b", Node: "b"}}, false, at)
	for node := range f.Nodes {
		f, err = Ended(f, []End{{Node: node, Status: model.StatusSuccess}}, &Inputs{}, at)
		require.NoError(t, err)
	}
	f = Link(f, []*graph.Node{{ID: "s/g/c", Node: "c"}}, false, at)
	require.Len(t, f.Nodes, 3, "nothing is trimmed of which a plan tells")
	require.Equal(t, want, told(t, f))
	f.Planned = nil
	f, err = Cancel(f, "again", &Inputs{}, at)
	require.NoError(t, err)
	f = ended(t, f, &Inputs{}, model.StatusCancelled, len(f.Nodes)-1)
	require.Equal(t, []lifecycle.FlowEvent{{FlowID: "s/g", Node: "c", Status: "FINISH", ErrorInfo: "again"}}, told(t, f))
}
