package flow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// todo is what is to be done with the task of a node.
type todo struct {
	flow *graph.Flow
	plan *graph.Planned
	now  time.Time // the same for all, so that equal changes are one statement
	lost error     // why its arguments cannot be made any more; nil = they can
}

// place is where the node stands among those of its flow.
func (do todo) place() int { return flowplan.Place(do.flow, do.plan) }

// errNoTime holds what a call has not begun.
var errNoTime = errors.New("others took the time of this call")

// Finish implements [decision.Planner]: tasks may run, are cancelled, or begin a new life, and the
// records of nodes are stored. Each task records the life of its node (origin.generation), so what
// was done already, or is out of date, changes nothing.
func (p planner) Finish(ctx context.Context, flows []*graph.Flow, _ map[string]error) (held map[string]error, err error) {
	long, cancel := context.WithTimeout(ctx, longTime)
	defer cancel()
	held = map[string]error{}
	for first := true; len(flows) > 0; first = false {
		if long.Err() != nil && !first { // the next try has less to do
			held[flows[0].ID] = errNoTime
			flows = flows[1:]
			continue
		}
		n, some, err := p.finishSome(ctx, long, flows)
		switch {
		case err != nil && !first && errors.Is(err, context.DeadlineExceeded): // what is carried out stays so
			for _, f := range flows {
				held[f.ID] = errNoTime
			}
			return held, nil
		case err != nil:
			return nil, err
		}
		maps.Copy(held, some)
		flows = flows[n:]
	}
	return held, nil
}

// finishSome is [planner.Finish] for the first n flows, as many as there is room for their arguments.
func (p planner) finishSome(ctx, long context.Context, flows []*graph.Flow) (n int, held map[string]error, err error) {
	todos := map[string][]todo{}  // by task, in the order of the decisions
	var children, elements []todo // of nodes that start flows, and of those with elements
	var renew []string
	records := map[string]*graph.Node{}
	n, held, lost, err := p.arguments(ctx, flows)
	if err != nil {
		return n, nil, err
	}
	flows = flows[:n]
	started, err := p.linked(ctx, flows, held)
	if err != nil {
		return n, nil, err
	}
	now := p.store.Clock.Now()
	for _, f := range flows {
		if held[f.ID] != nil {
			continue
		}
		for k := range f.Planned {
			pl := &f.Planned[k]
			if !flowplan.OfNode(pl) {
				continue
			}
			i := flowplan.Place(f, pl)
			id, do := taskID(f, i), todo{f, pl, now, lost[pl]}
			switch {
			case pl.Do == flowplan.DoLink:
				for n := i; n < i+pl.N; n++ {
					record := flowplan.RecordOf(f, n)
					records[record.ID] = record
				}
			case pl.Do == flowplan.DoRelease && started[id] != nil:
			case pl.Do == flowplan.DoRelease, pl.Do == flowplan.DoAbort:
				todos[id] = append(todos[id], do)
			case pl.Do == flowplan.DoRestart, pl.Do == flowplan.DoReset:
				renew = append(renew, id)
				todos[id] = append(todos[id], do)
			}
			if f.Nodes[i].Flow != nil && pl.Do != "" {
				children = append(children, do)
			}
			if f.Nodes[i].Each != nil && pl.Do != "" {
				elements = append(elements, do)
			}
			record := flowplan.RecordOf(f, i)
			records[record.ID] = record
		}
	}
	running, err := p.renewAll(ctx, long, renew, todos, held)
	if err != nil {
		return n, nil, err
	}
	for _, id := range renew {
		delete(todos, id)
	}
	next := maps.Clone(started) // tasks of streams that may run now
	stuck, err := decision.ChangeTasks(ctx, p.store, "carrying out decisions about flows", slices.Collect(maps.Keys(todos)), func(t *model.Task) *model.Task {
		after := t
		for _, do := range todos[t.ID] {
			after = p.apply(after, do)
		}
		if after != t {
			after.Rev = t.Rev + 1 // one write, one rev
		}
		delete(next, t.ID)
		if after != t && after.Status == model.StatusNew && todos[t.ID][0].flow.Kind == graph.KindStream {
			next[t.ID] = after
		}
		running[t.ID] = !after.CancelRequestedAt.IsZero() && lifecycle.OpenExecutions(after) > 0
		return after
	})
	if err != nil {
		return n, nil, err
	}
	for id, why := range stuck { // the others go on
		delete(next, id)
		for _, t := range todos[id] {
			held[t.flow.ID] = fmt.Errorf("changing the task %s: %w", id, why)
		}
	}
	decision.Offer(p.store, slices.Collect(maps.Values(next)))
	if err := p.elements(ctx, elements, held, running); err != nil {
		return n, nil, err
	}
	if err := p.children(ctx, long, children, held); err != nil {
		return n, nil, err
	}
	if err := p.report(ctx, long, flows, held, false); err != nil {
		return n, nil, err
	}
	p.gatherAll(long, elements, held)
	maps.DeleteFunc(running, func(_ string, signal bool) bool { return !signal })
	if err := p.store.Control.Signal(ctx, slices.Sorted(maps.Keys(running))...); err != nil {
		return n, nil, err
	}
	waits, err := p.store.Nodes.Put(ctx, slices.Collect(maps.Values(records)))
	if err != nil {
		return n, nil, err
	}
	for _, n := range waits {
		held[n.FlowID] = fmt.Errorf("storing the record of the node %s: %w", n.ID, store.ErrHeld)
	}
	for _, f := range flows {
		goesOn := slices.ContainsFunc(f.Planned, func(pl graph.Planned) bool { return pl.Do == flowplan.DoKeep })
		if held[f.ID] != nil || f.DeleteAt.IsZero() && !goesOn || f.Kind == graph.KindStream {
			continue // the records of a stream are kept each for its own time
		}
		if err := p.store.Nodes.KeepUntil(ctx, f.ID, f.DeleteAt, f.Rev); errors.Is(err, store.ErrHeld) {
			held[f.ID] = err
		} else if err != nil {
			return n, nil, err
		}
	}
	for _, f := range flows {
		if flowplan.Dry(f) && p.streams.dried.Len() < perAppend { // it does not wait: the queue waits for decisions
			_ = p.streams.dried.Put(ctx, f.ID) // else what was stored meanwhile is due soon
		}
	}
	for _, f := range flows {
		for k := range f.Planned { // engines remember flows for a while: this is stored, or can be made again
			if pl := &f.Planned[k]; held[f.ID] == nil {
				pl.Links, pl.Args, pl.Items = nil, bson.RawValue{}, nil
			}
		}
	}
	p.alert(slices.DeleteFunc(slices.Clone(flows), func(f *graph.Flow) bool { return held[f.ID] != nil })) // told once, with the rest
	return n, held, nil
}

