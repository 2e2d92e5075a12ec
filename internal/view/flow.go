package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/flowdraw"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Flow is a flow as JSON, without its nodes.
type Flow struct {
	ID          string       `json:"id"`
	Kind        string       `json:"kind,omitempty"`
	Key         string       `json:"key"`
	Tenant      string       `json:"tenant,omitempty"`
	Creator     string       `json:"creator,omitempty"`
	Description string       `json:"description,omitempty"`
	Status      graph.Status `json:"status" enum:"RUNNING,PENDING,FINISH"`
	Reason      string       `json:"reason,omitempty"`
	Rev         int64        `json:"rev"`
	Created     string       `json:"created_at" format:"date-time"`
	Updated     string       `json:"updated_at" format:"date-time"`
	Ended       string       `json:"ended_at,omitempty" format:"date-time"`
	Delete      string       `json:"delete_at,omitempty" format:"date-time"`
	Parent      string       `json:"parent,omitempty" doc:"flow/node: the node that started the flow"`
	// Counts are the numbers of nodes by their stored statuses.
	Counts map[graph.NodeStatus]int `json:"counts" doc:"numbers of nodes by their statuses"`
}

// FlowOf is a flow as it was read, or listed.
func FlowOf(f *graph.Flow) Flow {
	counts := map[graph.NodeStatus]int{}
	for i := range f.States {
		counts[f.States[i].Status]++
	}
	parent := ""
	if f.Parent != nil {
		parent = f.Parent.ID + "/" + f.Parent.Node
	}
	return Flow{
		f.ID, f.Kind, f.Key, f.Tenant, f.Creator, f.Description, f.Status, f.Reason, f.Rev,
		Time(f.CreatedAt), Time(f.UpdatedAt), Time(f.EndedAt), Time(f.DeleteAt), parent, counts,
	}
}

