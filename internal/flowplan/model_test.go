package flowplan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowmodel"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// randomFlow is a graph of n nodes with one first and one last node. One that is plain has no conditions
// and asks nobody.
func randomFlow(r *rand.Rand, n int, plain bool) *graph.Flow {
	at := time.UnixMilli(1_000_000)
	f := &graph.Flow{ID: "-/f", Status: graph.StatusRunning, Rev: 1, RunningAt: at}
	hasChild := make([]bool, n)
	for i := range n {
		v := graph.Vertex{ID: fmt.Sprintf("n%d", i), Type: "t", OnFailure: []graph.Policy{graph.Suspend, graph.Continue}[r.IntN(2)]}
		if r.IntN(max(20, n)) == 0 {
			v.OnFailure = graph.End
		}
		for p := range i {
			if i == n-1 && !hasChild[p] || r.IntN(i) < 2 {
				v.After = append(v.After, p)
			}
		}
		if i > 0 && len(v.After) == 0 {
			v.After = []int{r.IntN(i)}
		}
		for _, p := range v.After {
			hasChild[p] = true
		}
		if i > 0 {
			switch v.Join = []graph.Strategy{graph.AllSucceeded, graph.AllEnded, graph.AtLeast, graph.These, graph.Custom}[r.IntN(5)]; v.Join {
			case graph.AtLeast:
				v.N = 1 + r.IntN(len(v.After))
			case graph.These:
				v.These = v.After[:1+r.IntN(len(v.After))]
			case graph.Custom:
				v.Custom = "most"
			}
			if !plain && r.IntN(5) == 0 {
				v.When = make([]string, len(v.After))
				v.When[r.IntN(len(v.After))] = `{"output.even": true}`
			}
		}
		if i > 0 && r.IntN(6) == 0 { // a task would be the same as far as the others can see
			v.Type, v.For = "", time.Duration(1+r.IntN(20))*time.Millisecond
		} else if i > 0 && !plain && r.IntN(15) == 0 {
			v.Type, v.Ask = "", &graph.Ask{Title: "what now?"}
		} else if i > 0 && r.IntN(6) == 0 {
			v.Each, v.Task = &graph.Each{Items: []string{"[]", "[1]", "[1,2,3,4,5]"}[r.IntN(3)], Limit: r.IntN(3), Max: 5}, &model.Task{Type: "t"}
		} else if i > 0 && r.IntN(8) == 0 {
			v.Flow = &graph.Spec{}
		}
		f.Nodes = append(f.Nodes, v)
		f.States = append(f.States, graph.State{Status: graph.NodeWait, At: at})
	}
	f.States[0].Status = graph.NodeReady
	return f
}

// live is a flow that goes on, its tasks, and what the sequential rule knows of it.
type live struct {
	*testing.T
	r    *rand.Rand
	f    *graph.Flow
	now  time.Time
	free []bool      // by node: a worker may run its task
	life []int64     // by node: that of its task
	due  []time.Time // by node: until then one without a task waits
	runs []bool      // by node: the flow that it started goes on

	taken map[Edge]bool // what decisions have found out

	said   []graph.NodeStatus
	is     []graph.NodeStatus // what the rule says
	closed bool
}

func newLive(t *testing.T, r *rand.Rand, f *graph.Flow) *live {
	n := len(f.Nodes)
	l := &live{T: t, r: r, f: f, now: time.UnixMilli(2_000_000), taken: map[Edge]bool{}, free: make([]bool, n), life: make([]int64, n), due: make([]time.Time, n), runs: make([]bool, n), said: make([]graph.NodeStatus, n)}
	l.free[0] = true
	l.is = flowmodel.Settled(f, l.said, l.edge)
	return l
}

// output of a node, for conditions: whether its number is even.
func (l *live) output(node int) bson.RawValue {
	raw, err := bson.Marshal(bson.D{{Key: "even", Value: node%2 == 0}})
	require.NoError(l, err)
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}

