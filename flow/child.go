package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
func (p planner) children(ctx, long context.Context, todos []todo, held map[string]error) error {
	todos = slices.DeleteFunc(slices.Clone(todos), func(do todo) bool { return held[do.flow.ID] != nil })
	late, err := p.late(ctx, todos)
	if err != nil {
		return err
	}
	starts := func(do todo) bool {
		st := &do.flow.States[do.plan.Node]
		return do.lost == nil && (do.plan.Do == flowplan.DoRelease || do.plan.Do == flowplan.DoRestart) && st.Status == graph.NodeReady && st.Life == do.plan.Life && !late(do)
	}
	nodes, err := p.withoutSettled(ctx, todos, starts)
	if err != nil {
		return err
	}
	var mu sync.Mutex // of started
	var started []*graph.Flow
	err = eachApart(ctx, long, nodes, func(of []todo) *graph.Flow { return of[0].flow }, held, func(ctx context.Context, of []todo) error {
		for _, do := range of {
			err := p.cancelLast(ctx, do)
			if err == nil && starts(do) {
				var child *graph.Flow
				if child, err = p.startChild(ctx, do); child != nil {
					mu.Lock()
					started = append(started, child)
					mu.Unlock()
				}
			}
			if err != nil {
				return fmt.Errorf("the flow of node %s: %w", do.flow.Nodes[do.plan.Node].ID, err)
			}
		}
		return nil
	})
	if err != nil || len(started) == 0 {
		return err
	}
	if _, err := p.decider.CarryOut(long, started); err != nil {
		if store.Outage(err) && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		p.log.Warn().Err(err).Msg("could not carry out the start of a flow that a node started; retrying")
	}
	return nil
}

// cancelLast cancels the flow of a node whose life ends, if it does.
func (p planner) cancelLast(ctx context.Context, do todo) error {
	if life, ends := lastLife(do); ends {
		return p.cancelChild(ctx, do, life)
	}
	return nil
}

// lastLife is the life of a node whose flow a plan cancels; ends is false if it cancels none.
func lastLife(do todo) (life int64, ends bool) {
	switch do.plan.Do {
	case flowplan.DoRestart, flowplan.DoReset:
		return do.plan.Life - 1, true
	case flowplan.DoAbort:
		return do.plan.Life, true
	default:
		return 0, false
	}
}

// withoutSettled groups the plans by node, in the order of the decisions. It leaves out nodes whose plans an earlier try
// has carried out.
func (p planner) withoutSettled(ctx context.Context, todos []todo, starts func(todo) bool) (nodes [][]todo, err error) {
	childOf := func(do todo, life int64) string { return flowspec.ChildID(do.flow, do.plan.Node, life) }
	var ids, last, tasks []string
	for _, do := range todos {
		if life, ends := lastLife(do); ends {
			last = append(last, childOf(do, life))
		}
		if starts(do) {
			ids = append(ids, childOf(do, do.plan.Life))
		}
		if do.plan.Do == flowplan.DoAbort {
			tasks = append(tasks, taskID(do.flow, do.plan.Node))
		}
	}
	known, err := p.store.Flows.Briefs(ctx, append(ids, last...), true)
	if err != nil {
		return nil, err
	}
	last = slices.DeleteFunc(last, func(id string) bool { _, there := known[id]; return there })
	begun, err := p.store.Flows.Briefs(ctx, last, false) // a majority may have them soon
	if err != nil {
		return nil, err
	}
	aborted, err := p.store.Tasks.DurableHeads(ctx, tasks)
	if err != nil {
		return nil, err
	}
	settled := func(do todo) bool {
		if child := known[childOf(do, do.plan.Life)]; starts(do) && (child == nil || !startedBy(child, do) || child.Parent.Generation != do.plan.Life) {
			return false
		}
		life, ends := lastLife(do)
		if !ends {
			return true
		}
		id := childOf(do, life)
		child, there := known[id]
		_, begins := begun[id]
		switch {
		case there && child == nil, begins: // nobody knows
			return false
		case there && startedBy(child, do):
			return child.Closed || child.Status == graph.StatusFinish
		case do.plan.Do != flowplan.DoAbort:
			return true
		}
		t, there := aborted[taskID(do.flow, do.plan.Node)]
		return !there || t != nil && p.abandoned(t, do, life) == t
	}
	places := map[string]int{}
	for _, do := range todos {
		id := taskID(do.flow, do.plan.Node)
		at, there := places[id]
		if !there {
			at = len(nodes)
			places[id], nodes = at, append(nodes, nil)
		}
		nodes[at] = append(nodes[at], do)
	}
	return slices.DeleteFunc(nodes, func(of []todo) bool {
		return !slices.ContainsFunc(of, func(do todo) bool { return !settled(do) })
	}), nil
}

// startedBy says whether the node has started the flow. One with its id may be another's.
func startedBy(child *graph.Flow, do todo) bool {
	return child.Parent != nil && child.Parent.ID == do.flow.ID && !before(child.CreatedAt, do.flow.CreatedAt)
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
	if err == nil && startedBy(child, do) {
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
		return p.abandoned(t, do, life), nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// abandoned is the task of a node whose flow never began.
func (p planner) abandoned(t *model.Task, do todo, life int64) *model.Task {
	if !ofNode(t, do.flow, do.place()) || t.Origin.Generation > life {
		return t
	}
	return p.abort(t, do)
}

// report tells the nodes that started flows of the ends of these: it ends the tasks of the nodes,
// and their outboxes tell the flows. What was told changes nothing. again is for flows that plan nothing of that.
func (p planner) report(ctx, long context.Context, flows []*graph.Flow, held map[string]error, again bool) error {
	var all []*making
	for _, f := range flows {
		planned := slices.ContainsFunc(f.Planned, func(pl graph.Planned) bool { return pl.Do == flowplan.DoOver })
		if _, _, ended := flowplan.Outcome(f); ended && f.Parent != nil && held[f.ID] == nil && (planned || again) {
			all = append(all, &making{flow: f})
		}
	}
	for first := true; len(all) > 0; first = false {
		if long.Err() != nil && !first {
			held[all[0].flow.ID] = errNoTime
			all = all[1:]
			continue
		}
		n, err := p.reportSome(ctx, long, all, held)
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// reportSome is [planner.report] for the first n of them, as many as [Flows.provide] allows.
func (p planner) reportSome(ctx, long context.Context, all []*making, held map[string]error) (n int, err error) {
	last := func(m *making) int { return len(m.flow.Nodes) - 1 }
	n, err = p.provide(ctx, all, func(m *making) {
		if i := last(m); flowspec.HasTask(&m.flow.Nodes[i]) && m.err == nil {
			if _, known, _ := m.output(i); !known {
				m.missing = []int{i}
			}
		}
	})
	if err != nil {
		return n, err
	}
	return n, eachApart(ctx, long, all[:n], func(m *making) *graph.Flow { return m.flow }, held, func(ctx context.Context, m *making) error {
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
		m.known = nil
		if err != nil {
			return fmt.Errorf("telling the flow %s: %w", m.flow.Parent.ID, err)
		}
		return nil
	})
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
