package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

const flowListHelp = `List flows, most recently changed first.

  RUNNING  a node may run
  PENDING  nothing runs, and a node waits for a person; see: mscheduler flow show
  FINISH   over; each node has its own end

ENDED counts the nodes that ended, PENDING those that wait for a person.

One page is printed. If more flows follow, the command prints the value of --after for the next
page; with -o json it is the field "next". A flow that changes meanwhile moves to the first page.

With --key the list is sorted by key. Without --tenant, the flows without a tenant are searched.
With --status, too, a page may have fewer than --limit flows, or none, and a next one.`

// flowStatuses are the values of --status.
var flowStatuses = []graph.Status{graph.StatusRunning, graph.StatusPending, graph.StatusFinish}

func (f *flowsCommand) list() *cobra.Command {
	var status, tenant, key string
	var page pageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List flows, most recently changed first", Args: noArgs, Long: flowListHelp,
		Example: "  mscheduler flow list --status PENDING\n  mscheduler flow list --tenant acme --limit 1000 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted graph.Status
			if cmd.Flags().Changed("status") {
				found, err := statusesOf([]string{status}, flowStatuses)
				if err != nil {
					return err
				}
				wanted = found[0]
			}
			if cmd.Flags().Changed("tenant") {
				if err := input.Name("--tenant", tenant); err != nil {
					return err
				}
			}
			if key != "" {
				return f.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
					return f.listNamed(ctx, c, tenant, key, wanted, page)
				})(cmd, nil)
			}
			from, err := changedAfter(page.after, flowID, func(id string, changed time.Time) *graph.Flow {
				return &graph.Flow{ID: id, UpdatedAt: changed}
			})
			if err != nil {
				return err
			}
			return f.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				unread := store.Unread{}
				flows, next, err := pageOf(from, page.limit, unread, func(after *graph.Flow, limit int) ([]*graph.Flow, error) {
					return c.flows.List(ctx, tenant, wanted, after, limit)
				}, func(doc *graph.Flow) string { return changedPlace(doc.UpdatedAt, human.FlowID(doc.ID)) })
				if err != nil {
					return err
				}
				return allBut(unread, f.printFlows(ctx, c, flows, wanted, next))
			})(cmd, nil)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only flows with this status")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(names(flowStatuses)...))
	cmd.Flags().StringVar(&tenant, "tenant", "", "only flows of this tenant, - for those without one (default: all; with --key, those without one)")
	cmd.Flags().StringVar(&key, "key", "", "only flows whose key begins with this text")
	_ = cmd.RegisterFlagCompletionFunc("key", cobra.NoFileCompletions)
	page.register(cmd, "flows")
	return cmd
}

// listNamed prints a page of the flows of a tenant ("" = those without one) whose keys begin so.
func (f *flowsCommand) listNamed(ctx context.Context, c *connection, tenant, key string, status graph.Status, page pageFlags) error {
	flows, unread, next, err := namedPage(page, "flow", flowID, func(after string, limit int) ([]*graph.Flow, []store.Unreadable, error) {
		return c.store.Flows.Named(ctx, tenant, key, after, limit)
	}, func(doc *graph.Flow) string { return doc.ID }, func(doc *graph.Flow) bool { return status == "" || doc.Status == status })
	if err != nil {
		return err
	}
	return allBut(unread, f.printFlows(ctx, c, flows, status, human.FlowID(next)))
}

func (f *flowsCommand) printFlows(ctx context.Context, c *connection, flows []*graph.Flow, status graph.Status, next string) error {
	views := make([]view.Flow, len(flows))
	t := newTable("FLOW", "STATUS", "ENDED", "PENDING", "CREATED", "CHANGED", "WHY")
	open := false
	for i, doc := range flows {
		v := view.FlowOf(doc)
		views[i] = v
		ended := 0
		for status, n := range v.Counts {
			if flowplan.Final(status) {
				ended += n
			}
		}
		pending := ""
		if n := v.Counts[graph.NodePending]; n > 0 {
			pending = fmt.Sprint(n)
		}
		t.add(human.FlowID(doc.ID), string(doc.Status), fmt.Sprintf("%d of %d", ended, len(doc.States)), pending,
			human.Relative(doc.CreatedAt, c.at), human.Relative(doc.UpdatedAt, c.at), human.OneLine(doc.Reason, 80))
		open = open || doc.Status == graph.StatusRunning
	}
	none := "no flows; to start one: mscheduler flow start -f FILE"
	if status != "" {
		none = "no flow is " + string(status)
	}
	if err := f.printPage("flows", views, next, t, none); err != nil {
		return err
	}
	if open {
		return f.sayIdle(ctx, c)
	}
	return nil
}