func (l *live) edge(child, parent int, is graph.NodeStatus) graph.NodeStatus {
	v := &l.f.Nodes[child]
	asks := v.When != nil && v.When[slices.Index(v.After, parent)] != ""
	if is == graph.NodeSuccess && asks && (parent%2 != 0 || !flowspec.HasTask(&l.f.Nodes[parent])) {
		return graph.NodeSkipped
	}
	return is
}

// most is the custom join: more than half of the parents must succeed. It saves how many have ended;
// none of them goes on by itself.
func (l *live) most(parents []Parent, saved bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
	n, ended := map[graph.NodeStatus]int{}, int32(0)
	for _, p := range parents {
		if n[p.Status]++; Final(p.Status) {
			ended++
		}
	}
	if saved.Type != 0 {
		require.LessOrEqual(l, saved.Int32(), ended, "what it saved is of this life")
	}
	kind, raw, err := bson.MarshalValue(ended)
	verdict, need := graph.NodeWait, len(parents)/2+1
	switch {
	case n[graph.NodeSuccess] >= need:
		verdict = graph.NodeReady
	case len(parents)-n[graph.NodeSkipped] < need:
		verdict = graph.NodeSkipped
	case len(parents)-n[graph.NodeSkipped]-n[graph.NodeError] < need:
		verdict = graph.NodePending
	}
	return verdict, bson.RawValue{Type: kind, Value: raw}, err
}

// decide makes a decision, as often as it lacks outputs, carries it out, and compares what has become of
// each node with the rule.
func (l *live) decide(do func(in *Inputs) (*graph.Flow, error)) {
	in := &Inputs{Outputs: map[Life]bson.RawValue{}, Taken: l.taken, Joins: map[string]JoinFunc{"most": l.most}}
	after, err := do(in)
	for ; err == nil && !in.Ready(); after, err = do(in) {
		for at := range in.Missing {
			require.Equal(l, graph.NodeSuccess, l.said[at], "it asks for an output that is there")
			in.Outputs[LifeOf(l.f, at)] = l.output(at)
		}
		in.Missing = nil
	}
	require.NoError(l, err)
	require.Equal(l, l.f.Rev+1, after.Rev)
	for k := range after.Planned {
		p := &after.Planned[k]
		if p.Do == DoRestart || p.Do == DoReset {
			l.life[p.Node] = p.Life
		}
		switch p.Do {
		case DoRelease, DoRestart:
			require.Equal(l, after.States[p.Node].Life, l.life[p.Node], "the task of node %d is of another life, and stays as it is", p.Node)
			l.free[p.Node] = after.Nodes[p.Node].Each == nil || after.States[p.Node].Elements == ""
			l.runs[p.Node] = after.Nodes[p.Node].Flow != nil
		case DoGather:
			l.free[p.Node] = true
		case DoReset:
			l.free[p.Node], l.runs[p.Node] = false, false
		case DoAbort: // what runs ends soon
			l.free[p.Node], l.runs[p.Node] = after.States[p.Node].Status == graph.NodeReady, false
		}
	}
	for i := range after.States {
		status := after.States[i].Status
		require.False(l, after.States[i].Context.Type != 0 && (status == graph.NodeReady || !after.Closed && Final(status)), "node %d is %s, and its join has something saved", i, status)
	}
	for i, runs := range l.runs {
		require.False(l, runs && Final(after.States[i].Status), "the flow of node %d runs although nobody waits for it", i)
	}
	for i := range after.States {
		if Root(&after.States[i]) && !Root(&l.f.States[i]) {
			require.Contains(l, actions(after, i), DoAlert, "node %d begins to wait for a person", i)
		}
	}
	l.f = after
	l.f.Planned = nil
	was := l.is
	l.is = flowmodel.Settled(l.f, l.said, l.edge)
	for i := range l.f.Nodes {
		switch v := &l.f.Nodes[i]; {
		case l.said[i] == "" && v.Ask != nil && l.is[i] == graph.NodeReady, l.said[i] == "" && v.Join == graph.Custom && l.hopeless(i):
			l.said[i] = graph.NodePending // for a person, whatever the parents do
			l.is = flowmodel.Settled(l.f, l.said, l.edge)
		case v.For > 0 && l.is[i] == graph.NodeReady && was[i] != graph.NodeReady:
			l.due[i] = l.now.Add(v.For)
		}
	}
	require.Equal(l, l.is, statuses(l.f))
	wanted := graph.StatusFinish
	switch {
	case slices.Contains(l.is, graph.NodeReady):
		wanted = graph.StatusRunning
	case l.is[len(l.is)-1] == graph.NodePending:
		wanted = graph.StatusPending
	}
	require.Equal(l, wanted, l.f.Status)
	require.True(l, l.f.DueAt.IsZero() || l.f.DueAt.After(l.now), "what is due is decided")
}

