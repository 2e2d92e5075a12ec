package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/view"
)

const flowWatchHelp = `Watch a flow until it is FINISH, or until interrupted. The command first prints the flow and the nodes
that have started, then each change. With -o json each line is one JSON object.

It needs a change stream to print every change. Without one, or while other watchers hold all of the
fleet's few seats, it reads the flow once a second. Of a node that changes twice within that time, it
then prints the later status. ` + "`mscheduler task watch`" + ` prints the events of tasks.`

func (f *flowsCommand) watch() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Watch a flow until it has ended", Args: one("the id of a flow"), Long: flowWatchHelp,
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
			said := false
			for e, err := range c.flows.Watch(ctx, id) {
				if err != nil {
					return unless(ctx.Err() != nil, err)
				}
				view := flowEventOf(id, e)
				if err := f.printLine(view, view.line()); err != nil {
					return err
				}
				if said || e.Node != "" || e.Flow == graph.StatusFinish {
					continue
				}
				said = true
				if err := f.sayIdle(ctx, c); err != nil {
					return unless(ctx.Err() != nil, err)
				}
			}
			return nil
		}),
	}
}

// unless is the error, or none if a person interrupted the command, which has shown enough then.
func unless(interrupted bool, err error) error {
	if interrupted {
		return nil
	}
	return err
}

// flowEvent is a change of a flow, or of one of its nodes, as JSON.
type flowEvent struct {
	At     string `json:"at"`
	Flow   string `json:"flow"`
	Node   string `json:"node,omitempty"` // "" = the flow itself
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Life   int64  `json:"life,omitempty"`
}

func flowEventOf(id string, e flow.Event) *flowEvent {
	return &flowEvent{
		At: view.Time(e.At), Flow: id, Node: e.Node, Status: cmp.Or(string(e.Status), string(e.Flow)), Reason: e.Reason, Life: e.Life,
	}
}

// line is the event as a person reads it.
func (e *flowEvent) line() string {
	name := human.FlowID(e.Flow)
	if e.Node != "" {
		name += "  " + e.Node
	}
	line := fmt.Sprintf("%s  %-7s  %s", e.At, e.Status, name)
	if e.Reason != "" {
		line += "  " + human.OneLine(e.Reason, 200)
	}
	return line
}
