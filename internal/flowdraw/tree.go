package flowdraw

import (
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// Line is the line of one node in a drawing.
type Line struct {
	Node int    // its place in the flow
	Text string // its id, behind the branches that lead to it
}

// Tree draws the nodes of a flow, each on one line and after its parents. A node stands below the
// nearest node that all paths to it share. A single child, or the node that joins the branches,
// continues at the level of that node, so a chain is a column:
//
//	pay
//	├─ stock
//	│  pack
//	├─ mail
//	done
func Tree(nodes []graph.Vertex) []Line {
	below := make([][]int, len(nodes))
	var tops []int
	for i, gate := range gates(nodes) {
		if gate < 0 {
			tops = append(tops, i)
		} else {
			below[gate] = append(below[gate], i)
		}
	}
	d := &drawing{nodes: nodes, below: below}
	for _, i := range tops {
		d.draw(i, "", "", 0)
	}
	return d.lines
}

// gates are, for each node, the nearest node through which every path to it goes: where the ways up
// from its parents meet. Of a node without one it is -1.
func gates(nodes []graph.Vertex) []int {
	out := make([]int, len(nodes))
	for i := range nodes {
		if len(nodes[i].After) == 0 {
			out[i] = -1
			continue
		}
		out[i] = nodes[i].After[0]
		for _, parent := range nodes[i].After[1:] {
			out[i] = meet(out, out[i], parent)
		}
	}
	return out
}

// meet is where the ways up from two nodes meet. A gate has a lower place than what is behind it.
func meet(gates []int, a, b int) int {
	for a != b {
		if a > b {
			a = gates[a]
		} else {
			b = gates[b]
		}
	}
	return a
}

type drawing struct {
	nodes []graph.Vertex
	below [][]int
	lines []Line
}

// deepest is how many branches lie side by side. Deeper ones are not indented any further: a large
// graph would have lines as long as itself.
const deepest = 20

// draw draws a node behind lead, and what is below it behind follow.
func (d *drawing) draw(i int, lead, follow string, depth int) {
	d.lines = append(d.lines, Line{i, lead + d.nodes[i].ID})
	branches := d.below[i]
	next := -1 // goes on at the level of the node
	if n := len(branches); n == 1 || n > 1 && len(d.nodes[branches[n-1]].After) > 1 {
		next, branches = branches[n-1], branches[:n-1]
	}
	for k, b := range branches {
		branch, beside := "├─ ", "│  "
		if next < 0 && k == len(branches)-1 {
			branch, beside = "└─ ", "   "
		}
		if depth >= deepest {
			beside = ""
		}
		d.draw(b, follow+branch, follow+beside, depth+1)
	}
	if next >= 0 {
		d.draw(next, follow, follow, depth)
	}
}

// Text is the tree with the status of each node, if they have one, and the parents of those that have several.
func Text(nodes []graph.Vertex, statuses []graph.NodeStatus) string {
	var b strings.Builder
	for _, l := range Tree(nodes) {
		b.WriteString(l.Text + "  " + says(&nodes[l.Node], statuses[l.Node]))
		if v := &nodes[l.Node]; len(v.After) > 1 {
			b.WriteString("  after " + strings.Join(Parents(nodes, l.Node), ", "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Parents are the ids of a node's parents.
func Parents(nodes []graph.Vertex, i int) []string {
	out := make([]string, len(nodes[i].After))
	for k, at := range nodes[i].After {
		out[k] = nodes[at].ID
	}
	return out
}
