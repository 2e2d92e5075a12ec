package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

func (f *flowsCommand) cancel() *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a flow", Args: one("the id of a flow"),
		Long: "Cancel a flow: running tasks are cancelled, waiting nodes are SKIPPED, and nodes that wait for a person\nare ERROR. The flow is FINISH when its last running task has ended. To cancel a flow that has ended\nchanges nothing. A stream is closed instead: its running tasks are cancelled, and what waits stays as it is\nuntil somebody opens the stream.",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
			before, err := c.flows.Get(ctx, id)
			if err != nil {
				return err
			}
			doc, err := c.flows.Cancel(ctx, id, remark)
			if err != nil {
				return err
			}
			if doc.Rev == before.Rev {
				f.sayUnchanged(human.FlowID(doc.ID), string(doc.Status))
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
	var set []string
	cmd := &cobra.Command{
		Use: "resolve ID NODE SUCCESS|ERROR", Short: "Resolve a PENDING node", Args: wants("the id of a flow, the id of a node, and SUCCESS or ERROR", cobra.ExactArgs(3)),
		Long: "Resolve a PENDING node as SUCCESS or ERROR. The nodes behind it continue as their joins require.\nIf the flow is FINISH, only the node changes, and nothing starts.\nNodes with another status are refused (exit code 5).\n\nA node with ask needs the values that it asks for, see `mscheduler flow explain`. They are its output.",
		Example: "  mscheduler flow resolve order-7 pay SUCCESS --remark 'paid by transfer'\n" +
			"  mscheduler flow resolve order-7 approve SUCCESS --set amount=12.50 --set send_by=post",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, args []string) error {
			doc, err := resolveNode(ctx, c, id, args[0], graph.NodeStatus(strings.ToUpper(args[1])), remark, set)
			if err != nil {
				return asSet(err, id, args[0])
			}
			return f.printFlow(ctx, c, doc)
		}),
	}
	cmd.Flags().StringVar(&remark, "remark", "", "what was done, kept with the node")
	cmd.Flags().StringArrayVar(&set, "set", nil, "value of a field that the node asks for, as FIELD=VALUE")
	return cmd
}

func resolveNode(ctx context.Context, c *connection, id, node string, status graph.NodeStatus, remark string, set []string) (*graph.Flow, error) {
	if len(set) == 0 {
		return c.flows.Resolve(ctx, id, node, status, remark)
	}
	if status != graph.NodeSuccess {
		return nil, usage("--set works with SUCCESS")
	}
	doc, err := c.flows.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var asked graph.Ask
	for i := range doc.Nodes {
		if v := &doc.Nodes[i]; v.ID == node && v.Ask != nil {
			asked = *v.Ask
		}
	}
	values, err := answersOf(&asked, set)
	if err != nil {
		return nil, err
	}
	return c.flows.Answer(ctx, id, node, values, remark)
}

// asSet names the fields of an answer as they are typed.
func asSet(err error, id, node string) error {
	if !errors.Is(err, model.ErrInvalid) {
		return err
	}
	return fmt.Errorf("flow %s, node %s: %w", id, node, input.Renamed(err, func(field string) string {
		if name, is := strings.CutPrefix(field, "values."); is {
			return "--set " + name
		}
		return field
	}))
}

// answersOf reads values of fields from a command line. What does not look like a value of the
// field's kind stays text, and is refused with the others.
func answersOf(a *graph.Ask, set []string) (map[string]any, error) {
	values := map[string]any{}
	for _, s := range set {
		name, text, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usage("--set is %q; want FIELD=VALUE", human.OneLine(s, 80))
		}
		if _, twice := values[name]; twice {
			return nil, usage("--set names %s twice", human.OneLine(name, 80))
		}
		values[name] = text
		i := slices.IndexFunc(a.Fields, func(f graph.Field) bool { return f.Name == name })
		if i < 0 {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			continue
		}
		_, isNumber := v.(float64)
		_, isBool := v.(bool)
		if kind := a.Fields[i].Kind; kind == "number" && isNumber || kind == "bool" && isBool {
			values[name] = json.RawMessage(text) // no digit is lost
		}
	}
	return values, nil
}

func (f *flowsCommand) explain() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID NODE", Short: "Explain the state of a node and what it waits for", Args: wants("the id of a flow and the id of a node", cobra.ExactArgs(2)),
		Long: "Explain the state of a node: what it waits for, and what lets it start. `mscheduler task explain`\nexplains the state of its task.",
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, args []string) error {
			doc, err := c.flows.Get(ctx, id)
			if err != nil {
				return err
			}
			out, err := view.ExplainNode(ctx, c.flows, c.store, doc, args[0])
			if err != nil {
				return err
			}
			text := out.Node + " of " + human.FlowID(id) + " is " + string(out.Status) + ".\n" + strings.Join(out.Explanation, "\n") + "\n"
			if out.TaskID != "" {
				text += "Its task: mscheduler task explain " + human.TaskArg(out.TaskID) + "\n"
			}
			return f.result(out, text)
		}),
	}
}
