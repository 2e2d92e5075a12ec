package flowplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

func value(t *testing.T, v any) bson.RawValue {
	t.Helper()
	kind, raw, err := bson.MarshalValue(v)
	require.NoError(t, err)
	return bson.RawValue{Type: kind, Value: raw}
}

// n1 waits ten minutes, n2 until the time in the output of n0; n3 needs both.
func waiting() *graph.Flow {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}, For: 10 * time.Minute}, graph.Vertex{After: []int{0}, Until: `{"$output": "n0.at"}`}, graph.Vertex{After: []int{1, 2}})
	f.Nodes[1].Type, f.Nodes[2].Type = "", ""
	return f
}

func TestANodeWaitsForItsTimeAndNotAMomentLonger(t *testing.T) {
	start := time.UnixMilli(2_000_000) // that of ended
	later := start.Add(time.Hour)
	f := waiting()
	in := &Inputs{}
	_, err := Ended(f, []End{{Node: 0, Status: model.StatusSuccess}}, in, start)
	require.NoError(t, err)
	require.Equal(t, map[int]bool{0: true}, in.Missing, "the time is in the output")
	in = &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, bson.M{"at": later.UTC().Format(time.RFC3339Nano)})}}
	f = ended(t, f, in, model.StatusSuccess, 0)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeReady, graph.NodeReady, graph.NodeWait}, statuses(f))
	require.Equal(t, start.Add(10*time.Minute).UTC(), f.DueAt)
	require.Equal(t, graph.StatusRunning, f.Status)
	require.Zero(t, f.RunningAt, "no task may run: nobody need look for its end")
	require.Equal(t, []string{"It waits until 1970-01-01T00:43:20Z."}, Explain(f, 1))
	require.Equal(t, map[int]string{}, plans(f), "there is no task that anything is done with")

	f.Planned = nil
	early, err := Ended(f, nil, in, f.DueAt.Add(-time.Millisecond))
	require.NoError(t, err)
	require.Same(t, f, early)
	f, err = Ended(f, nil, in, f.DueAt)
	require.NoError(t, err)
	require.Equal(t, graph.NodeSuccess, f.States[1].Status)
	require.Equal(t, later.UTC(), f.DueAt)
	f, err = Ended(f, nil, in, later)
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeSuccess, graph.NodeSuccess, graph.NodeReady}, statuses(f))
	require.Zero(t, f.DueAt)
	require.NotZero(t, f.RunningAt)
	require.Equal(t, map[int]string{3: DoRelease}, plans(f))
}

func TestATimeThatHasPassedDoesNotDelayAndOneThatIsNoneFailsTheNode(t *testing.T) {
	for _, c := range []struct {
		at     any
		policy graph.Policy
		node   graph.NodeStatus
		reason string
	}{
		{"1970-01-01T00:00:01Z", graph.Suspend, graph.NodeSuccess, ""},
		{"soon", graph.Suspend, graph.NodePending, `wait.until is "soon"; want a time such as "2026-01-31T09:00:00Z"`},
		{nil, graph.Continue, graph.NodeError, `wait.until is null; want a time such as "2026-01-31T09:00:00Z"`},
		{7, graph.End, graph.NodeError, `wait.until is 7; want a time such as "2026-01-31T09:00:00Z"`},
	} {
		f := waiting()
		f.Nodes[2].OnFailure = c.policy
		f = ended(t, f, &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, bson.M{"at": c.at})}}, model.StatusSuccess, 0)
		require.Equal(t, c.node, f.States[2].Status)
		require.Equal(t, c.reason, f.States[2].Reason)
		require.Equal(t, c.policy == graph.End, f.Status == graph.StatusFinish)
		if c.policy == graph.End {
			require.Equal(t, graph.NodeError, f.States[1].Status, "what waits for a time ends with the flow")
		}
	}
}

func TestAFlowMayBeginWithANodeThatWaits(t *testing.T) {
	f := made(graph.Vertex{For: time.Minute}, graph.Vertex{After: []int{0}})
	f.Nodes[0].Type = ""
	f, err := Begin(f, time.UnixMilli(1_000_000))
	require.NoError(t, err)
	require.EqualValues(t, 1, f.Rev)
	require.Equal(t, time.UnixMilli(1_060_000).UTC(), f.DueAt)
	task := made(graph.Vertex{})
	same, err := Begin(task, time.UnixMilli(1_000_000))
	require.NoError(t, err)
	require.Same(t, task, same)
}