// hopeless says whether too many parents of a custom join have failed, and not because others were skipped.
func (l *live) hopeless(i int) bool {
	n := map[graph.NodeStatus]int{}
	for _, at := range l.f.Nodes[i].After {
		n[l.edge(i, at, l.is[at])]++
	}
	of := len(l.f.Nodes[i].After)
	return of-n[graph.NodeSkipped] >= of/2+1 && of-n[graph.NodeSkipped]-n[graph.NodeError] < of/2+1
}

// close is what the rule says of a flow that ends early: what runs goes on to its end, what waits for
// a person has failed, and the rest is skipped.
func (l *live) close(was []graph.NodeStatus) {
	l.closed = true
	for i := range l.said {
		switch {
		case l.said[i] == graph.NodePending:
			l.said[i] = graph.NodeError
		case l.said[i] != "" && l.said[i] != graph.NodeReady:
		case was[i] == graph.NodeReady && flowspec.HasTask(&l.f.Nodes[i]):
			l.said[i] = graph.NodeReady
		case was[i] == graph.NodeReady:
			l.said[i] = graph.NodeError
		case !Final(was[i]):
			l.said[i] = graph.NodeSkipped
		}
	}
}

// goOn ends some of what runs, together, and lets time go on. It returns false if nothing runs.
func (l *live) goOn() bool {
	var runs []int
	for i := range l.is {
		if v := &l.f.Nodes[i]; l.is[i] == graph.NodeReady && flowspec.HasTask(v) {
			require.True(l, l.free[i] || v.Each != nil && len(openElements(l.f, i)) > 0, "node %d is READY, and its task waits", i)
			runs = append(runs, i)
		}
	}
	switch l.now = l.now.Add(time.Millisecond); {
	case len(runs) == 0 && l.f.DueAt.IsZero():
		return false
	case (len(runs) == 0 || l.r.IntN(4) == 0) && l.f.DueAt.After(l.now):
		l.now = l.f.DueAt
	}
	l.r.Shuffle(len(runs), func(a, b int) { runs[a], runs[b] = runs[b], runs[a] })
	var ends []End
	was, closes := l.is, false
	for _, i := range runs[:min(len(runs), 1+l.r.IntN(1+len(runs)))] {
		v, st := &l.f.Nodes[i], &l.f.States[i]
		if !l.free[i] {
			open := openElements(l.f, i)
			for _, k := range open[:1+l.r.IntN(len(open))] {
				ends = append(ends, End{Node: i, Element: k + 1, Life: st.Life, Status: l.fate()})
			}
			continue
		}
		e := End{Node: i, Life: st.Life, Status: l.fate(), ErrorInfo: "no"}
		if !l.closed && v.Each != nil {
			if e.Status = model.StatusSuccess; strings.ContainsRune(st.Elements, ElementFailed) {
				e.Status = model.StatusFailure
			}
		} else if !l.closed && l.r.IntN(10) == 0 {
			e.Status = model.StatusPending
		}
		switch {
		case v.Flow == nil:
		case l.r.IntN(4) == 0: // a person cancels the task
			e.Status = model.StatusCancelled
		default:
			l.runs[i] = e.Status == model.StatusPending
		}
		ends = append(ends, e)
		switch {
		case e.Status == model.StatusPending:
			l.said[i] = graph.NodePending
		case e.Status.Succeeded():
			l.said[i] = graph.NodeSuccess
		case l.closed || v.OnFailure == graph.Continue:
			l.said[i] = graph.NodeError
		case v.OnFailure == graph.End:
			l.said[i], closes = graph.NodeError, true
		default:
			l.said[i] = graph.NodePending
		}
	}
	if closes {
		l.close(was)
	}
	for i := range l.due {
		if v := &l.f.Nodes[i]; v.For > 0 && was[i] == graph.NodeReady && !l.due[i].After(l.now) && !closes {
			l.said[i] = graph.NodeSuccess
		}
	}
	if len(ends) == 0 && l.f.DueAt.After(l.now) {
		return true
	}
	l.anywhere(func(in *Inputs) (*graph.Flow, error) { return Ended(l.f, ends, in, l.now) })
	for k := range ends {
		require.False(l, l.runs[ends[k].Node] && ends[k].Status == model.StatusCancelled, "the flow of node %d runs although its task is Cancelled", ends[k].Node)
		ends = append(ends, End{Node: ends[k].Node, Life: ends[k].Life - 1, Status: model.StatusSuccess})
	}
	again, err := Ended(l.f, ends, &Inputs{}, l.now)
	require.NoError(l, err)
	require.Same(l, l.f, again, "an end that is told twice, or of an older life, says nothing new")
	return true
}

