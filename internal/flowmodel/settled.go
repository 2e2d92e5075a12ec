// Package flowmodel is the rule of flows in one walk, as a person would apply it by hand. Tests
// compare real flows with it. It shares no code with the product.
package flowmodel

import "github.com/mscheduler/mscheduler/flow/graph"

// Settled returns the status of each node. said is what is known of it: how it ended, READY if a
// person restarted it, PENDING if it waits for a person itself, "" otherwise. edge is the status of a
// parent as a child sees it: SKIPPED if the condition between them does not hold. A custom join
// wants the success of more than half of the parents.
func Settled(f *graph.Flow, said []graph.NodeStatus, edge func(child, parent int, is graph.NodeStatus) graph.NodeStatus) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(f.Nodes))
	for i, v := range f.Nodes { // each after its parents
		n, of := map[graph.NodeStatus]int{}, map[bool][]int{true: v.These, false: v.After}[v.Join == graph.These]
		for _, at := range of {
			n[edge(i, at, out[at])]++
		}
		left := len(of) - n[graph.NodeSkipped]
		need := map[graph.Strategy]int{graph.AtLeast: v.N, graph.These: len(of), graph.Custom: len(of)/2 + 1, graph.AllSucceeded: left, graph.AllEnded: left}[v.Join]
		got := n[graph.NodeSuccess]
		if v.Join == graph.AllEnded {
			got += n[graph.NodeError]
		}
		hope := got + n[graph.NodeWait] + n[graph.NodeReady] // if nobody resolves what is PENDING
		if v.Join == graph.Custom && hope > got {            // it may decide by any of its parents
			hope += n[graph.NodePending]
		}
		switch out[i] = graph.NodeWait; {
		case said[i] != "":
			out[i] = said[i]
		case left == 0 && i > 0, left < need:
			out[i] = graph.NodeSkipped
		case got >= need:
			out[i] = graph.NodeReady
		case hope < need:
			out[i] = graph.NodePending
		}
	}
	return out
}
