package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// mixedFlow is a flow of a mix.
type mixedFlow struct {
	graph.Spec
	id      string
	people  []time.Time // when somebody changed it
	crossed bool        // a person restarted or cancelled something: parents and children need not fit any more
}

func (m *mix) flowSpec(key string, depth int) graph.Spec {
	r := m.r
	s := graph.Spec{Key: key}
	n := 3 + r.IntN(8)
	for i := range n {
		errs := r.IntN(2)
		node := graph.NodeSpec{
			ID: fmt.Sprint("n", i), Type: oneOf(r, "node", "node", "node", "slownode", "flakynode"), Args: bson.M{"x": i},
			OnFailure: oneOf(r, "", graph.Continue, graph.Continue, graph.Suspend), Options: model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: &errs}},
		}
		if r.IntN(25) == 0 {
			node.OnFailure = graph.End
		}
		switch i {
		case 0:
		case n - 1: // all that has no child yet
			for k := range i {
				if !slices.ContainsFunc(s.Nodes, func(o graph.NodeSpec) bool { return slices.Contains(o.After, fmt.Sprint("n", k)) }) {
					node.After = append(node.After, fmt.Sprint("n", k))
				}
			}
		default:
			for _, k := range r.Perm(i)[:1+r.IntN(min(i, 3))] {
				node.After = append(node.After, fmt.Sprint("n", k))
			}
		}
		if i > 0 {
			switch r.IntN(6) {
			case 0:
				node.Join = graph.Join{Strategy: graph.AllEnded}
			case 1:
				node.Join = graph.Join{Strategy: graph.AtLeast, N: 1 + r.IntN(len(node.After))}
			case 2:
				node.Join = graph.Join{Strategy: graph.These, Nodes: []string{node.After[r.IntN(len(node.After))]}}
			}
			parent := node.After[r.IntN(len(node.After))]
			if r.IntN(4) == 0 {
				node.When = map[string]any{parent: bson.M{"output.n": bson.M{"$lt": r.IntN(10)}}}
			}
			if r.IntN(4) == 0 {
				node.Args = bson.M{"of": bson.M{"$output": parent + ".n"}}
			}
		}
		switch kind := r.IntN(14); {
		case kind == 0:
			node.Wait = &graph.Wait{For: time.Millisecond + m.upTo(10*time.Second)}
			node.Type, node.Args, node.Options = "", nil, model.Options{}
		case kind == 1 && depth > 0:
			child := m.flowSpec("", depth-1)
			node.Flow, node.Type, node.Args, node.Options = &child, "", nil, model.Options{}
		case kind == 2:
			items := []any{}
			for k := range r.IntN(6) {
				items = append(items, k)
			}
			node.Each, node.Args = &graph.Each{Items: items, Limit: r.IntN(3)}, bson.M{"item": bson.M{"$item": ""}}
		case kind == 3 && depth == 1:
			node.Ask = &graph.Ask{Title: "well?", Fields: []graph.Field{{Name: "n", Kind: "number"}}}
			node.Type, node.Args, node.Options, node.OnFailure = "", nil, model.Options{}, ""
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s
}

func (m *mix) handleNode(ctx context.Context, e *mixRun) (string, error) {
	r := keyed(e.TaskID, e.Attempt, e.Token.Generation)
	span := 300 * time.Millisecond
	if e.Type == "slownode" {
		span = 8 * time.Second
	}
	select {
	case <-time.After(time.Duration(r.Int64N(int64(span)))):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if e.Type == "flakynode" && r.IntN(2) == 0 {
		return "", errors.New("flaky")
	}
	return "", nil
}

func TestNodesOfAMixFollowInTime(t *testing.T) {
	for seed := range testdb.Mixes(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playMix(t, seed, 4, mixFlows) })
	}
}

