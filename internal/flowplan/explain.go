package flowplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// Explain returns sentences that describe why a node has its status, which nodes it waits for, and
// what would start it.
func Explain(f *graph.Flow, node int) []string {
	v, st := &f.Nodes[node], &f.States[node]
	switch st.Status {
	case graph.NodeReady:
		if !st.DueAt.IsZero() {
			return []string{"It waits until " + st.DueAt.UTC().Format(time.RFC3339Nano) + "."}
		}
		if v.Flow != nil {
			return []string{"Its flow " + flowspec.ChildKey(f, node, st.Life) + " runs; flow show says more."}
		}
		if v.Each != nil {
			return []string{elementsNow(st)}
		}
		return []string{"Its task may run; the task itself says more."}
	case graph.NodeSuccess, graph.NodeError, graph.NodeSkipped:
		out := []string{endedAs(st.Status, st.At, st.Reason)}
		if cutOff(f, node) {
			out = append(out, "It waits for its parents again if the flow is retried.")
		}
		return out
	}
	var out []string
	if st.Status == graph.NodePending {
		out = append(out, sentence("It is PENDING: "+st.Reason))
		if st.Own && v.Ask != nil {
			return append(out, asked(v.Ask)...)
		}
		switch {
		case f.Status == graph.StatusFinish: // what becomes of its task changes nothing in the flow
		case taskAsks(st):
			out = append(out, "Resolve or retry its task, or decide about the node.")
		case st.Own && elementsAsk(st):
			out = append(out, "Resolve or retry the tasks of these elements, or decide about the node.")
		}
		if st.Own {
			return append(out, "Resolve it as SUCCESS or ERROR, or retry from it.")
		}
	}
	if f.Kind == graph.KindStream {
		return explainWait(f, node)
	}
	out = append(out, "It starts when "+wants(f, v)+".")
	if !st.DueAt.IsZero() {
		out = append(out, "An engine that has this function calls it within two minutes; one must run.")
	}
	var open, pending []string
	for _, at := range v.After {
		switch f.States[at].Status {
		case graph.NodeWait, graph.NodeReady:
			open = append(open, f.Nodes[at].ID)
		case graph.NodePending:
			pending = append(pending, f.Nodes[at].ID)
		}
	}
	switch {
	case st.Status == graph.NodePending && !hangs(st):
		pending = nil // they cannot change that
	case len(pending) > 0:
		pending = roots(f, node)
	}
	if len(open) > 0 {
		out = append(out, "It waits for "+listed(open)+".")
	}
	if len(pending) > 0 {
		out = append(out, "Resolve "+listed(pending)+" to let it go on.")
	}
	if st.Status == graph.NodePending && len(pending) == 0 {
		out = append(out, "Resolve it, or retry from the parent that failed.")
	}
	return out
}

// endedAs says how and when a node ended.
func endedAs(status graph.NodeStatus, at time.Time, reason string) string {
	out := "It ended as " + string(status) + " at " + at.UTC().Format(time.RFC3339Nano)
	if reason != "" {
		out += ": " + reason
	}
	return sentence(out)
}

// asked says what a person is asked for.
func asked(a *graph.Ask) (out []string) {
	for i := range a.Fields {
		f := &a.Fields[i]
		line := f.Name + ": " + flowspec.Wanted(f)
		if f.Required {
			line += ", required"
		}
		if f.Help != "" {
			line += " (" + f.Help + ")"
		}
		out = append(out, sentence(line))
	}
	if len(out) == 0 {
		return []string{"Resolve it as SUCCESS or ERROR."}
	}
	return append(out, "Resolve it as SUCCESS with these values, or as ERROR.")
}

// sentence is a text as one: a person's may end with a mark of its own.
func sentence(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// hangs says whether a node is PENDING only because others are.
func hangs(st *graph.State) bool {
	return st.Status == graph.NodePending && !st.Own && strings.HasPrefix(st.Reason, lifecycle.BlockedBy)
}

// roots are the nodes that keep others PENDING, before the given one: they wait for a person
// themselves, or their joins can no longer be met.
func roots(f *graph.Flow, node int) (names []string) {
	before := make([]bool, node+1)
	before[node] = true
	for i := node; i >= 0; i-- {
		if !before[i] {
			continue
		}
		if i != node && !hangs(&f.States[i]) {
			names = append(names, f.Nodes[i].ID)
			continue
		}
		for _, at := range f.Nodes[i].After {
			before[at] = before[at] || f.States[at].Status == graph.NodePending
		}
	}
	slices.Reverse(names)
	return names
}

// wants is what the join of a node wants, as the end of a sentence.
func wants(f *graph.Flow, v *graph.Vertex) string {
	switch v.Join {
	case graph.AllEnded:
		return "all its parents have ended"
	case graph.AtLeast:
		return fmt.Sprintf("at least %d of its %d parents have succeeded", v.N, len(v.After))
	case graph.These:
		names := make([]string, len(v.These))
		for i, at := range v.These {
			names[i] = f.Nodes[at].ID
		}
		return listed(names) + " have succeeded"
	case graph.Custom:
		return fmt.Sprintf("the join function %q says so", v.Custom)
	default:
		return "all its parents have succeeded"
	}
}

// listed names at most ten.
func listed(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}
