package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/flowdraw"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/view"
)

const flowShowHelp = `Show a flow and its nodes; of a stream, the nodes that have not ended and some that have. Each node stands after its parents, below the node at which its branch
begins; a node that joins branches continues at the level of that node.

  WAIT     waits for its parents
  READY    its task may run, or it waits for a time
  RUNNING  a worker runs its task
  PENDING  waits for a person: mscheduler flow resolve, or flow retry
  SUCCESS, ERROR, SKIPPED  the end of the node

WHY gives the reason for the status, or the last error of the task.

With -o dot, mermaid or svg the command prints only the graph: for Graphviz, for Mermaid, or as a
picture with statuses and times. --graph does the same; --graph text is the tree with statuses.`

// drawings are the values of --graph, and but for text of --output.
var drawings = map[string]func(*graph.Flow, []flow.NodeView) string{
	"text": language(flowdraw.Text), "dot": language(flowdraw.Dot), "mermaid": language(flowdraw.Mermaid), "svg": svgOf,
}

// language draws the graph in a language that knows only statuses.
func language(draw func([]graph.Vertex, []graph.NodeStatus) string) func(*graph.Flow, []flow.NodeView) string {
	return func(doc *graph.Flow, nodes []flow.NodeView) string { return draw(doc.Nodes, statusesOfNodes(nodes)) }
}

// svgOf draws the flow as a picture.
func svgOf(doc *graph.Flow, nodes []flow.NodeView) string {
	p := flowdraw.Picture{
		Title: human.FlowID(doc.ID) + " · " + string(doc.Status), Subtitle: "created " + dayTime(doc.CreatedAt) + " UTC, changed " + dayTime(doc.UpdatedAt) + " UTC",
		Nodes: doc.Nodes, Statuses: statusesOfNodes(nodes), Began: doc.CreatedAt,
	}
	if !doc.EndedAt.IsZero() {
		p.Subtitle += ", took " + human.Rough(doc.EndedAt.Sub(doc.CreatedAt))
	}
	for i := range nodes {
		p.Since, p.Reasons = append(p.Since, nodes[i].At), append(p.Reasons, whyOf(&nodes[i]))
	}
	return flowdraw.SVG(p)
}

func dayTime(t time.Time) string { return t.UTC().Format(time.DateTime) }

func (f *flowsCommand) show() *cobra.Command {
	var picture string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a flow and the states of its nodes", Args: one("the id of a flow"), Long: flowShowHelp,
		Annotations: map[string]string{moreOutputs: "dot mermaid svg"},
		Example:     "  mscheduler flow show order-7\n  mscheduler flow show order-7 -o svg > order-7.svg\n  mscheduler flow show acme/order-7 --graph dot | dot -Tsvg > order-7.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			draw := drawings[picture]
			switch drawn := drawings[f.flags.output]; {
			case draw == nil && cmd.Flags().Changed("graph"):
				return usage("--graph is %q; want text, dot, mermaid or svg", picture)
			case draw != nil && f.flags.output != "table":
				return usage("--graph prints no %s; omit --graph or --output", f.flags.output)
			case drawn != nil:
				draw = drawn
			}
			return f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
				doc, err := c.flows.Get(ctx, id)
				if err != nil {
					return err
				}
				views, err := c.flows.Nodes(ctx, id)
				if err != nil {
					return err
				}
				nodes := byPlace(doc, views)
				if draw != nil {
					return f.print(draw(doc, nodes))
				}
				return f.showFlow(ctx, c, doc, nodes)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&picture, "graph", "", "print only the graph: text, dot, mermaid or svg")
	_ = cmd.RegisterFlagCompletionFunc("graph", fixed("text", "dot", "mermaid", "svg"))
	return cmd
}

// nodeView is a node as JSON.
type nodeView struct {
	Node      string           `json:"node"`
	Type      string           `json:"type,omitempty"`
	Wait      string           `json:"wait,omitempty"`
	Ask       *graph.Ask       `json:"ask,omitempty"`
	TaskID    string           `json:"task_id,omitempty"`
	After     []string         `json:"after,omitempty"`
	Join      graph.Strategy   `json:"join,omitempty"`
	OnFailure graph.Policy     `json:"on_failure,omitempty"`
	Status    graph.NodeStatus `json:"status"`
	Since     string           `json:"since"`
	Reason    string           `json:"reason,omitempty"`
	Error     string           `json:"error_info,omitempty"`
	Life      int64            `json:"life"`
	Output    json.RawMessage  `json:"output,omitempty"`
}