func (l *live) fate() model.Status {
	return []model.Status{model.StatusSuccess, model.StatusSuccess, model.StatusSuccess, model.StatusFailure}[l.r.IntN(4)]
}

// openElements are those of a node that may run.
func openElements(f *graph.Flow, i int) (out []int) {
	limit := 5
	if e := f.Nodes[i].Each; e != nil && e.Limit > 0 {
		limit = e.Limit
	}
	for k, letter := range f.States[i].Elements {
		if letter == ElementRuns {
			out = append(out, k)
		}
	}
	if len(out) > limit {
		panic("more elements run than may")
	}
	return out
}

func statuses(f *graph.Flow) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(f.States))
	for i := range f.States {
		out[i] = f.States[i].Status
	}
	return out
}

// At each moment every node of a flow is what the sequential rule says, in whichever order and however
// many at a time tasks end, whatever people do meanwhile. No flow stands still: it ends, or Explain
// names nodes that a person can resolve, and with them it goes on.
func TestAFlowIsAtEachMomentWhatTheSequentialRuleSays(t *testing.T) {
	ended := map[graph.NodeStatus]int{}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		size, plain := 2+r.IntN(30), seed%3 == 0
		if seed%60 == 0 {
			size = 100 + r.IntN(101)
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			l := newLive(t, r, randomFlow(r, size, plain))
			for k := 0; l.goOn(); k++ {
				require.Less(t, k, 100*size, "the flow does not end")
				if k < 3*size {
					l.person()
				}
			}
			for l.f.Status == graph.StatusPending {
				last, before := size-1, slices.Clone(l.is)
				for i := range l.is {
					if l.is[i] == graph.NodePending {
						l.named(i)
					}
				}
				named := l.named(last)
				for _, i := range named {
					require.Equal(t, graph.NodePending, before[i], "a person can resolve node %d", i)
					if l.is[i] == graph.NodePending && l.f.Status != graph.StatusFinish {
						l.resolve(i, graph.NodeSuccess)
					}
				}
				require.False(t, plain && len(named) < 10 && l.is[last] == graph.NodePending, "nothing but what it names keeps it")
				for l.goOn() {
				}
			}
			require.Equal(t, graph.StatusFinish, l.f.Status)
			ended[l.is[size-1]]++
		})
		require.True(t, ok)
	}
	require.Len(t, ended, 3, "flows end in all ways")
}
