package view

import (
	"cmp"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowdraw"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/human"
)

// Drawings draw the graph of a flow with the states of its nodes, by what they draw: text (a tree), dot,
// mermaid or svg.
var Drawings = map[string]func(*graph.Flow, []Node) string{
	"text": language(flowdraw.Text), "dot": language(flowdraw.Dot), "mermaid": language(flowdraw.Mermaid), "svg": svgOf,
}

// DrawSpec draws a definition: its nodes say what they do, since none has a status. What is wrong with it is an
// error, as of [flow.Validate].
func DrawSpec(format string, s *graph.Spec, now time.Time) (string, error) {
	doc, err := flowspec.Build(s, cmp.Or(s.Key, "new"), now)
	if err != nil {
		return "", err
	}
	doc.Status = "" // it is not started
	return Drawings[format](doc, make([]Node, len(doc.Nodes))), nil
}

// language draws the graph in a language that knows only statuses.
func language(draw func([]graph.Vertex, []graph.NodeStatus) string) func(*graph.Flow, []Node) string {
	return func(doc *graph.Flow, nodes []Node) string { return draw(doc.Nodes, statusesOf(nodes)) }
}

func statusesOf(nodes []Node) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Status
	}
	return out
}

// svgOf draws the flow as a picture.
func svgOf(doc *graph.Flow, nodes []Node) string {
	p := flowdraw.Picture{
		Title: human.FlowID(doc.ID), Subtitle: human.Plural(len(nodes), "node", "nodes"),
		Nodes: doc.Nodes, Statuses: statusesOf(nodes), Began: doc.CreatedAt,
	}
	if doc.Status != "" {
		p.Title += " · " + string(doc.Status)
		p.Subtitle = "created " + dayTime(doc.CreatedAt) + " UTC, changed " + dayTime(doc.UpdatedAt) + " UTC"
	}
	if !doc.EndedAt.IsZero() {
		p.Subtitle += ", took " + human.Rough(doc.EndedAt.Sub(doc.CreatedAt))
	}
	for i := range nodes {
		p.Since, p.Reasons = append(p.Since, nodes[i].At), append(p.Reasons, nodes[i].Why())
	}
	return flowdraw.SVG(p)
}

func dayTime(t time.Time) string { return t.UTC().Format(time.DateTime) }
