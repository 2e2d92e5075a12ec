package flowspec

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

const (
	maxNodeID = 64
	nullNode  = "N/A" // of seed 002
	mostNamed = 10    // nodes in one error
)

// shape is the graph that the nodes make. Nodes are numbers: their places as they were given.
type shape struct {
	nodes   []graph.NodeSpec
	places  map[string]int // by id; of two with the same one, the first
	parents [][]int        // those that are fine, as given
	order   []int          // every node after its parents, else as given
	rank    []int          // of each node, its place in order
	cycle   []int          // each a parent of the next, the last one of the first; nil = there is none
	errs    []error

	above []*big.Int // of each node, its ancestors as bits; made when somebody asks
}

func shapeOf(nodes []graph.NodeSpec) *shape {
	s := &shape{nodes: nodes, places: make(map[string]int, len(nodes)), parents: make([][]int, len(nodes))}
	for i := range nodes {
		s.place(i)
	}
	for i := range nodes {
		s.link(i)
	}
	s.ends()
	s.sort()
	if s.cycle != nil {
		s.errs = append(s.errs, input.Invalid("nodes", "have a cycle: %s", s.shownCycle()))
	}
	return s
}

func isNodeID(id string) bool {
	return safetext.IsName(id) && len(id) <= maxNodeID && !strings.Contains(id, ".")
}

// shownID is an id in a text.
func shownID(id string) string {
	if isNodeID(id) {
		return id
	}
	return fmt.Sprintf("%q", safetext.Clip(id, 2*maxNodeID))
}

// bad says what is wrong with node i.
func (s *shape) bad(i int, field, format string, args ...any) {
	s.errs = append(s.errs, ofNode(i, s.nodes[i].ID, input.Invalid(field, format, args...))...)
}

// place gives node i its place.
func (s *shape) place(i int) {
	const want = "want 1 to 64 of a-z A-Z 0-9 _ -"
	id := s.nodes[i].ID
	switch {
	case id == "":
		s.bad(i, "id", "is empty; "+want)
	case id == nullNode:
		s.bad(i, "id", "is %s, the name of no node; %s", nullNode, want)
	case !isNodeID(id):
		s.bad(i, "id", "is %s; %s", shownID(id), want)
	}
	if first, twice := s.places[id]; twice && id != "" {
		s.bad(i, "id", "is that of nodes[%d], too", first)
		return
	}
	s.places[id] = i
}

// link finds the parents of node i.
func (s *shape) link(i int) {
	n := &s.nodes[i]
	seen := make(map[string]bool, len(n.After))
	for k, id := range n.After {
		field := fmt.Sprintf("after[%d]", k)
		parent, known := s.places[id]
		switch {
		case seen[id]:
			s.bad(i, field, "is %s, which is named before", shownID(id))
		case !known || id == "":
			s.bad(i, field, "is %s; there is no such node", shownID(id))
		case id == n.ID:
			s.bad(i, field, "is the node itself")
		default:
			s.parents[i] = append(s.parents[i], parent)
		}
		seen[id] = true
	}
}

// ends checks that there is one first and one last node. Then, without a cycle, every node lies
// between them.
func (s *shape) ends() {
	if len(s.nodes) == 0 {
		s.errs = append(s.errs, input.Invalid("nodes", "are missing; a flow has at least one"))
		return
	}
	hasChild := map[string]bool{}
	var first, last []int
	for i := range s.nodes {
		if len(s.nodes[i].After) == 0 {
			first = append(first, i)
		}
		for _, p := range s.parents[i] {
			hasChild[s.nodes[p].ID] = true
		}
	}
	for i := range s.nodes {
		if !hasChild[s.nodes[i].ID] {
			last = append(last, i)
		}
	}
	for _, e := range []struct {
		nodes        []int
		none, manyOf string
	}{
		{first, "no first node: each has a parent", "first nodes, which have no parents"},
		{last, "no last node: each is the parent of another", "last nodes, which are the parent of none"},
	} {
		switch len(e.nodes) {
		case 0:
			s.errs = append(s.errs, input.Invalid("nodes", "have %s; want exactly one", e.none))
		case 1:
		default:
			s.errs = append(s.errs, input.Invalid("nodes", "have %d %s; want exactly one: %s", len(e.nodes), e.manyOf, s.named(e.nodes)))
		}
	}
}

// named lists nodes for an error.
func (s *shape) named(nodes []int) string {
	ids := make([]string, 0, mostNamed+1)
	for _, i := range nodes[:min(len(nodes), mostNamed)] {
		ids = append(ids, shownID(s.nodes[i].ID))
	}
	if more := len(nodes) - mostNamed; more > 0 {
		ids = append(ids, fmt.Sprintf("... (%d more)", more))
	}
	return strings.Join(ids, ", ")
}

// sort puts every node after its parents. It visits the nodes as they were given, and the parents
// of each before it.
func (s *shape) sort() {
	const visiting, done = 1, 2
	state := make([]byte, len(s.nodes))
	var path []int // each a child of the next
	var visit func(i int)
	visit = func(i int) {
		state[i], path = visiting, append(path, i)
		for _, p := range s.parents[i] {
			switch {
			case state[p] == 0:
				visit(p)
			case state[p] == visiting && s.cycle == nil:
				s.cycle = slices.Clone(path[slices.Index(path, p):])
				slices.Reverse(s.cycle)
			}
		}
		state[i], path = done, path[:len(path)-1]
		s.order = append(s.order, i)
	}
	for i := range s.nodes {
		if state[i] == 0 {
			visit(i)
		}
	}
	s.rank = make([]int, len(s.nodes))
	for place, i := range s.order {
		s.rank[i] = place
	}
}

// shownCycle begins with the node that was given first, and leaves out the middle of a long one.
func (s *shape) shownCycle() string {
	at := slices.Index(s.cycle, slices.MinFunc(s.cycle, cmp.Compare))
	nodes := slices.Concat(s.cycle[at:], s.cycle[:at+1])
	ids := make([]string, 0, 2*mostNamed+1)
	for k, i := range nodes {
		switch left := len(nodes) - k; {
		case k < mostNamed || left <= mostNamed:
			ids = append(ids, shownID(s.nodes[i].ID))
		case k == mostNamed:
			ids = append(ids, fmt.Sprintf("... (%d more)", left-mostNamed))
		}
	}
	return strings.Join(ids, " -> ")
}

// isAncestor says whether node i always comes after node of. In a cycle nothing is certain, and it
// says so of all.
func (s *shape) isAncestor(of, i int) bool {
	if s.cycle != nil || s.above == nil && slices.Contains(s.parents[i], of) {
		return true
	}
	if s.above == nil {
		s.above = make([]*big.Int, len(s.nodes))
		for _, n := range s.order {
			bits := new(big.Int)
			for _, p := range s.parents[n] {
				bits.Or(bits, s.above[p])
				bits.SetBit(bits, p, 1)
			}
			s.above[n] = bits
		}
	}
	return s.above[i].Bit(of) == 1
}
