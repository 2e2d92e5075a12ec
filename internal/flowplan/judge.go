package flowplan

import (
	"encoding/json"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/mql/query"
)

// JoinFunc is a custom join (seed 002). It is called after each end of a parent, with the statuses and
// outputs of all parents and the value that it saved last. graph.NodeWait stands for the UNKNOWN of the
// seed: the node continues to wait.
type JoinFunc func(parents []Parent, saved bson.RawValue) (verdict graph.NodeStatus, save bson.RawValue, err error)

const (
	// MaxSaved is the maximum number of bytes that a join function may save.
	MaxSaved = 64 << 10
	// maxSavedTogether is how many bytes the joins of a flow may save together, beside their first values. So the
	// document of a flow that was not too large at first never becomes so.
	maxSavedTogether = 1 << 20
)

// Parent is the view of a parent that a join receives.
type Parent struct {
	Node   string
	Status graph.NodeStatus
	Output bson.RawValue // of a parent that succeeded
}

// NoJoinError is the error of a process that does not have a custom join, if there is nothing else to decide. Another
// process may have it.
type NoJoinError struct{ Flow, Node, Join string }

func (e *NoJoinError) Error() string {
	return fmt.Sprintf("flow %s, node %s: this process has no join function %q", e.Flow, e.Node, e.Join)
}

// JoinError is the error of a custom join: the function's own, or why its answer cannot be used.
type JoinError struct {
	Flow, Node, Join string
	Err              error
}

func (e *JoinError) Error() string {
	return fmt.Sprintf("flow %s, node %s: join function %q: %v", e.Flow, e.Node, e.Join, e.Err)
}

func (e *JoinError) Unwrap() error { return e.Err }

// judgement is what a join says of its node.
type judgement struct {
	verdict graph.NodeStatus // WAIT, READY, PENDING or SKIPPED
	reason  string           // of PENDING and SKIPPED
	final   bool             // PENDING for good: the parents' further ends change nothing
	context bson.RawValue
}

// parents are those of a node by what has become of them, as the node's edges show it: places.
type parents struct{ succeeded, failed, skipped, pending, open []int }

// parentsOf sorts the parents of a node.
func parentsOf(f *graph.Flow, i int, in *Inputs) (p parents, err error) {
	v := &f.Nodes[i]
	for k, at := range v.After {
		into := &p.open
		switch f.States[at].Status {
		case graph.NodeSuccess:
			into = &p.succeeded
			if len(v.When) > 0 && v.When[k] != "" {
				taken, err := in.taken(f, i, k)
				if err != nil {
					return p, fmt.Errorf("flow %s, node %s: the condition on the edge from %s: %w", f.ID, v.ID, f.Nodes[at].ID, err)
				}
				if !taken {
					into = &p.skipped
				}
			}
		case graph.NodeError:
			into = &p.failed
		case graph.NodeSkipped:
			into = &p.skipped
		case graph.NodePending:
			into = &p.pending
		}
		*into = append(*into, at)
	}
	return p, nil
}

// taken says whether the condition on the edge from a node's parent holds.
func (in *Inputs) taken(f *graph.Flow, i, parent int) (bool, error) {
	at := f.Nodes[i].After[parent]
	edge := Edge{i, LifeOf(f, at)}
	if taken, known := in.Taken[edge]; known {
		return taken, nil
	}
	output, err := in.output(f, at)
	if err != nil {
		return false, err
	}
	taken, err := holds(f.Nodes[i].When[parent], output)
	if err == nil && in.Taken != nil && !in.Missing[at] {
		in.Taken[edge] = taken
	}
	return taken, err
}

// holds says whether the condition on an edge holds for the parent's output.
func holds(when string, output bson.RawValue) (bool, error) {
	stored, err := codec.EncodeTemplate("when", json.RawMessage(when), math.MaxInt32)
	if err != nil {
		return false, err
	}
	filter, err := query.CompileFilter(stored.Value)
	if err != nil {
		return false, err
	}
	doc := bson.D{}
	if output.Type != 0 {
		doc = bson.D{{Key: "output", Value: output}}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return false, err
	}
	return filter.Match(raw), nil
}

// only keeps the places that are among the named ones.
func only(places []int, named map[int]bool) (out []int) {
	for _, at := range places {
		if named[at] {
			out = append(out, at)
		}
	}
	return out
}

func set(places []int) map[int]bool {
	in := make(map[int]bool, len(places))
	for _, at := range places {
		in[at] = true
	}
	return in
}