func mixFlows(m *mix) {
	t, ctx := m.t, m.t.Context()
	m.handle = m.handleNode
	m.hires(2, "node", "slownode", "flakynode")
	for range 1 + m.r.IntN(3) {
		m.begins()
	}
	time.Sleep(m.upTo(time.Second))
	var flows []*mixedFlow
	start := func() {
		s := m.flowSpec(fmt.Sprint("f", len(flows)), 1)
		f, err := m.flows.Start(ctx, s)
		if err != nil {
			m.note("not started: %v", err)
			return
		}
		m.note("started %s", f.ID)
		for _, n := range s.Nodes {
			m.note("   %s: type %q after %v when %v join %+v each %v wait %v ask %v flow %v %s", n.ID, n.Type, n.After, n.When, n.Join, n.Each, n.Wait, n.Ask != nil, n.Flow != nil, n.OnFailure)
		}
		flows = append(flows, &mixedFlow{Spec: s, id: f.ID})
	}
	for len(flows) < 1 {
		start()
	}
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(m.upTo(8 * time.Second)) {
		x := flows[m.r.IntN(len(flows))]
		switch what := m.r.IntN(14); what {
		case 0, 1:
			if len(m.engines) > 0 {
				m.ends(what == 1)
			}
		case 2, 3:
			if len(m.engines) < 3 {
				m.begins()
			}
		case 4, 5, 6:
			start()
		case 7:
			f, err := m.flows.Start(ctx, x.Spec)
			require.NoError(t, err)
			require.False(t, f.Created)
		case 8:
			if m.of(0.3) {
				_, err := m.flows.Cancel(ctx, x.id, "enough")
				m.note("%s cancelled: %v", x.id, err)
				x.people, x.crossed = append(x.people, time.Now()), true
			}
		case 9:
			node := x.Nodes[m.r.IntN(len(x.Nodes))].ID
			_, err := m.flows.RetryFrom(ctx, x.id, node)
			m.note("%s retried from %s: %v", x.id, node, err)
			if err == nil {
				x.people, x.crossed = append(x.people, time.Now()), true
			}
		default:
			m.resolves(flows)
		}
	}
	if len(m.engines) == 0 {
		m.begins()
	}
	m.note("the end")
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(2 * time.Second) {
		m.resolves(flows)
		list, err := m.flows.List(ctx, "", graph.StatusRunning, nil, 100)
		require.NoError(t, err)
		waits, err := m.flows.List(ctx, "", graph.StatusPending, nil, 100)
		require.NoError(t, err)
		if list = append(list, waits...); len(list) == 0 {
			break
		}
		if time.Now().After(end) {
			for _, f := range list {
				t.Logf("%s is %s: %s %+v planned %d", f.ID, f.Status, f.Reason, f.States, len(f.Planned))
			}
			t.Fatalf("flows do not end\n%s", m.history())
		}
	}
	time.Sleep(30 * time.Second)
	for _, x := range flows {
		m.checkFlow(x)
	}
	m.idles()
	if testing.Verbose() {
		t.Log("\n" + m.history())
	}
}

// resolves has people resolve what is PENDING, and answer what they are asked.
func (m *mix) resolves(flows []*mixedFlow) {
	ctx := m.t.Context()
	var all []*graph.Flow
	for _, s := range []graph.Status{graph.StatusRunning, graph.StatusPending} {
		list, err := m.flows.List(ctx, "", s, nil, 100)
		require.NoError(m.t, err)
		all = append(all, list...)
	}
	for _, f := range all {
		f, err := m.flows.Get(ctx, f.ID)
		if errors.Is(err, model.ErrNotFound) {
			continue
		}
		require.NoError(m.t, err)
		for i, s := range f.States {
			if s.Status != graph.NodePending || strings.HasPrefix(s.Reason, "blocked by") {
				continue
			}
			if f.Nodes[i].Ask != nil && strings.HasPrefix(s.Reason, "it asks") {
				_, err = m.flows.Answer(ctx, f.ID, f.Nodes[i].ID, bson.M{"n": m.r.IntN(10)}, "")
			} else {
				_, err = m.flows.Resolve(ctx, f.ID, f.Nodes[i].ID, oneOf(m.r, graph.NodeSuccess, graph.NodeError), "")
			}
			m.note("%s:%s resolved: %v", f.ID, f.Nodes[i].ID, err)
			for _, x := range flows {
				if x.id == f.ID {
					x.people = append(x.people, time.Now())
				}
			}
		}
	}
}

