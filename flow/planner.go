package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// planner is what the machinery of decisions needs to know of flows.
type planner struct{ *Flows }

var _ decision.Planner[*graph.Flow] = planner{}

func (planner) Kind() string                        { return lifecycle.OutcomeFlow }
func (planner) DueAt(f *graph.Flow) time.Time       { return f.DueAt }
func (planner) MustKnow(*graph.Flow) (ids []string) { return nil }

// PlannedBytes implements [decision.Planner].
func (planner) PlannedBytes(f *graph.Flow) (n int) {
	const each = 256
	for i := range f.Planned {
		n += each + len(f.Planned[i].Args.Value) + len(f.Planned[i].Tell)
		if t := f.Planned[i].Task; t != nil {
			n += each + len(t.Args.Value)
		}
		for _, l := range f.Planned[i].Links {
			n += each
			if l.Task != nil {
				n += len(l.Task.Args.Value)
			}
		}
	}
	return n
}

func (planner) Tasks(f *graph.Flow) (tasks []*model.Task) {
	for i := range f.Planned {
		p := &f.Planned[i]
		if p.Task != nil {
			tasks = append(tasks, p.Task)
		}
		if d, is := flowplan.Delivery(f, p); is {
			tasks = append(tasks, lifecycle.NewTask(d, f.UpdatedAt))
		}
	}
	return tasks
}

// Trace implements [decision.Planner]. The tasks of a stream have the traces of its appends.
func (planner) Trace(f *graph.Flow) *model.Trace {
	if f.Kind == graph.KindStream {
		return nil
	}
	return f.Trace
}

func (planner) Of(l store.OutboxLife) string {
	if l.Origin == nil || l.Origin.Kind != lifecycle.OutcomeFlow {
		return ""
	}
	return l.Origin.ID
}

// Keep implements [decision.Planner]: a decision keeps all that it needs of ends.
func (planner) Keep(context.Context, []decision.Case[*graph.Flow]) error { return nil }

// Decide implements [decision.Planner]: all ends of a flow's tasks, and the nodes whose time has
// come, are one decision. That of the last node of a stream links the next, too.
func (p planner) Decide(ctx context.Context, cases []decision.Case[*graph.Flow], now time.Time) ([]decision.Answer[*graph.Flow], error) {
	made, ends := make([]*making, len(cases)), make([][]flowplan.End, len(cases))
	for i, c := range cases {
		ends[i] = endsOf(c.Doc, c.Ends)
		made[i] = &making{flow: c.Doc, known: p.memory.of(c.Doc), decide: func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
			return flowplan.Ended(c.Doc, ends[i], in, now)
		}}
		made[i].impatient = p.failing.over(c.Doc, p.store.Local().Monotonic())
	}
	answers, entered := make([]decision.Answer[*graph.Flow], len(cases)), p.store.Local().Monotonic()
	for from, late := 0, false; from < len(cases); {
		if late = late || from > 0 && p.store.Local().Monotonic()-entered > longTime; late { // a later look tells the others
			answers[from].After = cases[from].Doc
			from++
			continue
		}
		n, err := p.make(ctx, made[from:], now)
		for _, m := range made[from:] { // also where the next read failed: the memory is that of later decisions
			for _, life := range m.passing {
				m.known.forget(life)
			}
		}
		if late = err != nil && from > 0 && errors.Is(err, context.DeadlineExceeded); late {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := from; i < from+n; i++ {
			answers[i] = p.answer(&cases[i], made[i], ends[i], now)
			made[i] = nil // the memory has what is kept of its outputs
			if n < len(cases) && answers[i].Changed {
				withoutArguments(answers[i].After.Planned[len(cases[i].Doc.Planned):])
			}
		}
		from += n
	}
	// Nodes that cannot be read now, or are too many, do not keep the ends of other flows waiting.
	if err := errors.Join(p.linkDue(ctx, cases, answers, now), p.linkDry(ctx, answers, now)); err != nil {
		p.log.Warn().Err(err).Msg("could not read nodes of streams to link; retrying")
	}
	return answers, nil
}

