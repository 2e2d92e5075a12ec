package flowplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// The ends of the ids of what is planned about a flow as a whole.
const planOver, planHalt, planKeep = "-over", "-halt", "-keep"

// tell plans the callbacks of the flow: for nodes that have begun to wait for a person, and when it
// is over. A node that started the flow is told, too. Each plan has what is told, because the node may go on before it is delivered.
func (s *step) tell(before graph.Status) {
	c := s.Callback
	if c == nil {
		c = &model.Callback{}
	}
	for _, k := range s.plans {
		p := &s.Planned[k]
		if p.Tell = ""; c.Error != nil && p.Do == DoAlert && Root(&s.States[Place(s.Flow, p)]) {
			p.Tell = s.States[Place(s.Flow, p)].Reason
		}
	}
	id, last := strconv.FormatInt(s.Rev, 10), len(s.States)-1
	s.Planned = slices.DeleteFunc(s.Planned, func(p graph.Planned) bool { return p.ID == id+planOver || p.ID == id+planHalt })
	if s.Parent != nil && s.Status == graph.StatusPending && before != graph.StatusPending {
		s.Planned = append(s.Planned, graph.Planned{ID: id + planHalt, Node: last, Do: DoOver, Life: s.States[last].Life})
	}
	if (c.Success != nil || s.Parent != nil) && s.Status == graph.StatusFinish && before != graph.StatusFinish {
		p := graph.Planned{ID: id + planOver, Node: noNode, Do: DoOver, Tell: s.Reason}
		if last >= 0 {
			st := &s.States[last]
			if p.Node, p.Life = s.Trimmed+last, st.Life; p.Tell == "" && st.Status == graph.NodeError {
				p.Tell = st.Reason
			}
		}
		s.Planned = append(s.Planned, p)
	}
}

// Root says whether a node is PENDING itself, and does not only hang on another one that is.
func Root(st *graph.State) bool { return st.Status == graph.NodePending && !hangs(st) }

// Delivery is the draft of the task that delivers the callback of a plan. Its key, by which the
// receiver recognises a repeat, follows from the decision.
func Delivery(f *graph.Flow, p *graph.Planned) (d lifecycle.Draft, is bool) {
	status := ""
	switch {
	case f.Callback == nil:
	case p.Do == DoOver && f.Callback.Success != nil && strings.HasSuffix(p.ID, planOver):
		status = string(graph.StatusFinish)
	case p.Do == DoAlert && p.Tell != "":
		status = string(graph.NodePending)
	}
	if status == "" {
		return d, false
	}
	node := ""
	if OfNode(p) {
		node = f.Nodes[Place(f, p)].ID
	}
	id := lifecycle.EntryID(f.ID, f.CreatedAt.UnixMilli(), model.OutboxEntry{Kind: lifecycle.OutcomeFlow + "/" + p.ID})
	return lifecycle.FlowDelivery(f.Tenant, lifecycle.FlowEvent{ID: id, FlowID: f.ID, Node: node, Status: status, ErrorInfo: p.Tell}), true
}

// Outcome is how a flow ended for the node that started it: the status of that node's task, and why.
// ok is false while the flow runs.
func Outcome(f *graph.Flow) (status model.Status, why string, ok bool) {
	last := len(f.States) - 1
	switch {
	case f.Status == graph.StatusPending:
		return model.StatusPending, fmt.Sprintf("its flow %s is PENDING: %s", f.Key, f.Reason), true
	case f.Status != graph.StatusFinish:
		return "", "", false
	case f.Closed:
		return model.StatusFailure, fmt.Sprintf("its flow %s ended early: %s", f.Key, f.Reason), true
	case f.States[last].Status == graph.NodeError:
		return model.StatusFailure, fmt.Sprintf("its flow %s ended with an error of node %s: %s", f.Key, f.Nodes[last].ID, f.States[last].Reason), true
	default:
		return model.StatusSuccess, "", true
	}
}