// byPlace are the views of a flow's nodes, in the order of the nodes.
func byPlace(doc *graph.Flow, views []flow.NodeView) []flow.NodeView {
	known := make(map[string]flow.NodeView, len(views))
	for i := range views {
		known[views[i].Node.Node] = views[i]
	}
	out := make([]flow.NodeView, len(doc.Nodes))
	for i := range doc.Nodes {
		out[i] = known[doc.Nodes[i].ID]
	}
	return out
}

func statusesOfNodes(nodes []flow.NodeView) []graph.NodeStatus {
	out := make([]graph.NodeStatus, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Status
	}
	return out
}

func (f *flowsCommand) showFlow(ctx context.Context, c *connection, doc *graph.Flow, nodes []flow.NodeView) error {
	if f.asJSON() {
		out := struct {
			flowView
			Nodes []nodeView `json:"nodes"`
		}{flowViewOf(doc), make([]nodeView, len(nodes))}
		for i := range nodes {
			out.Nodes[i] = nodeViewOf(&doc.Nodes[i], &nodes[i])
		}
		return f.printJSON(out)
	}
	if err := f.print(flowFields(doc, c.at) + "\n" + nodeTable(doc, nodes, c.at)); err != nil || doc.Status == graph.StatusFinish {
		return err
	}
	return f.sayIdle(ctx, c)
}

func nodeViewOf(v *graph.Vertex, n *flow.NodeView) nodeView {
	out := nodeView{
		Node: v.ID, Type: v.Type, Wait: waits(v), Ask: v.Ask, TaskID: n.TaskID, After: n.After, Join: v.Join, OnFailure: v.OnFailure,
		Status: n.Status, Since: view.Time(n.At), Reason: n.Reason, Error: n.ErrorInfo, Life: n.Life,
	}
	if n.Output.Type != 0 {
		out.Output = codec.ValueJSON(n.Output)
	}
	return out
}

// waits is the time for which a node waits.
func waits(v *graph.Vertex) string {
	if span, is := strings.CutPrefix(flowdraw.Kind(v), "wait "); is && !flowspec.HasTask(v) {
		return span
	}
	return ""
}

func flowFields(doc *graph.Flow, now time.Time) string {
	var out fields
	out.add("flow", human.FlowID(doc.ID))
	out.add("description", doc.Description)
	out.add("creator", doc.Creator)
	if p := doc.Parent; p != nil {
		out.add("parent", human.FlowID(p.ID)+", node "+p.Node)
	}
	out.add("status", string(doc.Status))
	out.add("why", doc.Reason)
	out.add("created", human.When(doc.CreatedAt, now))
	out.add("changed", human.When(doc.UpdatedAt, now))
	if !doc.EndedAt.IsZero() {
		out.add("ended", human.When(doc.EndedAt, now)+", took "+human.Rough(doc.EndedAt.Sub(doc.CreatedAt)))
	}
	return out.String()
}

func nodeTable(doc *graph.Flow, nodes []flow.NodeView, now time.Time) string {
	t := newTable("NODE", "TYPE", "STATUS", "SINCE", "AFTER", "WHY")
	for _, l := range flowdraw.Tree(doc.Nodes) {
		n := &nodes[l.Node]
		t.add(l.Text, flowdraw.Kind(&doc.Nodes[l.Node]), string(n.Status), human.Relative(n.At, now), human.OneLine(strings.Join(n.After, ", "), 40), human.OneLine(whyOf(n), 100))
	}
	return t.flush()
}

// whyOf is the reason for the status of a node, or the last error of its task.
func whyOf(n *flow.NodeView) string {
	if n.Status == graph.NodeSuccess {
		return n.Reason
	}
	return cmp.Or(n.Reason, n.ErrorInfo)
}
