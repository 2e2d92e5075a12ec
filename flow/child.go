package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// children starts and cancels the flows of nodes. The key of such a flow names the life of its node,
// so to start it twice is the same as once.
func (p planner) children(ctx context.Context, todos []todo, held map[string]error) error {
	var started []*graph.Flow
	late, err := p.late(ctx, todos)
	if err != nil {
		return err
	}
	for _, do := range todos {
		f, pl := do.flow, do.plan
		if held[f.ID] != nil {
			continue
		}
		st := &f.States[pl.Node]
		var err error
		switch pl.Do {
		case flowplan.DoRestart, flowplan.DoReset:
			err = p.cancelChild(ctx, do, pl.Life-1)
		case flowplan.DoAbort:
			err = p.cancelChild(ctx, do, pl.Life)
		default:
		}
		if do.gone == nil && (pl.Do == flowplan.DoRelease || pl.Do == flowplan.DoRestart) && err == nil && st.Status == graph.NodeReady && st.Life == pl.Life && !late(do) {
			var child *graph.Flow
			if child, err = p.startChild(ctx, do); child != nil {
				started = append(started, child)
			}
		}
		if store.Outage(err) {
			return err
		} else if err != nil { // it concerns this flow alone
			held[f.ID] = fmt.Errorf("the flow of node %s: %w", f.Nodes[pl.Node].ID, err)
		}
	}
	if len(started) == 0 {
		return nil
	}
	if _, err := p.decider.CarryOut(ctx, started); err != nil {
		if store.Outage(err) {
			return err
		}
		p.log.Warn().Err(err).Msg("could not carry out the start of a flow that a node started; retrying")
	}
	return nil
}

// startChild stores the flow of a node. It returns nil if there is one.
func (p planner) startChild(ctx context.Context, do todo) (*graph.Flow, error) {
	child, err := flowspec.Child(do.flow, do.plan.Node, do.plan.Args, p.store.Clock.Now())
	if err == nil {
		child, err = flowplan.Begin(child, child.CreatedAt)
	}
	if err == nil {
		child.Trace = do.flow.Trace
		err = p.typed(ctx, child)
	}
	if err != nil {
		return nil, err
	}
	exists, err := p.store.Flows.Insert(ctx, child)
	if err != nil || !exists {
		return child, err
	}
	other, err := p.store.Flows.Get(ctx, child.ID)
	switch {
	case errors.Is(err, store.ErrNoFlow): // somebody deletes it now: the sweep ends the node
		return nil, nil
	case err != nil:
		return nil, err
	case other.Parent == nil || *other.Parent != *child.Parent || before(other.CreatedAt, do.flow.CreatedAt):
		return nil, p.conclude(ctx, child, model.StatusFailure, bson.RawValue{}, fmt.Sprintf("its flow %s exists, and this node has not started it", child.Key))
	}
	return nil, nil
}

// cancelChild cancels the flow that a node started in one of its lives. If there is none, nothing
// will end the task of the node, which is cancelled.
func (p planner) cancelChild(ctx context.Context, do todo, life int64) error {
	id := flowspec.ChildID(do.flow, do.plan.Node, life)
	child, err := p.store.Flows.Get(ctx, id)
	if err == nil && child.Parent != nil && child.Parent.ID == do.flow.ID && !before(child.CreatedAt, do.flow.CreatedAt) {
		_, err = p.Cancel(ctx, id, "cancelled by the flow "+do.flow.ID)
	} else if err == nil {
		err = store.ErrNoFlow // it is another's
	}
	if !errors.Is(err, store.ErrNoFlow) || do.plan.Do != flowplan.DoAbort {
		if errors.Is(err, store.ErrNoFlow) {
			return nil
		}
		return err
	}
	err = p.store.Tasks.ChangeUnlessHeld(ctx, taskID(do.flow, do.plan.Node), func(t *model.Task) (*model.Task, error) {
		if !ofNode(t, do.flow, do.place()) || t.Origin.Generation > life {
			return t, nil
		}
		return p.abort(t, do), nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// report tells the nodes that started flows of the ends of these: it ends the tasks of the nodes,
// and their outboxes tell the flows. What was told changes nothing. again is for flows that plan nothing of that.
func (p planner) report(ctx context.Context, flows []*graph.Flow, held map[string]error, again bool) error {
	var all []*making
	for _, f := range flows {
		planned := slices.ContainsFunc(f.Planned, func(pl graph.Planned) bool { return pl.Do == flowplan.DoOver })
		if _, _, ended := flowplan.Outcome(f); ended && f.Parent != nil && held[f.ID] == nil && (planned || again) {
			all = append(all, &making{flow: f})
		}
	}
	last := func(m *making) int { return len(m.flow.Nodes) - 1 }
	err := p.provide(ctx, all, func(m *making) {
		if i := last(m); flowspec.HasTask(&m.flow.Nodes[i]) && m.err == nil {
			if _, known, _ := m.output(i); !known {
				m.missing = []int{i}
			}
		}
	})
	if err != nil {
		return err
	}
	for _, m := range all {
		i := last(m)
		status, why, _ := flowplan.Outcome(m.flow)
		var output bson.RawValue
		if m.flow.States[i].Status == graph.NodeSuccess && status == model.StatusSuccess {
			output = m.flow.States[i].Output
			if flowspec.HasTask(&m.flow.Nodes[i]) {
				var gone error
				if output, _, gone = m.output(i); gone != nil {
					status, why = model.StatusFailure, fmt.Sprintf("its flow %s has ended, but %v", m.flow.Key, gone)
				}
			}
		}
		err := m.err
		if err == nil {
			err = p.conclude(ctx, m.flow, status, output, why)
		}
		if store.Outage(err) {
			return err
		} else if err != nil {
			held[m.flow.ID] = fmt.Errorf("telling the flow %s: %w", m.flow.Parent.ID, err)
		}
	}
	return nil
}

// conclude ends the task of the node that started a flow, if it is still of that life.
func (p planner) conclude(ctx context.Context, child *graph.Flow, status model.Status, result bson.RawValue, why string) error {
	younger, err := p.concludeTask(ctx, flowspec.ParentTask(child), child.Parent, child.CreatedAt, status, result, why)
	if err != nil || !younger {
		return err
	}
	// A person has had the task run again since, or it is that of a later flow with the same key.
	switch parent, err := p.store.Flows.Get(ctx, child.Parent.ID); {
	case errors.Is(err, store.ErrNoFlow):
		return nil
	case err != nil:
		return err
	case before(child.CreatedAt, parent.CreatedAt):
		return nil
	}
	_, err = p.concludeTask(ctx, flowspec.ParentTask(child), child.Parent, time.Time{}, status, result, why)
	return err
}

// concludeTask ends a task that no worker runs, if it is of that node and life. began is when the flow
// began that it waits for: a younger task stays as it is (zero = no task is younger).
func (p planner) concludeTask(ctx context.Context, id string, of *model.Origin, began time.Time, status model.Status, result bson.RawValue, why string) (younger bool, err error) {
	err = p.store.Tasks.ChangeUnlessHeld(ctx, id, func(t *model.Task) (*model.Task, error) {
		o := t.Origin
		if o == nil || o.ID != of.ID || o.Generation != of.Generation {
			return t, nil
		}
		if younger = !began.IsZero() && before(began, t.CreatedAt); younger {
			return t, nil
		}
		return lifecycle.Conclude(t, status, result, why, lifecycle.EffectiveOf(t, p.types.Options(t.Type)), p.store.Clock.Now()), nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return younger, err
}
