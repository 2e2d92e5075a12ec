package flow

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// lookAtPending finds the PENDING nodes whose work may run: a person has retried a task, or has decided about a node of
// the flow that the node started.
func (f *Flows) lookAtPending(ctx context.Context, m *making) error {
	var ids []string
	for _, i := range m.asked {
		ids = append(ids, taskID(m.flow, i))
		ids = append(ids, pendingElements(m.flow, i)...)
	}
	tasks, err := f.store.Tasks.LastLivesOf(ctx, ids, store.State)
	if err != nil {
		return fmt.Errorf("reading the tasks of nodes that are PENDING: %w", err)
	}
	runs := func(i int, id string) bool {
		t := tasks[id]
		return t != nil && ofNode(t, m.flow, i) && t.Origin.Generation == m.flow.States[i].Life && (t.Status == model.StatusNew || t.Status == model.StatusExecuting)
	}
	for _, i := range m.asked {
		works := false
		switch v := &m.flow.Nodes[i]; {
		case v.Flow != nil:
			if works, err = f.childGoesOn(ctx, m.flow, i); err != nil {
				return err
			}
			t := tasks[taskID(m.flow, i)]
			works = works && t != nil && (!t.Status.Ended() || t.Status == model.StatusPending) // the end of its flow ends it
		case v.Each != nil:
			t := tasks[taskID(m.flow, i)]
			for _, id := range pendingElements(m.flow, i) {
				works = works || t != nil && !t.Status.Ended() && runs(i, id)
			}
		default:
			works = runs(i, taskID(m.flow, i))
		}
		m.working[flowplan.LifeOf(m.flow, i)] = works
	}
	return nil
}

// pendingElements are the tasks of the elements that a person is to decide about.
func pendingElements(doc *graph.Flow, i int) (ids []string) {
	st := &doc.States[i]
	for k := range len(st.Elements) {
		if st.Elements[k] == flowplan.ElementPending {
			ids = append(ids, flowspec.ElementID(doc, i, k, st.Life))
		}
	}
	return ids
}

// childGoesOn says whether the flow that a node has started is not over.
func (f *Flows) childGoesOn(ctx context.Context, doc *graph.Flow, i int) (bool, error) {
	child, err := f.store.Flows.Get(ctx, flowspec.ChildID(doc, i, doc.States[i].Life))
	if errors.Is(err, store.ErrNoFlow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return child.Parent != nil && child.Parent.ID == doc.ID && !before(child.CreatedAt, doc.CreatedAt) && child.Status != graph.StatusFinish, nil
}
