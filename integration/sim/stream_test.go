package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// theStream is the one stream of a world, to which several processes append.
const theStream = "sim/stream"

// appended is one append.
type appended struct {
	nodes    []string
	began    time.Time
	answered time.Time // zero = the process died before
	tries    int
}

// appendsNodes has a process append to the stream.
func (w *world) appendsNodes(p *process, n int) {
	for i := range 3 {
		time.Sleep(p.draw.between(0, troubled/5))
		a := &appended{began: time.Now()}
		var nodes []graph.NodeSpec
		for k := range 1 + p.draw.below(3) {
			policy := graph.Continue
			if p.draw.of(0.3) {
				policy = graph.Suspend
			}
			a.nodes = append(a.nodes, fmt.Sprintf("%d-%d-%d", n, i, k))
			nodes = append(nodes, graph.NodeSpec{ID: a.nodes[k], Type: link, OnFailure: policy, Options: brieflyOf(link)})
		}
		w.mu.Lock()
		w.appends = append(w.appends, a)
		w.mu.Unlock()
		if p.sure(fmt.Sprintf("appends %v", a.nodes), func(ctx context.Context) error {
			a.tries++
			_, err := p.flows.Append(ctx, "sim", "stream", nodes...)
			return err
		}) {
			w.mu.Lock()
			a.answered = time.Now()
			w.mu.Unlock()
		}
	}
}

// streamWaits says what of the stream has not ended.
func (w *world) streamWaits(f *found) string {
	for _, n := range f.nodes {
		if n.Status != graph.NodeSuccess && n.Status != graph.NodeError {
			return fmt.Sprintf("the node %s of the stream is %s", n.Node, n.Status)
		}
	}
	return ""
}

// checkStream: what was appended is in the chain once, in the order of the appends; no node began before the one
// before it was over.
func (w *world) checkStream(f *found) {
	chain, ran := slices.Clone(f.nodes), w.executions()
	slices.SortFunc(chain, func(x, y graph.Node) int { return cmp.Compare(x.Position, y.Position) })
	place := map[string]int{}
	for i, n := range chain {
		if n.Position != int64(i+1) {
			w.violated("the node %s has the position %d of the stream, and is the %d.", n.Node, n.Position, i+1)
		}
		if _, twice := place[n.Node]; twice {
			w.violated("the node %s is in the stream twice", n.Node)
		}
		place[n.Node] = i
		t := f.Tasks[n.TaskID]
		if t == nil {
			w.violated("the node %s of the stream has no task", n.Node)
			continue
		}
		if i == 0 {
			continue
		}
		if before := f.Tasks[chain[i-1].TaskID]; before != nil && slices.ContainsFunc(w.ran[t.ID], func(x *execution) bool { return x.Began.Before(ran.End(before)) }) {
			w.violated("the node %s of the stream began before %s, which is before it, had ended", n.Node, chain[i-1].Node)
		}
	}
	w.checkAppends(place)
}

// checkAppends compares the places of the nodes with the appends.
func (w *world) checkAppends(place map[string]int) {
	known := 0
	for _, a := range w.appends {
		last := -1
		for _, node := range a.nodes {
			at, there := place[node]
			switch {
			case !there && !a.answered.IsZero():
				w.violated("the node %s was appended, and is not in the stream", node)
			case there:
				known++
				if a.tries == 1 && at < last {
					w.violated("the node %s is before the one that was appended before it", node)
				}
				last = max(last, at)
			}
		}
		for _, later := range w.appends {
			if a.answered.IsZero() || !a.answered.Before(later.began) {
				continue
			}
			for _, node := range later.nodes {
				if at, there := place[node]; there && at < last {
					w.violated("the node %s is before nodes whose append was answered before it began", node)
				}
			}
		}
	}
	if known != len(place) {
		w.violated("%d nodes are in the stream, and %d of them were appended", len(place), known)
	}
}
