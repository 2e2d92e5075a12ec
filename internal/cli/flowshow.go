package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowdraw"
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
picture with statuses and times. -o gantt is a picture (SVG) of when each node waited, ran and ended.
--graph does the same; --graph text is the tree with statuses.`

func (f *flowsCommand) show() *cobra.Command {
	var picture string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a flow and the states of its nodes", Args: one("the id of a flow"), Long: flowShowHelp,
		Annotations: map[string]string{moreOutputs: drawn + " " + view.Gantt},
		Example:     "  mscheduler flow show order-7\n  mscheduler flow show order-7 -o svg > order-7.svg\n  mscheduler flow show acme/order-7 --graph dot | dot -Tsvg > order-7.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := f.drawing(cmd, picture)
			if err != nil {
				return err
			}
			return f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
				doc, err := c.flows.Get(ctx, id)
				if err != nil {
					return err
				}
				read := view.NodeStates
				if f.asJSON() {
					read = view.NodesFrom
				}
				var nodes []view.Node
				for len(nodes) < len(doc.Nodes) {
					some, err := read(ctx, c.store, doc, len(nodes), len(doc.Nodes))
					if err != nil {
						return err
					}
					nodes = append(nodes, some...)
				}
				if format != "" {
					return f.print(view.Drawings[format](doc, nodes, c.at))
				}
				return f.showFlow(ctx, c, doc, nodes)
			})(cmd, args)
		},
	}
	addDrawing(cmd, &picture)
	return cmd
}

// drawn are the values of --output that print the graph of a flow.
const drawn = "dot mermaid svg"

// addDrawing adds the flag that prints only the graph.
func addDrawing(cmd *cobra.Command, picture *string) {
	of := append([]string{"text"}, strings.Fields(cmd.Annotations[moreOutputs])...)
	cmd.Flags().StringVar(picture, "graph", "", "print only the graph: "+strings.Join(of, ", "))
	_ = cmd.RegisterFlagCompletionFunc("graph", fixed(of...))
}

// drawing is the drawing that --graph or --output asks for, one of [view.Drawings]; "" = none.
func (f *flowsCommand) drawing(cmd *cobra.Command, picture string) (string, error) {
	switch allowed := append([]string{"text"}, strings.Fields(cmd.Annotations[moreOutputs])...); {
	case cmd.Flags().Changed("graph") && !slices.Contains(allowed, picture):
		return "", usage("--graph is %q; want %s", picture, strings.Join(allowed, ", "))
	case picture != "" && f.flags.output != "table":
		return "", usage("--graph prints no %s; omit --graph or --output", f.flags.output)
	case view.Drawings[f.flags.output] != nil:
		return f.flags.output, nil
	default:
		return picture, nil
	}
}

func (f *flowsCommand) showFlow(ctx context.Context, c *connection, doc *graph.Flow, nodes []view.Node) error {
	if f.asJSON() {
		out := struct {
			view.Flow
			Nodes []view.Node `json:"nodes"`
		}{view.FlowOf(doc), nodes}
		return f.printJSON(out)
	}
	if err := f.print(flowFields(doc, c.at) + "\n" + nodeTable(doc, nodes, c.at)); err != nil || doc.Status == graph.StatusFinish {
		return err
	}
	return f.sayIdle(ctx, c)
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

func nodeTable(doc *graph.Flow, nodes []view.Node, now time.Time) string {
	t := newTable("NODE", "TYPE", "STATUS", "SINCE", "TOOK", "AFTER", "WHY")
	for _, l := range flowdraw.Tree(doc.Nodes) {
		n := &nodes[l.Node]
		t.add(l.Text, flowdraw.Kind(&doc.Nodes[l.Node]), string(n.Status), human.Relative(n.At, now), tookOf(n, now), human.OneLine(strings.Join(n.After, ", "), 40), human.OneLine(n.Why(), 100))
	}
	return t.flush()
}

// tookOf is how long a node has been at work; "" = it has not started.
func tookOf(n *view.Node, now time.Time) string {
	if n.StartedAt.IsZero() {
		return ""
	}
	return human.Rough(n.Took(now))
}
