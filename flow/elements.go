package flow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// perInsert is how many tasks of elements go out in one command.
const perInsert = 1000

// elements sends, releases and cancels the tasks of elements. Keys and origins name the life of the node, so all of it
// may be done twice.
// running gets the tasks whose handlers must hear that they are cancelled.
func (p planner) elements(ctx context.Context, todos []todo, held map[string]error, running map[string]bool) error {
	if len(todos) == 0 {
		return nil
	}
	if err := p.spread(ctx, todos, held); err != nil {
		return err
	}
	return p.changeElements(ctx, todos, held, running)
}

// spread sends the tasks of elements that have not ended. Those that exist stay as they are.
func (p planner) spread(ctx context.Context, todos []todo, held map[string]error) error {
	var tasks []*model.Task
	var of []string // a task's flow
	now := p.store.Clock.Now()
	late, err := p.late(ctx, todos)
	if err != nil {
		return err
	}
	for _, do := range todos {
		i := do.place()
		if held[do.flow.ID] != nil || !flowplan.Runs(do.flow, do.plan) || late(do) {
			continue
		}
		v, st := &do.flow.Nodes[i], &do.flow.States[i]
		if err := p.types.Unread(v.Task.Type); err != nil {
			held[do.flow.ID] = err
			continue
		}
		for k := range do.plan.Items {
			if !flowplan.ElementOpen(st.Elements[k]) {
				continue
			}
			d := flowspec.Element(do.flow, i, k, st.Life, do.plan.Items[k], st.Elements[k] == flowplan.ElementWaits)
			d.Typed(p.types.Get(v.Task.Type))
			d.Trace = do.flow.Trace
			tasks, of = append(tasks, lifecycle.NewTask(d, now)), append(of, do.flow.ID)
		}
	}
	for len(tasks) > 0 {
		n := min(len(tasks), perInsert)
		_, err := p.store.Tasks.Insert(ctx, tasks[:n])
		var some *store.InsertError
		switch {
		case errors.As(err, &some):
			for i := range some.Refused {
				held[of[i]] = fmt.Errorf("sending the tasks of elements: %w", err)
			}
		case err != nil:
			return fmt.Errorf("sending the tasks of elements: %w", err)
		}
		tasks, of = tasks[n:], of[n:]
	}
	return nil
}

// late reads the tasks of nodes that are to start elements or flows. A node is late if its task has ended, or has begun a
// new life, while this process was slow. Nobody waits for what such a node would start.
func (p planner) late(ctx context.Context, todos []todo) (func(do todo) bool, error) {
	var ids []string
	for _, do := range todos {
		if do.plan.Do == flowplan.DoRelease || do.plan.Do == flowplan.DoRestart {
			ids = append(ids, taskID(do.flow, do.place()))
		}
	}
	tasks, err := p.store.Tasks.LastLivesOf(ctx, ids, store.State)
	if err != nil {
		return nil, fmt.Errorf("reading the tasks of nodes that start others: %w", err)
	}
	return func(do todo) bool {
		t := tasks[taskID(do.flow, do.place())]
		return t != nil && ofNode(t, do.flow, do.place()) && (t.Origin.Generation > do.plan.Life || t.Origin.Generation == do.plan.Life && t.Status.Ended())
	}, nil
}

// changeElements releases and cancels tasks of elements.
func (p planner) changeElements(ctx context.Context, todos []todo, held map[string]error, running map[string]bool) error {
	changes := map[string][]todo{} // by task, in the order of the decisions
	for _, do := range todos {
		i := do.place()
		st := &do.flow.States[i]
		switch {
		case held[do.flow.ID] != nil:
		case do.plan.Do == flowplan.DoElements, do.plan.Do == flowplan.DoDrop:
			for _, k := range do.plan.Elements {
				id := flowspec.ElementID(do.flow, i, k, do.plan.Life)
				changes[id] = append(changes[id], do)
			}
		case do.plan.Do == flowplan.DoAbort && st.Life == do.plan.Life:
			for k := range len(st.Elements) {
				if flowplan.ElementOpen(st.Elements[k]) {
					id := flowspec.ElementID(do.flow, i, k, st.Life)
					changes[id] = append(changes[id], do)
				}
			}
		}
	}
	stuck, err := decision.ChangeTasks(ctx, p.store, "carrying out decisions about elements", slices.Collect(maps.Keys(changes)), func(t *model.Task) *model.Task {
		after := t
		for _, do := range changes[t.ID] {
			switch {
			case !ofNode(t, do.flow, do.place()):
			case do.plan.Do != flowplan.DoElements:
				after = p.abort(after, do)
			default:
				if released, err := lifecycle.Release(after, lifecycle.EffectiveOf(after, p.types.Options(t.Type)), do.now); err == nil {
					after = released
				}
			}
		}
		if after != t {
			after.Rev = t.Rev + 1 // one write, one rev
		}
		if !after.CancelRequestedAt.IsZero() && lifecycle.OpenExecutions(after) > 0 {
			running[t.ID] = true
		}
		return after
	})
	for id, why := range stuck { // the others go on
		for _, do := range changes[id] {
			held[do.flow.ID] = fmt.Errorf("changing the task %s: %w", id, why)
		}
	}
	return err
}