// ValidFlow is a definition without mistakes, as JSON.
type ValidFlow struct {
	Key     string `json:"key,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	Nodes   int    `json:"nodes" doc:"how many it has"`
	Picture string `json:"picture,omitempty" doc:"with picture=: its graph, each node with what it does"`
}

// ValidFlowOf is a definition in which nothing is wrong.
func ValidFlowOf(s *graph.Spec) ValidFlow {
	return ValidFlow{Key: s.Key, Tenant: s.Tenant, Nodes: len(s.Nodes)}
}

// Node is a node of a flow as JSON.
type Node struct {
	Node      string           `json:"node"`
	Type      string           `json:"type,omitempty"`
	Wait      string           `json:"wait,omitempty" doc:"how long it waits, or until when"`
	Ask       *graph.Ask       `json:"ask,omitempty" doc:"what it asks a person"`
	TaskID    string           `json:"task_id,omitempty"`
	Position  int64            `json:"position,omitempty" doc:"of a node of a stream: its number in the chain, from 1 on"`
	After     []string         `json:"after,omitempty"`
	Join      graph.Strategy   `json:"join,omitempty"`
	OnFailure graph.Policy     `json:"on_failure,omitempty"`
	Status    graph.NodeStatus `json:"status" enum:"INIT,WAIT,READY,RUNNING,PENDING,SUCCESS,ERROR,SKIPPED"`
	Since     string           `json:"since" format:"date-time"`
	At        time.Time        `json:"-"` // Since
	Ready     string           `json:"ready_at,omitempty" format:"date-time" doc:"when its parents had ended as its join requires"`
	Started   string           `json:"started_at,omitempty" format:"date-time" doc:"when a worker claimed its task first in this life; of a node without a task of its own, ready_at"`
	Ended     string           `json:"ended_at,omitempty" format:"date-time"`
	ReadyAt   time.Time        `json:"-"`
	StartedAt time.Time        `json:"-"`
	EndedAt   time.Time        `json:"-"`
	Reason    string           `json:"reason,omitempty"`
	Error     string           `json:"error_info,omitempty" doc:"the last error of its task"`
	Life      int64            `json:"life" doc:"how often a person has restarted it"`
	Output    json.RawMessage  `json:"output,omitempty"`
}

// NodesFrom reads at most limit nodes of a flow, from the place from on, the first being 0. It returns fewer if their
// outputs have more than about 8 MiB together, but at least one.
func NodesFrom(ctx context.Context, st *store.Store, doc *graph.Flow, from, limit int) ([]Node, error) {
	ids, end := tasksFrom(doc, from, limit)
	tasks, n, err := st.Tasks.LastLivesPage(ctx, ids, store.Output)
	if err != nil {
		return nil, fmt.Errorf("reading nodes of the flow %s: %w", doc.ID, err)
	}
	for n < len(ids) && end > from { // the page ends before the task that was read no more
		if end--; flowspec.HasTask(&doc.Nodes[end]) {
			ids = ids[:len(ids)-1]
		}
	}
	return nodesOf(doc, from, end, tasks), nil
}

// NodeStates is [NodesFrom] without the outputs of tasks.
func NodeStates(ctx context.Context, st *store.Store, doc *graph.Flow, from, limit int) ([]Node, error) {
	ids, end := tasksFrom(doc, from, limit)
	tasks, err := st.Tasks.LastLivesOf(ctx, ids, store.State)
	if err != nil {
		return nil, fmt.Errorf("reading the states of nodes of the flow %s: %w", doc.ID, err)
	}
	return nodesOf(doc, from, end, tasks), nil
}

// tasksFrom are the ids of the tasks of nodes, and the place behind these.
func tasksFrom(doc *graph.Flow, from, limit int) (ids []string, end int) {
	end = min(from+limit, len(doc.Nodes))
	for i := from; i < end; i++ {
		if flowspec.HasTask(&doc.Nodes[i]) {
			ids = append(ids, flowspec.TaskID(doc, i))
		}
	}
	return ids, end
}

// nodesOf are nodes with what the last lives of their tasks add.
func nodesOf(doc *graph.Flow, from, end int, tasks map[string]*model.Task) []Node {
	out := make([]Node, 0, end-from)
	for i := from; i < end; i++ {
		v, n := &doc.Nodes[i], flowplan.ViewOf(doc, i, tasks[flowspec.TaskID(doc, i)])
		node := Node{
			Node: v.ID, Type: v.Type, Wait: waits(v), Ask: v.Ask, TaskID: n.TaskID, After: n.After, Join: v.Join, OnFailure: v.OnFailure,
			Status: n.Status, Since: Time(n.At), At: n.At, Ready: Time(n.Times.Ready), Started: Time(n.Times.Started), Ended: Time(n.Times.Ended),
			ReadyAt: n.Times.Ready, StartedAt: n.Times.Started, EndedAt: n.Times.Ended, Reason: n.Reason, Error: n.ErrorInfo, Life: n.Life,
		}
		if doc.Kind == graph.KindStream {
			node.Position = n.Position
		}
		if n.Output.Type != 0 {
			node.Output = codec.ValueJSON(n.Output)
		}
		out = append(out, node)
	}
	return out
}

// waits is the time for which a node waits.
func waits(v *graph.Vertex) string {
	if span, is := strings.CutPrefix(flowdraw.Kind(v), "wait "); is && !flowspec.HasTask(v) {
		return span
	}
	return ""
}

// Took is how long a node has been at work by now, its task's retries and a person's time included; 0 = it has not
// started.
func (n *Node) Took(now time.Time) time.Duration {
	if n.StartedAt.IsZero() {
		return 0
	}
	return max(clock.Sooner(now, n.EndedAt).Sub(n.StartedAt), 0)
}

// Why is the reason for the status of a node, or the last error of its task.
func (n *Node) Why() string {
	if n.Status == graph.NodeSuccess {
		return n.Reason
	}
	return cmp.Or(n.Reason, n.Error)
}

// ExplainedNode is the explanation of a node's status, as JSON.
type ExplainedNode struct {
	Flow        string           `json:"flow"`
	Node        string           `json:"node"`
	Status      graph.NodeStatus `json:"status" enum:"INIT,WAIT,READY,RUNNING,PENDING,SUCCESS,ERROR,SKIPPED"`
	TaskID      string           `json:"task_id,omitempty"`
	Explanation []string         `json:"explanation" doc:"sentences: why it has the status, what it waits for, what would start it"`
}

// ExplainNode explains a node of a flow as [flow.Flows.Explain] does. A node of a stream may have left the document, or
// be linked later; then its status is that of its record.
func ExplainNode(ctx context.Context, flows *flow.Flows, st *store.Store, doc *graph.Flow, node string) (ExplainedNode, error) {
	sentences, err := flows.Explain(ctx, doc.ID, node)
	if err != nil {
		return ExplainedNode{}, err
	}
	out := ExplainedNode{Flow: doc.ID, Node: node, Explanation: sentences}
	if i := slices.IndexFunc(doc.Nodes, func(v graph.Vertex) bool { return v.ID == node }); i >= 0 {
		out.Status, out.TaskID = doc.States[i].Status, flowspec.TaskID(doc, i)
		return out, nil
	}
	id := doc.ID + "/" + node
	found, unread, err := st.Nodes.Appended(ctx, []string{id})
	switch n := found[id]; {
	case err != nil || unread[id] != nil:
		return out, fmt.Errorf("reading the node %s: %w", id, errors.Join(err, unread[id]))
	case n == nil:
		return out, fmt.Errorf("%w: %s", store.ErrNoFlow, id)
	case n.Status == graph.NodeInit: // it has no task yet
		out.Status = n.Status
	default:
		out.Status, out.TaskID = n.Status, n.TaskID
	}
	return out, nil
}
