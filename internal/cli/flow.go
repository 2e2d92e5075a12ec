package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

const flowHelp = `A flow is a graph of tasks with one first and one last node. A node starts when its parents have
ended as its join requires. A stream is a flow that does not end: a chain to which any process
appends nodes, which run one at a time.

Flows need an engine: ` + "`mscheduler work --flow`" + ` or ` + "`mscheduler dev`" + `. A flow's id is its key, or
tenant/key; that of a stream is scene/group.`

func (a *app) flowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "flow", Short: "Start and manage graphs of tasks", Long: flowHelp, Args: noArgs, RunE: group}
	f := &flowsCommand{a}
	cmd.AddCommand(f.validate(), f.start(), f.list(), f.show(), f.watch(), f.explain(), f.resolve(), f.retry(), f.cancel(), f.append(), f.lines(), f.open())
	return cmd
}

// flowsCommand is what the commands about flows share.
type flowsCommand struct{ *app }

// flowID is the id that an argument names: tenant/key, or the key of a flow without a tenant.
func flowID(arg string) (string, error) {
	if !strings.Contains(arg, "/") {
		arg = model.NoTenant + "/" + arg
	}
	tenant, key, _ := strings.Cut(arg, "/")
	if (input.Name("tenant", tenant) != nil || input.Key(key) != nil) && flowspec.CheckStream(tenant, key) != nil {
		return "", usage("flow id is %q; want key or tenant/key, with - for no tenant, or scene/group of a stream", human.OneLine(arg, 120))
	}
	return arg, nil
}

// onFlow is the action of a command on the flow that its first argument names.
func (f *flowsCommand) onFlow(do func(ctx context.Context, c *connection, id string, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := flowID(args[0])
		if err != nil {
			return err
		}
		c, err := f.connectReady(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, id, args[1:])
	}
}

// sayIdle warns when no process runs an engine, so that a flow does not go on.
func (f *flowsCommand) sayIdle(ctx context.Context, c *connection) error {
	served, err := c.served(ctx, flowplan.EngineType, "")
	if err == nil && !served {
		f.say("no flow engine is running, so no flow continues; start one with: mscheduler work --flow")
	}
	return err
}

// flowLine is what became of a flow, for people.
func flowLine(f *graph.Flow) string {
	line := human.FlowID(f.ID) + "  " + string(f.Status)
	if f.Reason != "" {
		line += "  " + human.OneLine(f.Reason, 200)
	}
	return line
}

// printFlow prints a flow that a command has changed, and warns when nothing carries that on.
func (f *flowsCommand) printFlow(ctx context.Context, c *connection, doc *graph.Flow) error {
	if err := f.result(view.FlowOf(doc), flowLine(doc)+"\n"); err != nil || doc.Status == graph.StatusFinish {
		return err
	}
	return f.sayIdle(ctx, c)
}