// answer remembers what was read for a decision, and how its joins did, and returns it.
func (p planner) answer(c *decision.Case[*graph.Flow], m *making, ends []flowplan.End, now time.Time) decision.Answer[*graph.Flow] {
	p.memory.keep(cmp.Or(m.after, m.flow), m.known)
	if fails := (*flowplan.JoinError)(nil); errors.As(m.err, &fails) {
		p.failing.failed(c.Doc.ID, fails.Node, p.store.Local().Monotonic())
	} else if m.err == nil && !m.impatient { // else the decision may not be written, and is made again
		p.failing.passed(m.after, ends, c.Due)
	}
	if lacks := (*flowplan.NoJoinError)(nil); errors.As(m.err, &lacks) {
		p.lacks(c.Doc, lacks, now)
		m.after, m.err = m.flow, nil
	}
	return decision.Answer[*graph.Flow]{After: m.after, Changed: m.err == nil && m.after != m.flow, Told: len(c.Ends), Err: m.err}
}

// lacks tells the operator of a custom join that this process does not have, unless an engine that has it may still have
// its turn.
func (p planner) lacks(doc *graph.Flow, e *flowplan.NoJoinError, now time.Time) {
	if now.Sub(doc.DueAt) >= decision.Slow && p.lacking.Again(doc.ID, p.store.Local()) {
		p.log.Warn().Str("flow_id", doc.ID).Str("node", e.Node).Str("join", e.Join).Msg("no engine has called the join function of this node, and this process does not have it; other nodes are not affected")
	}
}

// endsOf are the ends of tasks as the planner of flows sees them. One of a node that the flow does
// not have, or of an earlier flow, says nothing.
func endsOf(doc *graph.Flow, lives []store.OutboxLife) (ends []flowplan.End) {
	places := make(map[string]int, len(doc.Nodes))
	for i := range doc.Nodes {
		places[doc.Nodes[i].ID] = i
	}
	for _, l := range lives {
		if i, there := places[l.Origin.Node]; there && !earlier(l.Task, doc, i) {
			ends = append(ends, flowplan.End{Node: i, Element: l.Origin.Element, Life: l.Origin.Generation, Status: l.Status, ErrorInfo: l.ErrorInfo})
		}
	}
	return ends
}

// Complete implements [decision.Planner].
func (p planner) Complete(w store.Decision[*graph.Flow], _ time.Time) error {
	known := map[string]bool{}
	for i := range w.Before.Planned {
		known[w.Before.Planned[i].ID] = true
	}
	return p.complete(w.After, known)
}

// complete gives the tasks that a flow plans, but for the known plans, what a send of their types
// gives to its tasks.
func (f *Flows) complete(doc *graph.Flow, known map[string]bool) error {
	for i := range doc.Planned {
		pl := &doc.Planned[i]
		if pl.Task == nil || known[pl.ID] {
			continue
		}
		if err := f.types.Give(pl.Task); err != nil {
			return err
		}
	}
	return nil
}

const (
	// lostAfter is how long an end is left to the outbox of its task.
	lostAfter = 5 * time.Minute
	perSweep  = 100
)

// Sweep implements [decision.Planner]: it looks for ends that nobody will tell, because somebody
// deleted a task by hand, or parts of the database were restored.
func (p planner) Sweep(ctx context.Context) error {
	now := p.store.Clock.Now()
	var failed error
	for after := (*graph.Flow)(nil); ; {
		flows, unread, err := p.store.Flows.LongReady(ctx, now.Add(-lostAfter), after, perSweep)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, u := range unread {
			failed = errors.Join(failed, fmt.Errorf("the flow %s cannot be read: %w", u.ID, u.Err))
		}
		if len(flows) == 0 {
			return errors.Join(failed, p.linkLost(ctx))
		}
		for _, found := range flows {
			failed = errors.Join(failed, p.tellLost(ctx, found.ID))
		}
		after = flows[len(flows)-1]
	}
}

