package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// making is a decision about a flow that may need outputs of nodes: of those that arguments refer
// to, and of those that conditions and custom joins look at.
type making struct {
	flow    *graph.Flow
	decide  func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error)
	after   *graph.Flow
	err     error
	known   *memo // nil = nothing
	missing []int
	asked   []int                  // PENDING nodes whose work may still run
	working map[flowplan.Life]bool // what is known of that
	// passing are outputs that another decision reads anew: the task is gone, or somebody has it run again.
	passing []flowplan.Life
	// impatient: a join of the flow has failed for joinPatience.
	impatient bool
}

// maxOutputs bounds the outputs that are read for decisions about several flows, in bytes, beside a page of them.
const maxOutputs = 16 << 20

// make makes the first of these decisions, and reads the outputs that they need, those of all of them together, see
// [Flows.provide].
func (f *Flows) make(ctx context.Context, all []*making, now time.Time) (n int, err error) {
	return f.provide(ctx, all, func(m *making) {
		if m.after == nil && m.err == nil {
			f.try(m, now)
		}
	})
}

// provide calls try with the first n of them, and reads the outputs that these miss, until nothing is missing. They are
// all of them, or need [maxOutputs] together, or are one that needs more. The others keep what was read for them.
func (f *Flows) provide(ctx context.Context, all []*making, try func(*making)) (n int, err error) {
	n = len(all)
	for bytes := 0; ; {
		type lack struct{ making, node int }
		asks := false
		var lacking []string // tasks
		var of []lack        // of each of them
		for k, m := range all[:n] {
			m.missing, m.asked = nil, nil
			if m.known == nil {
				m.known = newMemo(m.flow)
			}
			try(m)
			if asks = asks || len(m.asked) > 0; len(m.asked) > 0 {
				if err := f.lookAtPending(ctx, m); err != nil {
					return n, err
				}
			}
			slices.Sort(m.missing)
			for _, i := range slices.Compact(m.missing) {
				lacking, of = append(lacking, taskID(m.flow, i)), append(of, lack{k, i})
			}
		}
		switch {
		case len(lacking) > 0:
		case asks:
			continue
		default:
			return n, nil
		}
		tasks, read, err := f.store.Tasks.LastLivesPage(ctx, lacking, store.Output)
		if err != nil {
			return n, fmt.Errorf("reading outputs of nodes: %w", err)
		}
		for k, id := range lacking[:read] {
			t, there := tasks[id]
			all[of[k].making].take(of[k].node, t, there)
			if t != nil {
				bytes += len(t.Result.Value)
			}
		}
		if bytes > maxOutputs && read < len(lacking) {
			n = max(1, of[read].making)
		}
	}
}

// take takes the output of a node from its task; nil = this process cannot read that. If the task is not
// there, the output was deleted with it.
func (m *making) take(i int, t *model.Task, there bool) {
	life := flowplan.LifeOf(m.flow, i)
	switch {
	case !there:
		m.known.gone[life] = true
		m.passing = append(m.passing, life)
		return
	case t == nil:
		m.err = fmt.Errorf("flow %s: this process cannot read the output of node %s", m.flow.ID, m.flow.Nodes[i].ID)
		return
	}
	if m.known.outputs[life] = t.Result; !t.Status.Ended() {
		m.passing = append(m.passing, life)
	}
}

// output is that of a node, if it is known. The error is a [*flowplan.GoneError].
func (m *making) output(i int) (out bson.RawValue, known bool, err error) {
	life := flowplan.LifeOf(m.flow, i)
	if m.known.gone[life] {
		return out, true, &flowplan.GoneError{Node: m.flow.Nodes[i].ID}
	}
	out, known = m.known.outputs[life]
	return out, known, nil
}

// arguments fills in those of plans that were read from the database, of the first n flows, as many as [Flows.provide]
// allows: flows store none, since the output of one node may be in the arguments of ten thousand. The outputs of nodes
// that succeeded do not change, unless a person has a task run again. held has the flows whose arguments this process cannot fill in. lost
// has the plans whose outputs were deleted after the decision, or have another number of elements: their tasks fail.
func (f *Flows) arguments(ctx context.Context, flows []*graph.Flow) (n int, held map[string]error, lost map[*graph.Planned]error, err error) {
	lost = map[*graph.Planned]error{}
	all := make([]*making, len(flows))
	for i, doc := range flows {
		all[i] = &making{flow: doc}
	}
	n, err = f.provide(ctx, all, func(m *making) {
		for k := range m.flow.Planned {
			p := &m.flow.Planned[k]
			if m.err != nil || filled(p) || lost[p] != nil || !flowplan.Runs(m.flow, p) {
				continue
			}
			lacks, err := fill(m, m.flow, p)
			m.missing = append(m.missing, lacks...)
			st := &m.flow.States[flowplan.Place(m.flow, p)]
			switch gone := (*flowplan.GoneError)(nil); {
			case errors.As(err, &gone):
				lost[p] = gone
			case err != nil:
				m.err = err
			case p.Items != nil && len(p.Items) != len(st.Elements):
				lost[p] = fmt.Errorf("the list of its elements has changed since it started: it has %d, and had %d", len(p.Items), len(st.Elements))
				p.Items = nil
			}
		}
	})
	held = map[string]error{}
	for _, m := range all[:n] {
		if m.err != nil {
			held[m.flow.ID] = m.err
		}
	}
	return n, held, lost, err
}