// judge asks the join of a node that waits. "Can no longer be met" is said as early as it is
// certain.
func judge(f *graph.Flow, i int, in *Inputs) (judgement, error) {
	v := &f.Nodes[i]
	j := judgement{verdict: graph.NodeWait, context: f.States[i].Context}
	p, err := parentsOf(f, i, in)
	if err != nil {
		return j, err
	}
	name := func(at int) string { return f.Nodes[at].ID }
	say := func(verdict graph.NodeStatus, reason string, about ...any) (judgement, error) {
		j.verdict = verdict
		if reason != "" {
			j.reason = fmt.Sprintf(reason, about...)
		}
		return j, nil
	}
	if len(p.skipped) == len(v.After) {
		return say(graph.NodeSkipped, "every branch to it was skipped")
	}
	switch v.Join {
	case graph.AllEnded:
		switch {
		case len(p.pending) > 0:
			return say(graph.NodePending, lifecycle.BlockedBy+"%s, which is PENDING", name(p.pending[0]))
		case len(p.open) > 0:
			return j, nil
		}
	case graph.AtLeast:
		missing := v.N - len(p.succeeded)
		switch {
		case missing <= 0:
		case len(v.After)-len(p.skipped) < v.N: // whatever the others do: so the order of ends does not matter
			return say(graph.NodeSkipped, "%s was skipped, and at least %d parents must succeed", name(p.skipped[0]), v.N)
		case len(p.open) >= missing:
			return j, nil
		case len(p.open)+len(p.pending) >= missing:
			return say(graph.NodePending, lifecycle.BlockedBy+"%s, which is PENDING", name(p.pending[0]))
		default:
			return say(graph.NodePending, "%s failed, and at least %d parents must succeed", name(p.failed[0]), v.N)
		}
	case graph.These:
		named := set(v.These)
		p = parents{only(p.succeeded, named), only(p.failed, named), only(p.skipped, named), only(p.pending, named), only(p.open, named)}
		switch {
		case len(p.skipped) > 0:
			return say(graph.NodeSkipped, "%s was skipped and must succeed", name(p.skipped[0]))
		case len(p.failed) > 0:
			return say(graph.NodePending, "%s failed and must succeed", name(p.failed[0]))
		case len(p.pending) > 0:
			return say(graph.NodePending, lifecycle.BlockedBy+"%s, which is PENDING", name(p.pending[0]))
		case len(p.open) > 0:
			return j, nil
		}
	case graph.Custom:
		return j.ask(f, i, &p, in)
	default: // all succeeded
		switch {
		case len(p.failed) > 0:
			return say(graph.NodePending, "%s failed, and all parents must succeed", name(p.failed[0]))
		case len(p.pending) > 0:
			return say(graph.NodePending, lifecycle.BlockedBy+"%s, which is PENDING", name(p.pending[0]))
		case len(p.open) > 0:
			return j, nil
		}
	}
	return say(graph.NodeReady, "")
}

// ask has a registered function judge.
func (j judgement) ask(f *graph.Flow, i int, p *parents, in *Inputs) (judgement, error) {
	v := &f.Nodes[i]
	if len(p.open)+len(p.pending) == len(v.After) {
		if len(p.pending) > 0 && len(p.open) == 0 {
			j.verdict, j.reason = graph.NodePending, fmt.Sprintf(lifecycle.BlockedBy+"%s, which is PENDING", f.Nodes[p.pending[0]].ID)
		}
		return j, nil // no parent has ended
	}
	fn := in.Joins[v.Custom]
	if fn == nil {
		return j, &NoJoinError{Flow: f.ID, Node: v.ID, Join: v.Custom}
	}
	all, skipped := make([]Parent, len(v.After)), set(p.skipped)
	for k, at := range v.After {
		all[k] = Parent{Node: f.Nodes[at].ID, Status: f.States[at].Status}
		switch {
		case skipped[at]:
			all[k].Status = graph.NodeSkipped
		case all[k].Status == graph.NodeSuccess:
			var err error
			if all[k].Output, err = in.output(f, at); err != nil {
				return j, err
			}
		}
	}
	if !in.Ready() {
		return j, nil // it is asked once, when all is known
	}
	verdict, save, err := fn(all, j.context)
	if err == nil {
		err = usable(verdict, save)
	}
	if err == nil && (verdict == graph.NodeWait || verdict == graph.NodePending) { // else it is not asked again
		err = fits(f, i, save)
	}
	if err != nil && in.Impatient {
		j.verdict, j.reason = graph.NodePending, fmt.Sprintf("join function %q fails: %v", v.Custom, err)
		return j, nil
	}
	if err != nil {
		return j, &JoinError{Flow: f.ID, Node: v.ID, Join: v.Custom, Err: err}
	}
	j.verdict, j.context = verdict, save
	switch {
	case verdict == graph.NodeReady, verdict == graph.NodeSkipped:
		j.reason = fmt.Sprintf("join function %q said so", v.Custom)
	case verdict == graph.NodePending:
		j.reason, j.final = fmt.Sprintf("join function %q said PENDING", v.Custom), true
	case len(p.open) > 0:
	case len(p.pending) > 0:
		j.verdict, j.reason = graph.NodePending, fmt.Sprintf(lifecycle.BlockedBy+"%s, which is PENDING", f.Nodes[p.pending[0]].ID)
	default:
		j.verdict, j.reason = graph.NodePending, fmt.Sprintf("all parents ended, and join function %q has not decided", v.Custom)
	}
	return j, nil
}

// usable says why a custom join's answer cannot be used; nil = it can.
func usable(verdict graph.NodeStatus, v bson.RawValue) error {
	switch verdict {
	case graph.NodeWait, graph.NodeReady, graph.NodePending, graph.NodeSkipped:
	default:
		return fmt.Errorf("it answers %q; want WAIT, READY, PENDING or SKIPPED", verdict)
	}
	if n := len(v.Value); n > MaxSaved {
		return fmt.Errorf("it saves %d bytes; at most %d are allowed", n, MaxSaved)
	}
	if v.Type == 0 && len(v.Value) == 0 {
		return nil
	}
	if err := v.Validate(); err != nil {
		return fmt.Errorf("it saves a value that is not BSON: %w", err)
	}
	return nil
}

// fits says why there is no room for what the join of a node saves; nil = there is.
func fits(f *graph.Flow, i int, save bson.RawValue) error {
	beside := func(k int, v bson.RawValue) int { return max(0, len(v.Value)-len(f.Nodes[k].Context.Value)) }
	n, others := beside(i, save), 0
	if n <= beside(i, f.States[i].Context) {
		return nil
	}
	for k := range f.States {
		if k != i {
			others += beside(k, f.States[k].Context)
		}
	}
	if n+others > maxSavedTogether {
		return fmt.Errorf("it saves %d bytes; joins may save %d together beside the first values, and others have %d", len(save.Value), maxSavedTogether, others)
	}
	return nil
}
