package flowdraw

import (
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// color is that of a status, behind dark text.
type color struct {
	status graph.NodeStatus
	fill   string
}

var colors = []color{
	{graph.NodeWait, "#eeeeee"},
	{graph.NodeReady, "#cfe2ff"},
	{graph.NodeRunning, "#8fb8ff"},
	{graph.NodePending, "#ffd966"},
	{graph.NodeSuccess, "#b6d7a8"},
	{graph.NodeError, "#ea9999"},
	{graph.NodeSkipped, "#ffffff"},
}

// undrawn is the colour of a node of a definition, which has no status.
const undrawn = "#ffffff"

// edges calls what draws each edge. An edge with a condition is labelled when.
func edges(nodes []graph.Vertex, draw func(from, to int, conditional bool)) {
	for i := range nodes {
		for k, from := range nodes[i].After {
			draw(from, i, k < len(nodes[i].When) && nodes[i].When[k] != "")
		}
	}
}

// Dot is the graph in the language of Graphviz.
func Dot(nodes []graph.Vertex, statuses []graph.NodeStatus) string {
	var b strings.Builder
	b.WriteString("digraph flow {\n  node [shape=box, style=\"rounded,filled\"];\n")
	fill := map[graph.NodeStatus]string{"": undrawn}
	for _, c := range colors {
		fill[c.status] = c.fill
	}
	for i := range nodes {
		fmt.Fprintf(&b, "  %q [label=\"%s\\n%s\", fillcolor=%q];\n", nodes[i].ID, nodes[i].ID, dotText(says(&nodes[i], statuses[i])), fill[statuses[i]])
	}
	edges(nodes, func(from, to int, conditional bool) {
		label := ""
		if conditional {
			label = ` [label="when"]`
		}
		fmt.Fprintf(&b, "  %q -> %q%s;\n", nodes[from].ID, nodes[to].ID, label)
	})
	return b.String() + "}\n"
}

// dotText and mermaidText are a text within a label: what a wait refers to may have quotes.
func dotText(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

func mermaidText(s string) string { return strings.NewReplacer(`"`, "#quot;", "<", "&lt;").Replace(s) }

// Mermaid is the graph in the language of Mermaid. The nodes have numbers there, because some ids,
// such as end, are words of the language.
func Mermaid(nodes []graph.Vertex, statuses []graph.NodeStatus) string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  n%d[\"%s<br/>%s\"]", i, nodes[i].ID, mermaidText(says(&nodes[i], statuses[i])))
		if statuses[i] != "" {
			b.WriteString(":::" + strings.ToLower(string(statuses[i])))
		}
		b.WriteByte('\n')
	}
	edges(nodes, func(from, to int, conditional bool) {
		label := ""
		if conditional {
			label = "|when|"
		}
		fmt.Fprintf(&b, "  n%d -->%s n%d\n", from, label, to)
	})
	for _, c := range colors {
		fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:#555555,color:#000000\n", strings.ToLower(string(c.status)), c.fill)
	}
	return b.String()
}