// try makes a decision with the outputs that are known; missing are those that it lacks.
func (f *Flows) try(m *making, now time.Time) {
	if m.working == nil {
		m.working = map[flowplan.Life]bool{}
	}
	in := &flowplan.Inputs{Outputs: m.known.outputs, Gone: m.known.gone, Taken: m.known.taken, Working: m.working, Joins: f.joins, Impatient: m.impatient}
	after, err := m.decide(in, now)
	if err != nil {
		m.err = err
		return
	}
	if in.Ready() {
		after, err = flowplan.FailEach(after, len(m.flow.Planned), func(after *graph.Flow, p *graph.Planned) string {
			if filled(p) {
				return ""
			}
			lacks, err := fill(m, after, p)
			for _, i := range lacks {
				in.Lacks(i)
			}
			if i := flowplan.Place(after, p); len(lacks) == 0 && err == nil && after.Nodes[i].Flow != nil {
				if _, err = flowspec.Child(after, i, p.Args, now); err != nil {
					err = fmt.Errorf("its flow cannot start: %w", err)
				}
			}
			if len(lacks) > 0 || err == nil {
				return ""
			}
			return err.Error() // its task cannot run; what hangs on it goes on, or does not
		}, in, now)
		if err != nil {
			m.err = err
			return
		}
	}
	for i := range in.Missing {
		m.missing = append(m.missing, i)
	}
	for i := range in.Asked {
		m.asked = append(m.asked, i)
	}
	if len(m.missing)+len(m.asked) == 0 {
		m.after = after
	}
}

// withoutArguments drops the arguments of plans, those of many decisions together: who carries them out reads the outputs
// again, portion by portion.
func withoutArguments(plans []graph.Planned) {
	for k := range plans {
		plans[k].Args, plans[k].Items = bson.RawValue{}, nil
	}
}

// filled says whether the arguments of a plan are there.
func filled(p *graph.Planned) bool { return p.Args.Type != 0 || p.Items != nil }

// fill puts the outputs of nodes into the arguments of a plan, or of its elements. lacks are the
// nodes whose outputs are to be read first.
func fill(m *making, after *graph.Flow, p *graph.Planned) (lacks []int, err error) {
	v := &after.Nodes[flowplan.Place(after, p)]
	stored := []string{v.Args}
	if v.Each != nil {
		stored = append(stored, flowspec.EachItems(v))
	}
	places := map[string]int{}
	var gone error
	var template bson.RawValue
	for k := len(stored) - 1; k >= 0; k-- { // the last is that of the arguments
		if stored[k] == "" {
			continue
		}
		if template, err = flowspec.Template(stored[k]); err != nil {
			return nil, err
		}
		for _, node := range flowspec.Refs(template) {
			i, err := place(after, node)
			if err != nil {
				return nil, err
			}
			places[node] = i
			_, known, err := m.output(i)
			if gone = cmp.Or(gone, err); !known && flowspec.HasTask(&after.Nodes[i]) && after.States[i].Status == graph.NodeSuccess {
				lacks = append(lacks, i)
			}
		}
	}
	if gone != nil {
		return lacks, gone
	}
	output := func(node string) bson.RawValue {
		i, known := places[node]
		switch {
		case !known:
			return bson.RawValue{}
		case flowspec.HasTask(&after.Nodes[i]):
			out, _, _ := m.output(i) // it is not gone
			return out
		}
		return after.States[i].Output
	}
	switch {
	case len(lacks) > 0 && v.Each == nil: // what is known may be more than arguments may be: then nothing more is read
		if _, err = flowspec.Resolve(template, output); err == nil {
			return lacks, nil
		}
		return nil, err
	case len(lacks) > 0:
		return lacks, nil
	case v.Each == nil:
		p.Args, err = flowspec.Resolve(template, output)
		return nil, err
	}
	items, err := flowspec.Elements(v, output)
	if err == nil {
		p.Items, err = flowspec.ElementArgs(v, items, output)
	}
	return nil, err
}

// taskID is the id of the task of a node; "" = it has none.
func taskID(doc *graph.Flow, i int) string { return flowspec.TaskID(doc, i) }
