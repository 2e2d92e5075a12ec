package flowplan

import (
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// Times are those of the life of a node; zero = not yet, or never.
type Times struct {
	Ready   time.Time // its parents had ended as its join requires
	Started time.Time // a worker claimed its task first; without an execution, such as of a node that waits, Ready
	Ended   time.Time
}

// TimesOf derives the times of node i from the flow and the last life of its task, nil = it has none. The document
// has only since when the node has its status, so of one that is not READY any more, Ready is the latest end of a
// parent before it started, or the start of its task's life if a person restarted it.
func TimesOf(f *graph.Flow, i int, t *model.Task) (out Times) {
	st := &f.States[i]
	if Final(st.Status) {
		out.Ended = st.At
	}
	if st.Status == graph.NodeWait || st.Status == graph.NodeInit || st.Status == graph.NodeSkipped {
		return out
	}
	if t != nil {
		for k := range t.WorkerStates {
			if w := &t.WorkerStates[k]; !w.Unstarted {
				out.Started = clock.Sooner(out.Started, w.ClaimedAt)
			}
		}
	}
	switch {
	case st.Status == graph.NodeReady:
		out.Ready = st.At
	case st.Status == graph.NodePending && !st.Own && out.Started.IsZero():
		return out // an earlier node waits for a person
	default:
		out.Ready = readyBefore(f, i, t, clock.Sooner(st.At, out.Started))
	}
	v := &f.Nodes[i]
	if out.Started.IsZero() && (!flowspec.HasTask(v) || v.Flow != nil || v.Each != nil) {
		out.Started = out.Ready
	}
	return out
}

// readyBefore is when a node became READY, no later than the limit.
func readyBefore(f *graph.Flow, i int, t *model.Task, limit time.Time) time.Time {
	v := &f.Nodes[i]
	ready := clock.Later(f.CreatedAt, v.CreatedAt)
	later := func(at time.Time) {
		if !at.After(limit) {
			ready = clock.Later(ready, at)
		}
	}
	for _, at := range v.After {
		later(f.States[at].At)
	}
	if v.Prev != "" && i > 0 {
		later(f.States[i-1].At)
	}
	if t != nil && f.States[i].Life > 0 {
		later(t.StartTime)
	}
	return clock.Sooner(ready, limit)
}
