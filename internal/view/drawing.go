package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/flowdraw"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/human"
)

// Drawings draw a flow with the states of its nodes, as they are now, by what they draw: its graph as text (a tree),
// dot, mermaid or svg, or gantt: the times of its nodes as a picture.
var Drawings = map[string]func(doc *graph.Flow, nodes []Node, now time.Time) string{
	"text": language(flowdraw.Text), "dot": language(flowdraw.Dot), "mermaid": language(flowdraw.Mermaid), "svg": svgOf, Gantt: ganttOf,
}

// Gantt is the drawing that a definition does not have: it has no times.
const Gantt = "gantt"

// DrawSpec draws a definition: its nodes say what they do, since none has a status. What is wrong with it is an
// error, as of [flow.Validate].
func DrawSpec(format string, s *graph.Spec, now time.Time) (string, error) {
	doc, err := flowspec.Build(s, cmp.Or(s.Key, "new"), now)
	if err != nil {
		return "", err
	}
	doc.Status = "" // it is not started
	return Drawings[format](doc, make([]Node, len(doc.Nodes)), now), nil
}

// language draws the graph in a language that knows only statuses.
func language(draw func([]graph.Vertex, []graph.NodeStatus) string) func(*graph.Flow, []Node, time.Time) string {
	return func(doc *graph.Flow, nodes []Node, _ time.Time) string { return draw(doc.Nodes, statusesOf(nodes)) }
}

func statusesOf(nodes []Node) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Status
	}
	return out
}

// svgOf draws the flow as a picture.
func svgOf(doc *graph.Flow, nodes []Node, _ time.Time) string {
	p := flowdraw.Picture{Nodes: doc.Nodes, Statuses: statusesOf(nodes), Began: doc.CreatedAt}
	p.Title, p.Subtitle = titleOf(doc)
	for i := range nodes {
		p.Since, p.Reasons = append(p.Since, nodes[i].At), append(p.Reasons, nodes[i].Why())
	}
	return flowdraw.SVG(p)
}

// titleOf is what stands above a picture of the flow.
func titleOf(doc *graph.Flow) (title, subtitle string) {
	if doc.Status == "" {
		return human.FlowID(doc.ID), human.Plural(len(doc.Nodes), "node", "nodes")
	}
	subtitle = "created " + dayTime(doc.CreatedAt) + " UTC, changed " + dayTime(doc.UpdatedAt) + " UTC"
	if !doc.EndedAt.IsZero() {
		subtitle += ", took " + human.Rough(doc.EndedAt.Sub(doc.CreatedAt))
	}
	return human.FlowID(doc.ID) + " · " + string(doc.Status), subtitle
}

// ganttOf draws the times of the nodes, in the order of their starts.
func ganttOf(doc *graph.Flow, nodes []Node, now time.Time) string {
	c := flowdraw.Chart{From: doc.CreatedAt, To: clock.Sooner(now, doc.EndedAt)}
	c.Title, c.Subtitle = titleOf(doc)
	if doc.Kind == graph.KindStream && len(nodes) > 0 { // it may have run for a year, and shows its last nodes
		c.From = c.To
	}
	for _, n := range ByStart(nodes) {
		r := flowdraw.Row{ID: n.Node, Status: n.Status, Since: n.At, Ready: n.ReadyAt, Start: n.StartedAt, End: n.EndedAt, Reason: n.Why()}
		if took := n.Took(now); took > 0 {
			r.Took = human.Rough(took)
		}
		if doc.Kind == graph.KindStream {
			c.From = clock.Sooner(c.From, n.ReadyAt)
		}
		c.To = clock.Later(c.To, n.EndedAt)
		c.Rows = append(c.Rows, r)
	}
	return flowdraw.Gantt(c)
}

// ByStart are the nodes in the order in which they started, then those that wait for their start, then the others.
func ByStart(nodes []Node) []Node {
	out := slices.Clone(nodes)
	slices.SortStableFunc(out, func(a, b Node) int {
		one, other := a.began(), b.began()
		if one.IsZero() != other.IsZero() {
			if one.IsZero() {
				return 1
			}
			return -1
		}
		return one.Compare(other)
	})
	return out
}

// began is when a node took up time first: its start, or since when it waits for that, or its end if it never ran.
func (n *Node) began() time.Time { return cmp.Or(n.StartedAt, n.ReadyAt, n.EndedAt) }

func dayTime(t time.Time) string { return t.UTC().Format(time.DateTime) }
