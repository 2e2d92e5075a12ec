package flowplan

import (
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// RefusedError is the reason why a command of a person on a flow is refused.
type RefusedError struct{ Flow, Node, Reason string }

func (e *RefusedError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("flow %s: %s", e.Flow, e.Reason)
	}
	return fmt.Sprintf("flow %s, node %s: %s", e.Flow, e.Node, e.Reason)
}

// As lets [errors.As] find a *[model.RefusedError], which is what users know.
func (e *RefusedError) As(target any) bool {
	refused, wanted := target.(**model.RefusedError)
	if !wanted {
		return false
	}
	reason := e.Reason
	if e.Node != "" {
		reason = fmt.Sprintf("node %s: %s", e.Node, e.Reason)
	}
	*refused = &model.RefusedError{ID: e.Flow, Reason: reason}
	return true
}

// Resolve ends a PENDING node for a person, as SUCCESS or ERROR (seed 002); its failure policy does not
// count. The same decision judges the nodes behind it. If the flow is over, only the node itself changes.
func Resolve(f *graph.Flow, node int, status graph.NodeStatus, remark string, in *Inputs, now time.Time) (*graph.Flow, error) {
	return resolve(f, node, status, nil, remark, in, now)
}

// Answer ends a node that asks a person as SUCCESS. The values, a JSON object, are its output.
func Answer(f *graph.Flow, node int, values any, remark string, in *Inputs, now time.Time) (*graph.Flow, error) {
	if v := &f.Nodes[node]; v.Ask == nil {
		return nil, &RefusedError{f.ID, v.ID, "it asks for no values; only a node with ask does"}
	}
	return resolve(f, node, graph.NodeSuccess, values, remark, in, now)
}

func resolve(f *graph.Flow, node int, status graph.NodeStatus, values any, remark string, in *Inputs, now time.Time) (*graph.Flow, error) {
	if st := f.States[node].Status; st != graph.NodePending {
		return nil, &RefusedError{f.ID, f.Nodes[node].ID, fmt.Sprintf("it is %s; only PENDING can be resolved", st)}
	}
	s := begin(f, in, now)
	if a := s.Nodes[node].Ask; a != nil && status == graph.NodeSuccess {
		var err error
		if s.States[node].Output, err = flowspec.Answers(a, values); err != nil {
			return nil, fmt.Errorf("flow %s, node %s: %w", f.ID, f.Nodes[node].ID, err)
		}
	}
	s.settle(node, status, remark)
	s.plan(node, DoAbort) // its task may still wait
	s.Planned[s.plans[node]].Resolved = true
	if f.Status == graph.StatusFinish { // nothing starts any more
		clear(s.dirty)
	}
	return s.finish()
}

// Cancel ends the flow: what runs is cancelled, what waits does not run, in a stream until somebody
// opens it. In another flow, what waits for a person has failed. A flow that has ended is returned as it is.
func Cancel(f *graph.Flow, remark string, in *Inputs, now time.Time) (*graph.Flow, error) {
	if f.Status == graph.StatusFinish || f.Closed {
		return f, nil
	}
	s := begin(f, in, now)
	if remark == "" {
		remark = "the flow was cancelled"
	}
	s.close(remark)
	return s.finish()
}

// RetryFrom begins a new life of a node and of all nodes behind it. The node runs at once, without its
// join; the others wait for their parents. So do the nodes that the end of the flow has cut off.
func RetryFrom(f *graph.Flow, node int, in *Inputs, now time.Time) (*graph.Flow, error) {
	behind := make([]bool, len(f.Nodes))
	behind[node] = true
	for i := node + 1; i < len(f.Nodes); i++ {
		for _, at := range f.Nodes[i].After {
			behind[i] = behind[i] || behind[at]
		}
	}
	switch st := f.States[node].Status; {
	case st == graph.NodeWait:
		return nil, &RefusedError{f.ID, f.Nodes[node].ID, "it has not run yet"}
	case f.Kind == graph.KindStream && f.Closed:
		return nil, &RefusedError{f.ID, f.Nodes[node].ID, "the stream is closed; open it before"}
	case f.Kind == graph.KindStream && Final(st):
		return nil, &RefusedError{f.ID, f.Nodes[node].ID, fmt.Sprintf("it is %s; in a stream only PENDING can be retried", st)}
	}
	for i := range f.Nodes {
		if behind[i] && f.States[i].Status == graph.NodeReady {
			return nil, &RefusedError{f.ID, f.Nodes[i].ID, "it runs, or is about to; cancel the flow or wait"}
		}
	}
	s := begin(f, in, now)
	s.Closed, s.Reason, s.EndedAt, s.DeleteAt = false, "", time.Time{}, time.Time{}
	if !f.DeleteAt.IsZero() {
		s.Planned = append(s.Planned, graph.Planned{ID: strconv.FormatInt(s.Rev, 10) + planKeep, Node: noNode, Do: DoKeep})
	}
	for i := range s.Nodes {
		st := &s.States[i]
		if !behind[i] {
			cut := cutOff(f, i)
			if cut || f.Status == graph.StatusFinish && st.Status == graph.NodePending && !st.Own { // its task was cancelled with the flow
				st.Life++
				if cut {
					s.set(i, graph.NodeWait, "")
				}
				s.plan(i, DoReset)
				s.dirty[i] = true // a person may have resolved what it hung on
			}
			continue
		}
		st.Context = s.Nodes[i].Context // its join has seen ends of lives that are over
		if i != node && st.Status == graph.NodeWait {
			continue // its task waits already
		}
		s.drop(i)
		st.Life++
		st.Own, st.Output, st.Elements = false, bson.RawValue{}, ""
		if i == node {
			s.start(i, DoRestart)
			continue
		}
		s.set(i, graph.NodeWait, "")
		s.plan(i, DoReset)
		s.dirty[i] = true // by its other parents it may run, or hang
	}
	return s.finish()
}

// cutOff says whether a node is SKIPPED because the flow ended early, which its reason says. No branch to it need have
// been skipped, so it does not count as such when the flow goes on.
func cutOff(f *graph.Flow, i int) bool {
	return f.Closed && f.States[i].Status == graph.NodeSkipped && f.States[i].Reason == clip(f, f.Reason)
}