// late is by how much a task ended after its node became READY if it was released since. What two
// processes know of the database's time does not differ by as much.
const late = 5 * time.Second

// apply releases or cancels a task. A task of another life of the node stays as it is, but that an
// earlier life is cancelled, too: the node has gone beyond it.
func (p planner) apply(t *model.Task, do todo) *model.Task {
	if !ofNode(t, do.flow, do.place()) || t.Origin.Generation > do.plan.Life {
		return t
	}
	switch {
	case do.plan.Do == flowplan.DoAbort && do.flow.States[do.place()].Status == graph.NodeReady && t.Status.Ended() && t.Status != model.StatusPending:
		return toldOnce(t, do) // it ended between the decision and what that had read
	case do.plan.Do == flowplan.DoAbort && t.Type == flowspec.NodeType && do.flow.States[do.place()].Status == graph.NodeReady:
		return t // it ends when its flow or its elements have, which are cancelled
	case do.plan.Do == flowplan.DoAbort:
		return p.abort(t, do)
	case do.plan.Do == flowplan.DoReset, t.Origin.Generation < do.plan.Life:
		return t
	case t.Status.Ended() && t.FinishedAt.Sub(do.flow.States[do.place()].At) > late:
		return t // it has run since: this process was frozen
	case t.Status.Ended(): // while its node waited: the flow knew nothing to do with the end
		return lifecycle.TellAgain(t, do.now)
	case t.Status != model.StatusWait && t.Type != flowspec.NodeType:
		return t
	}
	return p.started(t, do)
}

// toldOnce has the flow told of an end, unless it is about to be.
func toldOnce(t *model.Task, do todo) *model.Task {
	if t.Origin.Generation != do.plan.Life || slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomeFlow }) {
		return t
	}
	return lifecycle.TellAgain(t, do.now)
}

// abort ends a task that its node does not need any more.
func (p planner) abort(t *model.Task, do todo) *model.Task {
	return flowplan.Aborted(do.flow, do.plan, t, lifecycle.EffectiveOf(t, p.types.Options(t.Type)), do.now)
}

// ofNode says whether the task is that of a node of the flow.
func ofNode(t *model.Task, f *graph.Flow, i int) bool {
	return t.Origin != nil && t.Origin.Kind == lifecycle.OutcomeFlow && t.Origin.ID == f.ID && !earlier(t, f, i)
}

// earlier says whether the task is of an earlier flow with the same key, or of an earlier node of a
// stream: somebody deleted that, and its tasks are there still.
func earlier(t *model.Task, f *graph.Flow, i int) bool {
	began := f.CreatedAt
	if f.Kind == graph.KindStream {
		began = f.Nodes[i].CreatedAt
	}
	return !t.CreatedAt.IsZero() && before(t.CreatedAt, began)
}

// before says whether a time is before another one, also if two processes have taken them.
func before(a, b time.Time) bool { return b.Sub(a) > late }

// released is a task that waits, with its arguments, as one that may run.
func (p planner) released(t *model.Task, do todo) *model.Task {
	after, now, typ := t, do.now, p.types.Options(t.Type)
	if do.flow.Nodes[do.place()].Args != "" { // also where they are null: an earlier life's do not count
		var err error
		if after, err = lifecycle.Update(t, lifecycle.Patch{Args: &do.plan.Args}, typ, now); err != nil {
			return t
		}
	}
	after, err := lifecycle.Release(after, lifecycle.EffectiveOf(after, typ), now)
	if err != nil {
		return t
	}
	return after
}

// started is a task that waits as one that may run, or as one that has failed because its arguments cannot
// be made.
func (p planner) started(t *model.Task, do todo) *model.Task {
	switch {
	case do.lost != nil:
		return lifecycle.Conclude(t, model.StatusFailure, bson.RawValue{}, do.lost.Error(), lifecycle.EffectiveOf(t, p.types.Options(t.Type)), do.now)
	case t.Type == flowspec.NodeType: // which waits for the engine
		return t
	}
	return p.released(t, do)
}

// alert tells of nodes that have begun to wait for a person.
func (p planner) alert(flows []*graph.Flow) {
	for _, f := range flows {
		for k := range f.Planned {
			if f.Planned[k].Do != flowplan.DoAlert {
				continue
			}
			i := flowplan.Place(f, &f.Planned[k])
			if st := &f.States[i]; flowplan.Root(st) {
				p.log.Warn().Str("flow_id", f.ID).Str("node", f.Nodes[i].ID).Str("reason", st.Reason).Msg("a node of a flow is PENDING: it waits for a person")
				p.alerts.add(alert{f, f.Nodes[i].ID, st.Reason})
			}
		}
	}
}
