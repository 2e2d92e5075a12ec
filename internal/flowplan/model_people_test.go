package flowplan

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// person does something with a random node, or with the flow, if it is allowed.
func (l *live) person() {
	i := l.r.IntN(len(l.is))
	switch {
	case l.r.IntN(2*len(l.is)) == 0 && l.f.Status != graph.StatusFinish && !l.closed:
		l.close(l.is)
		l.decide(func(in *Inputs) (*graph.Flow, error) { return Cancel(l.f, "", in, l.now) })
	case taskAsks(&l.f.States[i]) && l.f.Status != graph.StatusFinish && l.r.IntN(2) == 0:
		l.again(i)
	case l.is[i] == graph.NodePending && l.f.Status != graph.StatusFinish:
		l.resolve(i, []graph.NodeStatus{graph.NodeSuccess, graph.NodeError}[l.r.IntN(2)])
	case l.is[i] == graph.NodePending && l.r.IntN(2) == 0:
		l.resolveAlone(i, []graph.NodeStatus{graph.NodeSuccess, graph.NodeError}[l.r.IntN(2)])
	case l.is[i] != graph.NodeWait && l.r.IntN(len(l.is)) == 0:
		l.retry(i)
	}
}

// again is the end of a task that was Pending, and that a person has had run again.
func (l *live) again(i int) {
	e := End{Node: i, Life: l.f.States[i].Life, Status: l.fate()}
	switch policy := l.f.Nodes[i].OnFailure; {
	case e.Status.Succeeded():
		l.said[i] = graph.NodeSuccess
	case policy == graph.Continue:
		l.said[i] = graph.NodeError
	case policy == graph.End:
		l.said[i] = graph.NodeError
		l.close(l.is)
	}
	l.decide(func(in *Inputs) (*graph.Flow, error) { return Ended(l.f, []End{e}, in, l.now) })
}

// anywhere makes a decision in any process, perhaps one without the custom join. An engine that has it goes on.
func (l *live) anywhere(do func(in *Inputs) (*graph.Flow, error)) {
	if l.r.IntN(2) == 0 {
		l.decide(do)
		return
	}
	l.decide(func(in *Inputs) (*graph.Flow, error) {
		joins := in.Joins
		in.Joins = nil
		after, err := do(in)
		in.Joins = joins
		if err != nil || !in.Ready() || after.DueAt.IsZero() || after.DueAt.After(l.now) {
			return after, err
		}
		require.Equal(l, graph.StatusRunning, after.Status)
		after, err = Ended(after, nil, in, l.now)
		if err == nil {
			after.Rev-- // here it is one decision
		}
		return after, err
	})
}

func (l *live) resolve(i int, status graph.NodeStatus) {
	l.said[i] = status
	l.anywhere(func(in *Inputs) (*graph.Flow, error) { return Resolve(l.f, i, status, "by hand", in, l.now) })
}

// resolveAlone resolves a node of a flow that is over, where nothing else changes.
func (l *live) resolveAlone(i int, status graph.NodeStatus) {
	l.said[i], l.is[i] = status, status
	after, err := Resolve(l.f, i, status, "by hand", &Inputs{}, l.now)
	require.NoError(l, err)
	require.Equal(l, l.is, statuses(after))
	require.Equal(l, graph.StatusFinish, after.Status)
	require.Equal(l, l.f.EndedAt, after.EndedAt)
	l.f, l.f.Planned = after, nil
}

// retry restarts a node; those behind it wait for their parents again.
func (l *live) retry(i int) {
	behind := map[int]bool{i: true}
	for k := i; k < len(l.is); k++ {
		behind[k] = behind[k] || slices.ContainsFunc(l.f.Nodes[k].After, func(at int) bool { return behind[at] })
		if behind[k] && l.is[k] == graph.NodeReady {
			_, err := RetryFrom(l.f, i, &Inputs{}, l.now)
			require.ErrorAs(l, err, new(*RefusedError), "node %d runs", k)
			return
		}
	}
	for k := range l.is {
		if behind[k] || l.said[k] == graph.NodeSkipped { // by the end of the flow
			l.said[k], l.is[k] = "", graph.NodeWait
		}
	}
	l.closed = false
	if l.said[i] = graph.NodeReady; l.f.Nodes[i].Ask != nil {
		l.said[i] = graph.NodePending
	}
	l.anywhere(func(in *Inputs) (*graph.Flow, error) { return RetryFrom(l.f, i, in, l.now) })
}

// named are the nodes that a person can resolve, as the explanation of a PENDING node says: the first ten
// of others, or the node itself.
func (l *live) named(i int) (nodes []int) {
	why := Explain(l.f, i)
	require.True(l, strings.HasPrefix(why[0], "It is PENDING: ") && len(why[0]) > len("It is PENDING: ."), why)
	for _, line := range why[1:] {
		switch list, ok := strings.CutSuffix(line, " to let it go on."); {
		case ok:
			for _, name := range strings.FieldsFunc(strings.TrimPrefix(list, "Resolve "), func(c rune) bool { return c == ' ' || c == ',' }) {
				if k := slices.IndexFunc(l.f.Nodes, func(v graph.Vertex) bool { return v.ID == name }); k >= 0 {
					nodes = append(nodes, k)
				}
			}
		case strings.HasPrefix(line, "Resolve it"):
			nodes = append(nodes, i)
		}
	}
	require.NotEmpty(l, nodes, why)
	return nodes
}
