package flowplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// End is how the task of a node ended.
type End struct {
	Node      int
	Element   int // of a node with elements, from 1 on; 0 = the node's own task
	Life      int64
	Status    model.Status
	ErrorInfo string
}

// Ended decides together about all given ends of tasks, and about nodes whose time has come. It
// ignores an end of another life, of a final node, or of a flow that is over; a person may have run
// the task again. If nothing changes, it returns f itself.
func Ended(f *graph.Flow, ends []End, in *Inputs, now time.Time) (*graph.Flow, error) {
	if f.Status == graph.StatusFinish {
		return f, nil
	}
	ends = slices.DeleteFunc(slices.Clone(ends), func(e End) bool {
		if e.Element > 0 {
			return !elementWaits(f, e)
		}
		st := &f.States[e.Node]
		again, news := succeeded(e.Status), clip(f, failed(f, e)) != st.Reason
		switch v := &f.Nodes[e.Node]; {
		case v.Flow != nil || v.Each != nil: // what the node started may also end in another way
			again = again || e.Status != model.StatusCancelled && news
		case taskAsks(st): // a person had the task run again, or changed it
			again = again || news
		}
		waits := st.Status == graph.NodeReady || st.Status == graph.NodePending && st.Own && again
		return !waits || st.Life != e.Life
	})
	due := f.Kind != graph.KindStream && !f.DueAt.IsZero() && !f.DueAt.After(now)
	if len(ends) == 0 && !due {
		return f, nil
	}
	s := begin(f, in, now)
	own := map[int]bool{} // nodes whose own tasks have ended
	for _, e := range ends {
		if e.Element > 0 {
			s.element(e)
		} else {
			s.end(e)
			own[e.Node] = true
		}
	}
	s.advance(own)
	if due {
		s.timesUp(len(ends) == 0)
	}
	return s.finish()
}

// succeeded says whether a task did what its node wants; a person may have seen to it.
func succeeded(status model.Status) bool {
	return status.Succeeded() || status == model.StatusManuallyProcessed
}

func (s *step) end(e End) {
	v := &s.Nodes[e.Node]
	if leavesWork(v, &s.States[e.Node], e.Status) {
		defer s.plan(e.Node, DoAbort) // nobody waits for its other elements, or for its flow
	}
	switch {
	case succeeded(e.Status):
		s.settle(e.Node, graph.NodeSuccess, "")
	case e.Status == model.StatusPending && !s.Closed: // a person decides, whatever the policy of the node
		s.States[e.Node].Own = true
		s.set(e.Node, graph.NodePending, failed(s.Flow, e))
	case s.Closed || v.OnFailure == graph.Continue:
		s.settle(e.Node, graph.NodeError, e.ErrorInfo)
	case v.OnFailure == graph.End:
		s.settle(e.Node, graph.NodeError, e.ErrorInfo)
		s.close(fmt.Sprintf("node %s failed and ends the %s", v.ID, s.noun()))
	default:
		s.States[e.Node].Own = true
		s.set(e.Node, graph.NodePending, failed(s.Flow, e))
	}
}

// leavesWork says whether elements of a node, or the flow that it started, may go on after its task has ended so. A flow
// ends the task as its own end says. Otherwise a person has cancelled or resolved the task, or it is gone.
func leavesWork(v *graph.Vertex, st *graph.State, status model.Status) bool {
	if v.Flow != nil {
		return status == model.StatusCancelled || status == model.StatusManuallyProcessed
	}
	return v.Each != nil && strings.ContainsAny(st.Elements, openLetters)
}

// taskPending begins the reason of a node whose task is Pending.
const taskPending = "its task is Pending"

// taskAsks says whether a node is PENDING because a person must decide about its task.
func taskAsks(st *graph.State) bool {
	return st.Status == graph.NodePending && st.Own && strings.HasPrefix(st.Reason, taskPending)
}

func failed(f *graph.Flow, e End) string {
	switch {
	case !flowspec.HasTask(&f.Nodes[e.Node]), (f.Nodes[e.Node].Flow != nil || f.Nodes[e.Node].Each != nil) && e.ErrorInfo != "":
		return e.ErrorInfo
	case e.Status == model.StatusPending && e.ErrorInfo == "":
		return taskPending
	case e.Status == model.StatusPending:
		return taskPending + ": " + e.ErrorInfo
	case e.ErrorInfo == "":
		return "its task ended as " + string(e.Status)
	}
	return "its task failed: " + e.ErrorInfo
}

// Fail decides that a READY node fails before its task can run, for the given reason.
func Fail(f *graph.Flow, node int, reason string, in *Inputs, now time.Time) (*graph.Flow, error) {
	s := goOn(f, in, now)
	s.end(End{Node: node, Status: model.StatusFailure, ErrorInfo: reason})
	s.plan(node, DoAbort)
	return s.finish()
}

// FailEach goes on with a decision: the nodes that start and for which why gives a reason fail before their tasks can
// run, and so do those that start because of that. why gets the plans from the given place on; "" = the node does not
// fail. It is asked again about such a node, and it may note in the inputs what it lacks.
func FailEach(f *graph.Flow, from int, why func(*graph.Flow, *graph.Planned) string, in *Inputs, now time.Time) (*graph.Flow, error) {
	var ends []End
	ask := func(f *graph.Flow) bool {
		ends = ends[:0]
		for k := from; k < len(f.Planned); k++ {
			if p := &f.Planned[k]; Runs(f, p) {
				if reason := why(f, p); reason != "" {
					ends = append(ends, End{Node: Place(f, p), Status: model.StatusFailure, ErrorInfo: reason})
				}
			}
		}
		return len(ends) > 0 && in.Ready()
	}
	if !ask(f) {
		return f, nil
	}
	s := goOn(f, in, now)
	for more := true; more; more = s.err == nil && ask(s.Flow) {
		for _, e := range ends {
			if k, there := s.plans[e.Node]; !there || !Runs(s.Flow, &s.Planned[k]) {
				continue // the failure of another one ends the flow
			}
			s.end(e)
			s.plan(e.Node, DoAbort)
		}
		s.judge()
	}
	return s.finish()
}