func (m *mix) checkFlow(x *mixedFlow) {
	t, ctx := m.t, m.t.Context()
	failed := false
	wrong := func(format string, args ...any) {
		failed = true
		t.Errorf("%s: %s", x.id, fmt.Sprintf(format, args...))
	}
	f, err := m.flows.Get(ctx, x.id)
	require.NoError(t, err)
	if f.Status != graph.StatusFinish || len(f.Planned) > 0 {
		wrong("%s with %d plans", f.Status, len(f.Planned))
	}
	nodes, err := m.flows.Nodes(ctx, x.id)
	require.NoError(t, err)
	by := map[string]flow.NodeView{}
	last := f.CreatedAt
	var worst time.Duration
	for _, n := range nodes {
		by[n.Node.Node] = n
		last = later(last, n.EndedAt)
		if !flowplan.Final(n.Status) && n.Status != graph.NodePending { // a flow may be over before
			wrong("%s is %s", n.Node.Node, n.Status)
		}
		if x.crossed || n.StartedAt.IsZero() && n.Status != graph.NodeSkipped || n.EndedAt.After(f.EndedAt) && n.StartedAt.IsZero() {
			continue
		}
		due := f.CreatedAt
		for _, parent := range n.After {
			due = later(due, by[parent].EndedAt)
		}
		for _, at := range x.people { // a person's decision lets it go on
			if end := n.StartedAt; !end.IsZero() && !at.After(end) {
				due = later(due, at)
			}
		}
		begun := n.StartedAt
		if begun.IsZero() {
			begun = n.EndedAt
		}
		late := begun.Sub(due) - m.away(due, begun)
		if worst = max(worst, late); late > m.slack(due) {
			wrong("%s (%s) began at %s, %v after %s", n.Node.Node, n.Status, begun.Format("15:04:05.000"), late, due.Format("15:04:05.000"))
		}
	}
	if !x.crossed {
		for _, at := range x.people {
			if !at.After(f.EndedAt) {
				last = later(last, at)
			}
		}
		if late := f.EndedAt.Sub(last) - m.away(last, f.EndedAt); late > m.slack(last) {
			wrong("FINISH at %v, %v late", f.EndedAt, late)
		}
	}
	for i := range f.Nodes { // a node ends with the flow that it has started
		if f.Nodes[i].Flow == nil || x.crossed || by[f.Nodes[i].ID].Status == graph.NodeSkipped {
			continue
		}
		child, err := m.flows.Get(ctx, x.id+"."+f.Nodes[i].ID)
		if errors.Is(err, model.ErrNotFound) {
			continue // it was never started
		}
		require.NoError(t, err)
		end := by[f.Nodes[i].ID].EndedAt
		due := child.EndedAt
		for _, at := range x.people { // its failure waits for a person
			if !at.After(end.Add(time.Millisecond)) {
				due = later(due, at)
			}
		}
		if late := end.Sub(due) - m.away(due, end); late > m.slack(end) {
			wrong("%s ended %v after %s", f.Nodes[i].ID, late, child.ID)
		}
	}
	m.note("%s: %d nodes, worst %v", x.id, len(nodes), worst)
	if failed {
		for _, n := range nodes {
			t.Logf("%s %s ready %s started %s ended %s: %s", n.Node.Node, n.Status, n.ReadyAt.Format("15:04:05.000"), n.StartedAt.Format("15:04:05.000"), n.EndedAt.Format("15:04:05.000"), n.Reason)
		}
		t.Fatal("\n" + m.history())
	}
}