func TestAWaitIsCancelledAndBegunAnewLikeATask(t *testing.T) {
	in := &Inputs{Outputs: map[Life]bson.RawValue{{}: value(t, bson.M{"at": "1970-01-01T00:00:01Z"})}}
	f := ended(t, waiting(), in, model.StatusSuccess, 0)
	_, err := RetryFrom(f, 1, in, time.UnixMilli(3_000_000))
	require.ErrorContains(t, err, "it runs, or is about to")
	f, err = Cancel(f, "no longer wanted", in, time.UnixMilli(2_100_000))
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodeError, graph.NodeSuccess, graph.NodeSkipped}, statuses(f))
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Zero(t, f.DueAt)
	f, err = RetryFrom(f, 1, in, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, time.UnixMilli(3_600_000).UTC(), f.DueAt, "it waits anew")
	require.Equal(t, int64(1), f.States[1].Life)
}

// n1 asks, n2 hangs on it, n3 needs what was answered.
func asking() *graph.Flow {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}}, graph.Vertex{After: []int{1}, When: []string{`{"output.n": {"$gt": 5}}`}}, graph.Vertex{After: []int{2}})
	f.Nodes[1].Type, f.Nodes[1].Ask = "", &graph.Ask{Title: "how many?", Fields: []graph.Field{{Name: "n", Kind: "number", Required: true}}}
	return f
}

func TestANodeAsksAPersonAndTheAnswersAreItsOutput(t *testing.T) {
	f := ended(t, asking(), &Inputs{}, model.StatusSuccess, 0)
	require.Equal(t, []graph.NodeStatus{graph.NodeSuccess, graph.NodePending, graph.NodePending, graph.NodePending}, statuses(f))
	require.Equal(t, graph.StatusPending, f.Status)
	require.Equal(t, "node n1: it asks: how many?", f.Reason)
	require.Equal(t, []int{1}, alerts(f))
	require.Equal(t, []string{"It is PENDING: it asks: how many?", "n: a number, required.", "Resolve it as SUCCESS with these values, or as ERROR."}, Explain(f, 1))
	at := time.UnixMilli(3_000_000)
	f.Planned = nil
	_, err := Resolve(f, 1, graph.NodeSuccess, "", &Inputs{}, at)
	require.EqualError(t, err, "flow -/f, node n1: values.n is missing; it is required")
	_, err = Answer(f, 2, map[string]any{"n": 1}, "", &Inputs{}, at)
	require.ErrorContains(t, err, "it asks for no values")
	for n, want := range map[int]graph.NodeStatus{7: graph.NodeReady, 5: graph.NodeSkipped} {
		after, err := Answer(f, 1, map[string]any{"n": n}, "as I see it", &Inputs{}, at)
		require.NoError(t, err)
		require.Equal(t, graph.NodeSuccess, after.States[1].Status)
		require.Equal(t, "as I see it", after.States[1].Reason)
		require.Equal(t, want, after.States[2].Status, "a condition on the answer")
		_, err = Answer(after, 1, map[string]any{"n": n}, "", &Inputs{}, at)
		require.ErrorContains(t, err, "only PENDING can be resolved")
	}
	no, err := Resolve(f, 1, graph.NodeError, "no", &Inputs{}, at)
	require.NoError(t, err)
	require.Equal(t, "n1 failed, and all parents must succeed", no.States[2].Reason)
	require.Zero(t, no.States[1].Output)
}

func TestANodeThatHungAlertsWhenItBeginsToAsk(t *testing.T) {
	f := made(graph.Vertex{}, graph.Vertex{After: []int{0}})
	f.Nodes[1].Type, f.Nodes[1].Ask = "", &graph.Ask{Title: "well?"}
	f = ended(t, f, &Inputs{}, model.StatusFailure, 0)
	f.Planned = nil
	f, err := Resolve(f, 0, graph.NodeSuccess, "", &Inputs{}, time.UnixMilli(3_000_000))
	require.NoError(t, err)
	require.Equal(t, []int{1}, alerts(f))
	require.Equal(t, "it asks: well?", f.States[1].Reason)
	f.Planned = nil
	f, err = Resolve(f, 1, graph.NodeSuccess, "", &Inputs{}, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, f.Status)
	f, err = RetryFrom(f, 1, &Inputs{}, time.UnixMilli(5_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.NodePending, f.States[1].Status, "it asks again")
	require.Zero(t, f.States[1].Output)
}
