package flowplan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
)

// settled is the whole rule of flows in one walk, as a person would apply it by hand: the nodes
// in order, each judged by what has become of its parents. fate says how a node's task ends.
func settled(f *graph.Flow, fate []model.Status) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(f.Nodes))
	for i, v := range f.Nodes {
		n := map[graph.NodeStatus]int{}
		for _, at := range v.After {
			if v.Join != graph.These || slices.Contains(v.These, at) {
				n[out[at]]++
			}
		}
		all := len(v.After)
		if v.Join == graph.These {
			all = len(v.These)
		}
		skippedAll := len(v.After) > 0 && !slices.ContainsFunc(v.After, func(at int) bool { return out[at] != graph.NodeSkipped })
		starts := graph.NodeReady
		switch {
		case skippedAll:
			starts = graph.NodeSkipped
		case v.Join == graph.AllEnded && n[graph.NodePending] > 0:
			starts = graph.NodePending
		case v.Join == graph.AllEnded:
		case v.Join == graph.AtLeast && n[graph.NodeSuccess] >= v.N:
		case v.Join == graph.AtLeast && all-n[graph.NodeSkipped] < v.N, v.Join == graph.These && n[graph.NodeSkipped] > 0:
			starts = graph.NodeSkipped
		case v.Join == graph.AtLeast:
			starts = graph.NodePending
		case n[graph.NodeError] > 0:
			starts = graph.NodePending
		case n[graph.NodePending] > 0:
			starts = graph.NodePending
		}
		if starts == graph.NodeReady && v.Ask != nil {
			starts = graph.NodePending
		}
		if out[i] = starts; starts == graph.NodeReady {
			switch {
			case fate[i].Succeeded():
				out[i] = graph.NodeSuccess
			case v.OnFailure == graph.Continue:
				out[i] = graph.NodeError
			default:
				out[i] = graph.NodePending
			}
		}
	}
	return out
}

// randomFlow is a graph of n nodes with one first and one last node.
func randomFlow(r *rand.Rand, n int) *graph.Flow {
	at := time.UnixMilli(1_000_000)
	f := &graph.Flow{ID: "-/f", Status: graph.StatusRunning, Rev: 1, RunningAt: at}
	hasChild := make([]bool, n)
	for i := range n {
		v := graph.Vertex{ID: fmt.Sprintf("n%d", i), Type: "t", OnFailure: []graph.Policy{graph.Suspend, graph.Continue}[r.IntN(2)]}
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
			switch v.Join = []graph.Strategy{graph.AllSucceeded, graph.AllEnded, graph.AtLeast, graph.These}[r.IntN(4)]; v.Join {
			case graph.AtLeast:
				v.N = 1 + r.IntN(len(v.After))
			case graph.These:
				v.These = v.After[:1+r.IntN(len(v.After))]
			}
		}
		if i > 0 && r.IntN(6) == 0 { // a task would be the same as far as the others can see
			v.Type, v.For = "", time.Duration(1+r.IntN(20))*time.Millisecond
		} else if i > 0 && r.IntN(15) == 0 {
			v.Type, v.Ask = "", &graph.Ask{Title: "what now?"}
		} else if i > 0 && r.IntN(6) == 0 {
			v.Each, v.Task = &graph.Each{Items: []string{"[]", "[1]", "[1,2,3,4,5]"}[r.IntN(3)], Limit: r.IntN(3), Max: 5}, &model.Task{Type: "t"}
		}
		f.Nodes = append(f.Nodes, v)
		f.States = append(f.States, graph.State{Status: graph.NodeWait, At: at})
	}
	f.States[0].Status = graph.NodeReady
	return f
}

// run ends what is READY, some of it together, in a random order, until nothing is. Time goes on by
// a millisecond for each round, or to the next time for which a node waits.
func run(t *testing.T, r *rand.Rand, f *graph.Flow, fate []model.Status) *graph.Flow {
	now := time.UnixMilli(2_000_000)
	for round := 0; ; round++ {
		var ready []int
		for i := range f.States {
			if f.States[i].Status == graph.NodeReady && flowspec.HasTask(&f.Nodes[i]) {
				ready = append(ready, i)
			}
		}
		switch now = now.Add(time.Millisecond); {
		case len(ready) == 0 && f.DueAt.IsZero():
			return f
		case len(ready) == 0 || !f.DueAt.IsZero() && r.IntN(4) == 0:
			if f.DueAt.After(now) {
				now = f.DueAt
			}
		}
		require.Less(t, round, 10*len(f.Nodes), "the flow does not end")
		r.Shuffle(len(ready), func(a, b int) { ready[a], ready[b] = ready[b], ready[a] })
		var ends []End
		if len(ready) > 0 {
			ready = ready[:1+r.IntN(len(ready))]
		}
		for _, i := range ready {
			if open := openElements(f, i); len(open) > 0 {
				for _, k := range open[:1+r.IntN(len(open))] { // the last one decides
					status := model.StatusSuccess
					if k == len(f.States[i].Elements)-1 {
						status = fate[i]
					}
					ends = append(ends, End{Node: i, Element: k + 1, Life: f.States[i].Life, Status: status})
				}
				continue
			} else if e := f.Nodes[i].Each; e != nil && f.States[i].Elements == "" {
				fate[i] = model.StatusSuccess // there is none that could fail
			}
			ends = append(ends, End{Node: i, Life: f.States[i].Life, Status: fate[i], ErrorInfo: "no"})
		}
		after, err := Ended(f, ends, &Inputs{}, now)
		require.NoError(t, err)
		require.Equal(t, f.Rev+1, after.Rev)
		require.True(t, after.DueAt.IsZero() || after.DueAt.After(now), "what is due is decided")
		again, err := Ended(after, ends, &Inputs{}, now)
		require.NoError(t, err)
		require.Same(t, after, again, "an end that is told twice says nothing new")
		f = after
		f.Planned = nil
	}
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

// A flow ends as the sequential rule says, in whichever order and however many at a time its
// tasks end; also after a person has resolved what is PENDING.
func TestAFlowEndsAsTheSequentialRuleSays(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := randomFlow(r, 2+r.IntN(40))
		fate := make([]model.Status, len(f.Nodes))
		for i := range fate {
			fate[i] = []model.Status{model.StatusSuccess, model.StatusSuccess, model.StatusSuccess, model.StatusFailure}[r.IntN(4)]
			if !flowspec.HasTask(&f.Nodes[i]) {
				fate[i] = model.StatusSuccess
			}
		}
		f = run(t, r, f, fate)
		require.Equal(t, settled(f, fate), statuses(f), "seed %d", seed)
		for i := range f.States {
			if f.States[i].Status == graph.NodePending {
				require.NotEmpty(t, f.States[i].Reason)
				require.NotEmpty(t, Explain(f, i))
			}
		}
		for f.Status == graph.StatusPending {
			own := slices.IndexFunc(f.States, func(s graph.State) bool { return s.Status == graph.NodePending })
			after, err := Resolve(f, own, graph.NodeSuccess, "done by hand", &Inputs{}, time.UnixMilli(4_000_000))
			require.NoError(t, err)
			fate[own] = model.StatusSuccess
			f = run(t, r, after, fate)
		}
		require.Equal(t, graph.StatusFinish, f.Status, "seed %d", seed)
		require.True(t, f.States[len(f.States)-1].Status.Final())
	}
}
