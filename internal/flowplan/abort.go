package flowplan

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Aborted is a task, of a node or of its element, after the plan p aborts it. A task that has ended stays as
// it is. A Pending task ends as its node was resolved by a person. It stays as it is while its node is
// PENDING in that life: that waits for a person also when the flow is over.
func Aborted(f *graph.Flow, p *graph.Planned, t *model.Task, eff lifecycle.Effective, now time.Time) *model.Task {
	st, end, remark := &f.States[Place(f, p)], lifecycle.Abort, "cancelled by its flow"
	if t.Status == model.StatusPending {
		switch {
		case p.Resolved:
			end, remark = lifecycle.Resolve, cmp.Or(st.Reason, "its node was resolved")
		case p.Do != DoDrop && (st.Status == graph.NodePending || resolvedLater(f, p)):
			return t
		}
	}
	after, err := end(t, remark, eff, now)
	if err != nil {
		return t
	}
	return after
}

// resolvedLater says whether a person has resolved the node since the plan was made, such as at the end of the
// flow. What was carried out stays among the plans until the next decision, and is carried out once more.
func resolvedLater(f *graph.Flow, p *graph.Planned) bool {
	return slices.ContainsFunc(f.Planned, func(q graph.Planned) bool { return q.Resolved && q.Node == p.Node && q.Life == p.Life })
}
