package flowplan

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// View is a node with its present status and what its task adds.
type View struct {
	*graph.Node
	Output    bson.RawValue // of a task that succeeded, or a person's answers; zero = none
	ErrorInfo string        // the last error of the task; "" = none
	Times     Times
}

// ViewOf is node i with what the last life of its task adds; nil = it has none.
func ViewOf(f *graph.Flow, i int, t *model.Task) View {
	v := View{Node: RecordOf(f, i), Output: f.States[i].Output, Times: TimesOf(f, i, t)}
	if t == nil {
		return v
	}
	if v.ErrorInfo = t.ErrorInfo; t.Status.Succeeded() && v.Status == graph.NodeSuccess {
		v.Output = t.Result
	}
	v.Status = StatusNow(v.Status, t)
	if f.Nodes[i].Flow != nil && v.Status == graph.NodeReady {
		v.Status = graph.NodeRunning // its flow runs
	}
	return v
}

// RecordID is the id of the record of a node.
func RecordID(f *graph.Flow, i int) string { return f.ID + "/" + f.Nodes[i].ID }

// RecordOf is the record of a node. Of a stream each is kept for its own time: the stream does not end.
func RecordOf(f *graph.Flow, i int) *graph.Node {
	v, st := &f.Nodes[i], &f.States[i]
	after := make([]string, len(v.After))
	for k, at := range v.After {
		after[k] = f.Nodes[at].ID
	}
	n := &graph.Node{
		ID: RecordID(f, i), FlowID: f.ID, Tenant: f.Tenant, Node: v.ID, Type: v.Type, TaskID: flowspec.TaskID(f, i), After: after,
		Status: st.Status, Reason: st.Reason, Life: st.Life, Rev: f.Rev, At: st.At, CreatedAt: f.CreatedAt, DeleteAt: f.DeleteAt,
	}
	if f.Kind != graph.KindStream {
		return n
	}
	n.Position, n.OnFailure, n.CreatedAt = int64(f.Trimmed+i+1), v.OnFailure, v.CreatedAt
	if v.Prev != "" {
		n.After = []string{v.Prev}
	}
	if Final(st.Status) {
		n.DeleteAt = st.At.Add(Retention)
	}
	return n
}

// Final says whether a status of a node is final: neither an engine nor a person that resolves changes it.
func Final(s graph.NodeStatus) bool {
	return s == graph.NodeSuccess || s == graph.NodeError || s == graph.NodeSkipped
}