// tellLost decides the ends of nodes whose tasks are gone, or have ended without telling.
func (p planner) tellLost(ctx context.Context, id string) error {
	_, err := p.change(ctx, "looking for lost ends of", id, "", func(doc *graph.Flow, _ int, in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		var ids []string
		var of []flowplan.End // what their ends are about
		places := longReady(doc, now)
		for _, i := range places {
			if !flowspec.HasTask(&doc.Nodes[i]) {
				continue
			}
			st := &doc.States[i]
			ids, of = append(ids, taskID(doc, i)), append(of, flowplan.End{Node: i, Life: st.Life})
			for k := range len(st.Elements) {
				if flowplan.ElementOpen(st.Elements[k]) {
					ids, of = append(ids, flowspec.ElementID(doc, i, k, st.Life)), append(of, flowplan.End{Node: i, Element: k + 1, Life: st.Life})
				}
			}
		}
		if len(ids) == 0 {
			return doc, nil
		}
		lives, err := p.store.Tasks.LastLivesOf(ctx, ids, store.State)
		if err != nil {
			return nil, err
		}
		var ends []flowplan.End
		for k, e := range of {
			t, there := lives[ids[k]]
			switch {
			case !there, t != nil && t.Origin != nil && t.Origin.Generation < e.Life: // the database was restored
				e.Status, e.ErrorInfo = model.StatusCancelled, "its task is gone"
				ends = append(ends, e)
			case t != nil && earlier(t, doc, e.Node):
				e.Status, e.ErrorInfo = model.StatusCancelled, "its task exists already: it is that of an earlier flow with this key"
				ends = append(ends, e)
			case t == nil, !t.Status.Ended(), slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomeFlow }):
			default:
				e.Status, e.ErrorInfo = t.Status, t.ErrorInfo
				ends = append(ends, e)
			}
		}
		gone, err := p.lostChildren(ctx, doc, places)
		if err != nil {
			return nil, err
		}
		if ends = append(ends, gone...); len(ends) == 0 { // what is due is for the rounds
			return doc, nil
		}
		return despiteJoins(in, func() (*graph.Flow, error) { return flowplan.Ended(doc, ends, in, now) })
	})
	return err
}

// longReady are the places of the nodes that have been READY for so long that their ends may be lost. What is planned
// about a node may still send its task, or begin a new life. Other nodes may have plans at any time.
func longReady(doc *graph.Flow, now time.Time) (places []int) {
	planned := map[int]bool{}
	for k := range doc.Planned {
		if pl := &doc.Planned[k]; flowplan.OfNode(pl) {
			for n := range max(pl.N, 1) {
				planned[flowplan.Place(doc, pl)+n] = true
			}
		}
	}
	for i := range doc.States {
		if st := &doc.States[i]; st.Status == graph.NodeReady && now.Sub(st.At) >= lostAfter && !planned[i] {
			places = append(places, i)
		}
	}
	return places
}

// lostChildren are those of the nodes whose flows are gone. Of flows that are over it tells the nodes once
// more.
func (p planner) lostChildren(ctx context.Context, doc *graph.Flow, places []int) (gone []flowplan.End, err error) {
	for _, i := range places {
		if doc.Nodes[i].Flow == nil {
			continue
		}
		st := &doc.States[i]
		child, err := p.store.Flows.Get(ctx, flowspec.ChildID(doc, i, st.Life))
		switch {
		case errors.Is(err, store.ErrNoFlow):
			gone = append(gone, flowplan.End{Node: i, Life: st.Life, Status: model.StatusCancelled, ErrorInfo: "its flow is gone"})
		case err != nil:
			return nil, err
		case len(child.Planned) == 0:
			if err := p.report(ctx, ctx, []*graph.Flow{child}, map[string]error{}, true); err != nil {
				return nil, err
			}
		}
	}
	return gone, nil
}
