package flowspec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// chain is a flow of n nodes one after the other.
func chain(n int) *graph.Spec {
	s := &graph.Spec{}
	for i := range n {
		node := graph.NodeSpec{ID: fmt.Sprintf("n%d", i), Type: "t"}
		if i > 0 {
			node.After = []string{fmt.Sprintf("n%d", i-1)}
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s
}

func TestAGivenOrderThatIsGoodStays(t *testing.T) {
	f, err := Build(diamond(), "k", now)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "d"}, ids(f))
}

func TestAtMostTenNodesAreNamed(t *testing.T) {
	s := diamond()
	for i := range 12 {
		s.Nodes = append(s.Nodes, graph.NodeSpec{ID: fmt.Sprintf("x%d", i), Type: "t", After: []string{"d"}})
	}
	_, err := Build(s, "k", now)
	require.EqualError(t, err, "nodes have 12 last nodes, which are the parent of none; want exactly one: x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, ... (2 more)")
}

func TestALongCycleIsShortened(t *testing.T) {
	s := chain(1000)
	s.Nodes[0].After = []string{"n999"}
	_, err := Build(s, "k", now)
	require.ErrorContains(t, err, "a cycle: n0 -> n1 -> n2 -> n3 -> n4 -> n5 -> n6 -> n7 -> n8 -> n9 -> ... (981 more) -> n991 -> n992")
	require.True(t, strings.HasSuffix(err.Error(), "-> n999 -> n0"), err)
}

// A random flow with one first and one last node, given in any order, is built: every node comes
// after its parents, and all that names nodes names the same ones as before.
func TestRandomFlowsAreBuiltInOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := randomFlow(r)
		f, err := Build(s, "k", now)
		require.NoError(r, err)
		require.Len(r, f.Nodes, len(s.Nodes))
		require.Equal(r, s.Nodes[slices.IndexFunc(s.Nodes, func(n graph.NodeSpec) bool { return len(n.After) == 0 })].ID, f.Nodes[0].ID)
		hasChild := make([]bool, len(f.Nodes))
		for i, v := range f.Nodes {
			n := s.Nodes[slices.IndexFunc(s.Nodes, func(n graph.NodeSpec) bool { return n.ID == v.ID })]
			var parents, these []string
			for _, p := range v.After {
				require.Less(r, p, i)
				parents, hasChild[p] = append(parents, f.Nodes[p].ID), true
			}
			for _, p := range v.These {
				these = append(these, f.Nodes[p].ID)
			}
			require.Equal(r, n.After, parents)
			require.Equal(r, n.Join.Nodes, these)
			require.Equal(r, i == 0, f.States[i].Status == graph.NodeReady)
			require.Equal(r, i == 0, f.Planned[i].Task.Status == model.StatusNew)
			require.Equal(r, v.ID, f.Planned[i].Task.Origin.Node)
			if n.Args != nil {
				template, err := Template(v.Args)
				require.NoError(r, err)
				require.NotEmpty(r, Refs(template))
			}
		}
		require.NotContains(r, hasChild[:len(hasChild)-1], false)
		require.False(r, hasChild[len(hasChild)-1])
	})
}

// A node of a random flow that is put before one of its ancestors makes a cycle, which is printed.
func TestAnEdgeBackIsACycle(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := randomFlow(r)
		if len(s.Nodes) < 3 {
			return
		}
		good, err := Build(s, "k", now)
		require.NoError(r, err)
		child := good.Nodes[rapid.IntRange(1, len(good.Nodes)-1).Draw(r, "child")]
		parent := good.Nodes[rapid.SampledFrom(child.After).Draw(r, "parent")]
		for i := range s.Nodes {
			if s.Nodes[i].ID == parent.ID {
				s.Nodes[i].After = append(s.Nodes[i].After, child.ID)
				s.Nodes[i].Join = graph.Join{}
			}
		}
		_, err = Build(s, "k", now)
		require.ErrorIs(r, err, model.ErrInvalid)
		_, shown, found := strings.Cut(err.Error(), "a cycle: ")
		require.True(r, found, err)
		shown, _, _ = strings.Cut(shown, "\n")
		around := strings.Split(shown, " -> ")
		require.Equal(r, around[0], around[len(around)-1])
		for k := range len(around) - 1 {
			if strings.HasPrefix(around[k], "...") || strings.HasPrefix(around[k+1], "...") {
				continue
			}
			i := slices.IndexFunc(s.Nodes, func(n graph.NodeSpec) bool { return n.ID == around[k+1] })
			require.Contains(r, s.Nodes[i].After, around[k])
		}
	})
}

func randomFlow(r *rapid.T) *graph.Spec {
	n := rapid.IntRange(1, 30).Draw(r, "nodes")
	nodes := make([]graph.NodeSpec, n)
	hasChild := make([]bool, n)
	for i := range nodes {
		nodes[i] = graph.NodeSpec{ID: fmt.Sprintf("n%d", i), Type: "t"}
		if i == 0 {
			continue
		}
		parents := rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 1, min(i, 4), rapid.ID[int]).Draw(r, "parents")
		if i == n-1 {
			for p := range i {
				if !hasChild[p] && !slices.Contains(parents, p) {
					parents = append(parents, p)
				}
			}
		}
		for _, p := range parents {
			nodes[i].After, hasChild[p] = append(nodes[i].After, nodes[p].ID), true
		}
		if rapid.Bool().Draw(r, "these") {
			nodes[i].Join = graph.Join{Strategy: graph.These, Nodes: nodes[i].After[:1]}
		}
		if rapid.Bool().Draw(r, "refers") {
			nodes[i].Args = obj{"x": obj{"$output": "n0.y"}} // which is before all others
		}
	}
	return &graph.Spec{Nodes: rapid.Permutation(nodes).Draw(r, "order")}
}

func TestTheLargestFlowsAreBuilt(t *testing.T) {
	for name, s := range map[string]*graph.Spec{"chain": chain(MaxNodes), "fan": fan(MaxNodes)} {
		for i := 1; i < len(s.Nodes); i++ {
			s.Nodes[i].Args = obj{"first": obj{"$output": "n0"}}
		}
		rand.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		f, err := Build(s, "k", now)
		require.NoError(t, err, name)
		require.Equal(t, "n0", f.Nodes[0].ID)
		require.Len(t, f.Planned, MaxNodes)
	}
}

// fan is a flow of a first node, a last one, and all others between them.
func fan(n int) *graph.Spec {
	s := chain(n)
	last := &s.Nodes[n-1]
	last.After = nil
	for i := 1; i < n-1; i++ {
		s.Nodes[i].After = []string{"n0"}
		last.After = append(last.After, s.Nodes[i].ID)
	}
	return s
}
