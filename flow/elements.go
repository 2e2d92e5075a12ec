package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perInsert is how many tasks of elements go out in one command.
	perInsert = 1000
	// perGather is how many outputs of elements are read at a time: each may have a megabyte.
	perGather = 50
)

// elements sends, releases and cancels the tasks of elements, and ends the tasks of nodes whose
// elements have ended. Keys and origins name the life of the node, so all of it may be done twice.
// running gets the tasks whose handlers must hear that they are cancelled.
func (p planner) elements(ctx context.Context, todos []todo, held map[string]error, running map[string]bool) error {
	if len(todos) == 0 {
		return nil
	}
	if err := p.spread(ctx, todos, held); err != nil {
		return err
	}
	if err := p.changeElements(ctx, todos, held, running); err != nil {
		return err
	}
	for _, do := range todos {
		i := do.place()
		if held[do.flow.ID] != nil || do.flow.States[i].Life != do.plan.Life || !flowplan.Gathers(do.flow, i) {
			continue
		}
		if err := p.gather(ctx, do.flow, i); store.Outage(err) {
			return err
		} else if err != nil { // it concerns this flow alone
			held[do.flow.ID] = fmt.Errorf("the outputs of the elements of node %s: %w", do.flow.Nodes[i].ID, err)
		}
	}
	return nil
}

// spread sends the tasks of elements that have not ended. Those that exist stay as they are.
func (p planner) spread(ctx context.Context, todos []todo, held map[string]error) error {
	var tasks []*model.Task
	var of []string // a task's flow
	now := p.store.Clock.Now()
	for _, do := range todos {
		i := do.place()
		if held[do.flow.ID] != nil || !flowplan.Runs(do.flow, do.plan) {
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

// changeElements releases and cancels tasks of elements.
func (p planner) changeElements(ctx context.Context, todos []todo, held map[string]error, running map[string]bool) error {
	changes := map[string][]todo{} // by task, in the order of the decisions
	for _, do := range todos {
		i := do.place()
		st := &do.flow.States[i]
		switch {
		case held[do.flow.ID] != nil:
		case do.plan.Do == flowplan.DoElements:
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
			case do.plan.Do == flowplan.DoAbort:
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
	for _, id := range stuck { // the others go on
		for _, do := range changes[id] {
			held[do.flow.ID] = fmt.Errorf("changing the task %s: %w", id, store.ErrHeld)
		}
	}
	return err
}

// gather ends the task of a node whose elements have ended: with their outputs in order, and as a
// failure if one has failed. Of an element that failed the output is null.
func (p planner) gather(ctx context.Context, f *graph.Flow, i int) error {
	st := &f.States[i]
	var ids []string
	if !strings.ContainsFunc(st.Elements, func(letter rune) bool { return flowplan.ElementOpen(byte(letter)) }) {
		for k := range len(st.Elements) {
			ids = append(ids, flowspec.ElementID(f, i, k, st.Life))
		}
	}
	failed := strings.IndexByte(st.Elements, flowplan.ElementFailed)
	why := ""
	start, out := bsoncore.AppendArrayStart(nil)
	for from := 0; from < len(ids) && len(out) <= input.MaxResultBytes; from += perGather {
		some := ids[from:min(from+perGather, len(ids))]
		tasks, err := p.store.Tasks.LastLivesOf(ctx, some, store.Output)
		if err != nil {
			return err
		}
		for k, id := range some {
			v := bsoncore.Value{Type: bsoncore.TypeNull}
			if st.Elements[from+k] == flowplan.ElementSucceeded {
				switch t, there := tasks[id]; {
				case !there:
					why = cmp.Or(why, fmt.Sprintf("the output of element %d is gone: its task has been deleted", from+k))
				case t == nil:
					return fmt.Errorf("this process cannot read the output of element %d", from+k)
				case t.Result.Type != 0:
					v = bsoncore.Value{Type: bsoncore.Type(t.Result.Type), Data: t.Result.Value}
				}
			}
			out = bsoncore.AppendValueElement(out, strconv.Itoa(from+k), v)
		}
	}
	out, _ = bsoncore.AppendArrayEnd(out, start)
	result := bson.RawValue{Type: bson.TypeArray, Value: out}
	if len(out) > input.MaxResultBytes {
		result, why = bson.RawValue{}, fmt.Sprintf("the outputs of its elements have more than %d bytes together", input.MaxResultBytes)
	}
	if failed >= 0 {
		var err error
		if why, err = p.whyFailed(ctx, f, i, failed); err != nil {
			return err
		}
	}
	status := model.StatusSuccess
	if why != "" {
		status = model.StatusFailure
	}
	_, err := p.concludeTask(ctx, taskID(f, i), &model.Origin{ID: f.ID, Generation: st.Life}, time.Time{}, status, result, why)
	return err
}

// whyFailed names the first element that failed.
func (p planner) whyFailed(ctx context.Context, f *graph.Flow, i, failed int) (string, error) {
	st := &f.States[i]
	id := flowspec.ElementID(f, i, failed, st.Life)
	tasks, err := p.store.Tasks.LastLivesOf(ctx, []string{id}, store.State)
	if err != nil {
		return "", err
	}
	info := "its task is gone"
	if t := tasks[id]; t != nil {
		if info = t.ErrorInfo; info == "" {
			info = "its task ended as " + string(t.Status)
		}
	}
	return fmt.Sprintf("%d of its %d elements failed, the first is element %d: %s",
		strings.Count(st.Elements, string(rune(flowplan.ElementFailed))), len(st.Elements), failed, info), nil
}
