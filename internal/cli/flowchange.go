package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/model"
)

func (f *flowsCommand) cancel() *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a flow", Args: one("the id of a flow"),
		Long: "Cancel a flow: running tasks are cancelled, and waiting nodes are SKIPPED. The flow is FINISH when\nits last running task has ended. To cancel a flow that has ended changes nothing.",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
			doc, err := c.flows.Cancel(ctx, id, remark)
			if err != nil {
				return err
			}
			return f.printFlow(ctx, c, doc)
		}),
	}
	cmd.Flags().StringVar(&remark, "remark", "", "reason, kept with the flow")
	return cmd
}

func (f *flowsCommand) retry() *cobra.Command {
	return &cobra.Command{
		Use: "retry ID NODE", Short: "Run a flow again from a node", Args: wants("the id of a flow and the id of a node", cobra.ExactArgs(2)),
		Long: "Run a flow again from a node: its task and the tasks of all nodes behind it begin new lives. The\nnode runs at once, the others wait for their parents. It is refused (exit code 5) while one of these\nnodes runs.",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, args []string) error {
			doc, err := c.flows.RetryFrom(ctx, id, args[0])
			if err != nil {
				return err
			}
			return f.printFlow(ctx, c, doc)
		}),
	}
}

func (f *flowsCommand) resolve() *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "resolve ID NODE SUCCESS|ERROR", Short: "Resolve a PENDING node", Args: wants("the id of a flow, the id of a node, and SUCCESS or ERROR", cobra.ExactArgs(3)),
		Long:    "Resolve a PENDING node as SUCCESS or ERROR. The nodes behind it continue as their joins require.\nNodes with another status are refused (exit code 5).",
		Example: "  mscheduler flow resolve order-7 pay SUCCESS --remark 'paid by transfer'",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, args []string) error {
			doc, err := c.flows.Resolve(ctx, id, args[0], graph.NodeStatus(strings.ToUpper(args[1])), remark)
			if err != nil {
				return err
			}
			return f.printFlow(ctx, c, doc)
		}),
	}
	cmd.Flags().StringVar(&remark, "remark", "", "what was done, kept with the node")
	return cmd
}

// nodeExplained is an explanation as JSON.
type nodeExplained struct {
	Flow        string           `json:"flow"`
	Node        string           `json:"node"`
	Status      graph.NodeStatus `json:"status"`
	TaskID      string           `json:"task_id"`
	Explanation []string         `json:"explanation"`
}

func (f *flowsCommand) explain() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID NODE", Short: "Explain the state of a node and what it waits for", Args: wants("the id of a flow and the id of a node", cobra.ExactArgs(2)),
		Long: "Explain the state of a node: what it waits for, and what lets it start. `mscheduler task explain`\nexplains the state of its task.",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, args []string) error {
			sentences, err := c.flows.Explain(ctx, id, args[0])
			if err != nil {
				return err
			}
			doc, err := c.flows.Get(ctx, id)
			if err != nil {
				return err
			}
			out := nodeExplained{Flow: id, Node: args[0], Explanation: sentences}
			for i := range doc.Nodes {
				if v := &doc.Nodes[i]; v.ID == args[0] {
					out.Status, out.TaskID = doc.States[i].Status, model.TaskID(doc.Tenant, v.Type, flowspec.TaskKey(doc.Key, v.ID))
				}
			}
			text := out.Node + " of " + human.FlowID(id) + " is " + string(out.Status) + ".\n" + strings.Join(sentences, "\n") + "\n"
			return f.result(out, text+"Its task: mscheduler task explain "+human.TaskArg(out.TaskID)+"\n")
		}),
	}
}
