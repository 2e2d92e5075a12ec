package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/human"
)

const flowWatchHelp = `Watch a flow until it is FINISH, or until interrupted. The command first prints the flow and the nodes
that have started, then each change. With -o json each line is one JSON object.

It reads the flow once a second. Of a node that changes twice within that time, it prints the later
status. ` + "`mscheduler task watch`" + ` prints every event of tasks.`

func (f *flowsCommand) watch() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Watch a flow until it has ended", Args: one("the id of a flow"), Long: flowWatchHelp,
		RunE: f.onFlow(func(ctx context.Context, c *connection, id string, _ []string) error {
			var before *graph.Flow
			for ctx.Err() == nil {
				doc, err := c.flows.Get(ctx, id)
				if err != nil {
					return unless(ctx.Err() != nil, err)
				}
				for _, e := range flowChanges(before, doc) {
					if err := f.printLine(e, e.line()); err != nil {
						return err
					}
				}
				if doc.Status == graph.StatusFinish {
					return nil
				}
				if before == nil {
					if err := f.sayIdle(ctx, c); err != nil {
						return err
					}
				}
				before = doc
				clock.Pause(ctx, time.Second)
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

// flowEvent is a change of a flow, or of one of its nodes.
type flowEvent struct {
	at     time.Time
	At     string `json:"at"`
	Flow   string `json:"flow"`
	Node   string `json:"node,omitempty"` // "" = the flow itself
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Life   int64  `json:"life,omitempty"`
}

// flowChanges is what has changed in a flow, in the order of time; before is nil at first.
func flowChanges(before, doc *graph.Flow) (out []flowEvent) {
	if before != nil && before.Rev == doc.Rev {
		return nil
	}
	for i := range doc.States {
		is, was := &doc.States[i], &graph.State{Status: graph.NodeWait}
		if before != nil {
			was = &before.States[i]
		}
		if is.Status != was.Status || is.Life != was.Life || is.Reason != was.Reason {
			out = append(out, flowEvent{at: is.At, Flow: doc.ID, Node: doc.Nodes[i].ID, Status: string(is.Status), Reason: is.Reason, Life: is.Life})
		}
	}
	slices.SortStableFunc(out, func(a, b flowEvent) int { return a.at.Compare(b.at) })
	if before == nil || before.Status != doc.Status || before.Reason != doc.Reason {
		out = append(out, flowEvent{at: doc.UpdatedAt, Flow: doc.ID, Status: string(doc.Status), Reason: doc.Reason})
	}
	for i := range out {
		out[i].At = jsonTime(out[i].at)
	}
	return out
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
