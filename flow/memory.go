package flow

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
)

// maxMemory bounds the outputs that an engine remembers, in bytes.
const maxMemory = 32 << 20

// memory is what an engine has read for decisions and may need again: a custom join looks at the
// outputs of all parents each time one of them ends, and a condition on an edge at that of one. The
// goroutine that decides uses it alone.
type memory struct {
	flows map[string]*memo
	bytes int
}

// memo is the memory of one flow. What a life of a node put out does not change.
type memo struct {
	createdAt time.Time
	outputs   map[flowplan.Life]bson.RawValue
	gone      map[flowplan.Life]bool // they have no output any more: nobody can read their tasks
	taken     map[flowplan.Edge]bool
	counted   int // bytes
}

func newMemo(f *graph.Flow) *memo {
	return &memo{createdAt: f.CreatedAt, outputs: map[flowplan.Life]bson.RawValue{}, gone: map[flowplan.Life]bool{}, taken: map[flowplan.Edge]bool{}}
}

// of is what is known of a flow.
func (m *memory) of(f *graph.Flow) *memo {
	if known := m.flows[f.ID]; known != nil && known.createdAt.Equal(f.CreatedAt) {
		return known
	}
	return newMemo(f)
}

// keep remembers what was read of a flow, and makes room for it.
func (m *memory) keep(f *graph.Flow, what *memo) {
	if known := m.flows[f.ID]; known != nil {
		m.bytes -= known.counted
		delete(m.flows, f.ID)
	}
	if f.Status == graph.StatusFinish || len(what.outputs)+len(what.taken) == 0 {
		return
	}
	what.count()
	for id, other := range m.flows {
		if m.bytes+what.counted <= maxMemory {
			break
		}
		m.bytes -= other.counted
		delete(m.flows, id)
	}
	if what.counted > maxMemory { // what its conditions said is small
		clear(what.outputs)
		what.count()
	}
	m.flows[f.ID] = what
	m.bytes += what.counted
}

func (m *memo) count() {
	const memo, each = 1 << 10, 200 // with the maps
	m.counted = memo + each*(len(m.outputs)+len(m.taken))
	for _, v := range m.outputs {
		m.counted += len(v.Value)
	}
}

// forget forgets the output of a node, and what conditions said of it.
func (m *memo) forget(life flowplan.Life) {
	delete(m.outputs, life)
	delete(m.gone, life)
	for e := range m.taken {
		if e.Parent == life {
			delete(m.taken, e)
		}
	}
}

// joinPatience is how long this process calls a join function that fails. Then its node is PENDING.
const joinPatience = time.Minute

// joinPause is after how long without a call the minute begins again. Of many engines each has its turn more often.
const joinPause = 5 * time.Minute

// maxFailing bounds the flows whose failing joins a process remembers.
const maxFailing = 10_000

// patience knows since when this process has seen join functions fail. How old an end is says nothing of that: all
// engines may have been away. The goroutine that decides uses it alone.
type patience map[string]map[string]failing // by flow and node

type failing struct{ since, last time.Duration } // monotonic

// waits says whether the node still has a join to call.
func waits(f *graph.Flow, node string) bool {
	i, err := place(f, node)
	return err == nil && (f.States[i].Status == graph.NodeInit || f.States[i].Status == graph.NodeWait)
}

// paused says whether this process has not called the function for long, because it stood still, for example.
func (f failing) paused(now time.Duration) bool { return now-f.last >= joinPause }

// over says whether a join of the flow has failed for so long that its node is PENDING if it fails again.
func (p patience) over(f *graph.Flow, now time.Duration) bool {
	for node, was := range p[f.ID] {
		if waits(f, node) && !was.paused(now) && now-was.since >= joinPatience {
			return true
		}
	}
	return false
}

// failed notes that the join of a node has failed.
func (p patience) failed(id, node string, now time.Duration) {
	for other := range p {
		if p[id] != nil || len(p) < maxFailing {
			break
		}
		delete(p, other)
	}
	if p[id] == nil {
		p[id] = map[string]failing{}
	}
	was, known := p[id][node]
	if !known || was.paused(now) {
		was.since = now
	}
	p[id][node] = failing{was.since, now}
}

// passed notes that no join of the flow has failed that was called after these ends, and, where the flow was due, after
// its time. A node that does not wait any more has no join to call.
func (p patience) passed(f *graph.Flow, ends []flowplan.End, due bool) {
	for node := range p[f.ID] {
		i, _ := place(f, node)
		if due || !waits(f, node) || slices.ContainsFunc(ends, func(e flowplan.End) bool { return slices.Contains(f.Nodes[i].After, e.Node) }) {
			delete(p[f.ID], node)
		}
	}
	if len(p[f.ID]) == 0 || f.Status == graph.StatusFinish {
		delete(p, f.ID)
	}
}

// isOver says that nothing more is decided about a flow.
func isOver(f *graph.Flow) bool { return f.Status == graph.StatusFinish }

// sizeOf is about how many bytes of memory a flow takes.
func sizeOf(f *graph.Flow) int {
	const each = 800 // the node and its state
	n := each*(len(f.Nodes)+1) + len(f.Ext.Value)
	for i := range f.Nodes {
		v, st := &f.Nodes[i], &f.States[i]
		n += len(v.Args) + len(v.Context.Value) + 8*(len(v.After)+len(v.These)) + len(st.Context.Value) + len(st.Output.Value) + len(st.Elements)
		for _, when := range v.When {
			n += len(when)
		}
		if v.Flow != nil || v.Each != nil || v.Task != nil || v.Ask != nil {
			stored, _ := bson.Marshal(graph.Vertex{Flow: v.Flow, Each: v.Each, Task: v.Task, Ask: v.Ask}) // an estimate needs no error
			n += 4 * len(stored)
		}
	}
	return n
}
