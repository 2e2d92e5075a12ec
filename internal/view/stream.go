package view

import (
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Stream is a stream with its backlog, as JSON.
type Stream struct {
	Stream string           `json:"stream"`
	Status graph.Status     `json:"status" enum:"RUNNING,PENDING,FINISH"`
	Closed bool             `json:"closed"`
	Init   int64            `json:"init" doc:"nodes that are not linked to the chain yet; one that is being linked may count here and in wait for a moment"`
	Wait   int              `json:"wait" doc:"linked nodes that wait for the one before them"`
	First  string           `json:"first,omitempty" doc:"the first node of the chain, even if it is deleted; absent until a node is linked"`
	Last   string           `json:"last,omitempty" doc:"the last linked node; it changes with each link"`
	Node   string           `json:"node,omitempty" doc:"the node that may run, or waits for a person"`
	Is     graph.NodeStatus `json:"node_status,omitempty" enum:"READY,PENDING"`
	Since  string           `json:"since,omitempty" format:"date-time" doc:"since when the node has its status"`
	At     time.Time        `json:"-"` // Since
	Reason string           `json:"reason,omitempty"`
	Ended5 *int64           `json:"ended_5m,omitempty" doc:"nodes that ended within the last five minutes"`
	Ended1 *int64           `json:"ended_1h,omitempty" doc:"nodes that ended within the last hour"`
}

// StreamOf is a stream; init is how many of its nodes are to be linked.
func StreamOf(doc *graph.Flow, init int64) Stream {
	v := Stream{Stream: doc.ID, Status: doc.Status, Closed: doc.Closed, Reason: doc.Reason, Init: init, First: doc.First}
	if n := len(doc.Nodes); n > 0 {
		v.Last = doc.Nodes[n-1].ID
	}
	for i := range doc.States {
		switch st := &doc.States[i]; st.Status {
		case graph.NodeWait:
			v.Wait++
		case graph.NodeReady, graph.NodePending:
			v.Node, v.Is, v.Since, v.At = doc.Nodes[i].ID, st.Status, Time(st.At), st.At
		}
	}
	return v
}

// SetSpeed says how many of its nodes have ended lately.
func (s *Stream) SetSpeed(speed store.Speed) { s.Ended5, s.Ended1 = &speed.FiveMinutes, &speed.Hour }

// Idle reports whether the stream is open and has nothing to do.
func (s *Stream) Idle() bool { return !s.Closed && s.Init == 0 && s.Wait == 0 && s.Node == "" }

// Appended is what became of an append, as JSON.
type Appended struct {
	Stream string   `json:"stream"`
	Nodes  []string `json:"nodes" doc:"ids of the nodes, in their order"`
}
