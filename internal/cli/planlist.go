package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const planListHelp = `List plans, most recently changed first.

  RUNNING    its next step waits for its time, or runs
  ERROR      stopped by a fatal error or a plan error; resume with: mscheduler plan reset
  FINISH     its last step has ended, or its last time has passed
  CANCELLED  by a person

Plans that are over are in the history: --over lists those, as does --status FINISH or CANCELLED.

One page is printed. If more plans follow, the command prints the value of --after for the next page;
with -o json it is the field "next". A plan that changes meanwhile moves to the first page.

With --plan-id the list is sorted by plan_id. Without --tenant, the plans without a tenant are
searched. With --status or --station, too, a page may have fewer than --limit plans, or none, and a
next one.`

// planStatuses are the values of --status.
var planStatuses = []repeat.Status{repeat.StatusRunning, repeat.StatusError, repeat.StatusFinish, repeat.StatusCancelled}

func (p *plansCommand) list() *cobra.Command {
	var f plan.Filter
	var status, name string
	var page pageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List plans, most recently changed first", Args: noArgs, Long: planListHelp,
		Example: "  mscheduler plan list --status ERROR\n  mscheduler plan list --station report --over -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("status") {
				found, err := statusesOf([]string{status}, planStatuses)
				if err != nil {
					return err
				}
				if f.Status = found[0]; f.Over && !stepplan.Over(f.Status) {
					return usage("--over lists plans that are over; %s is none of them", f.Status)
				}
				f.Over = stepplan.Over(f.Status)
			}
			for _, name := range []struct{ flag, value string }{{"tenant", f.Tenant}, {"station", f.Station}} {
				if cmd.Flags().Changed(name.flag) {
					if err := input.Name("--"+name.flag, name.value); err != nil {
						return err
					}
				}
			}
			if name != "" {
				return p.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
					return p.listNamed(ctx, c, f, name, page)
				})(cmd, nil)
			}
			from, err := changedAfter(page.after, planID, func(id string, changed time.Time) *repeat.Plan {
				return &repeat.Plan{ID: id, UpdatedAt: changed}
			})
			if err != nil {
				return err
			}
			return p.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				unread := store.Unread{}
				plans, next, err := pageOf(from, page.limit, unread, func(after *repeat.Plan, limit int) ([]*repeat.Plan, error) {
					return c.plans.List(ctx, f, after, limit)
				}, func(doc *repeat.Plan) string { return changedPlace(doc.UpdatedAt, human.PlanID(doc.ID)) })
				if err != nil {
					return err
				}
				return allBut(unread, p.printPlans(ctx, c, plans, f.Status, next))
			})(cmd, nil)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only plans with this status")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(names(planStatuses)...))
	cmd.Flags().StringVar(&f.Tenant, "tenant", "", "only plans of this tenant, - for those without one (default: all; with --plan-id, those without one)")
	cmd.Flags().StringVar(&f.Station, "station", "", "only plans of this station; defaults to all")
	cmd.Flags().StringVar(&name, "plan-id", "", "only plans whose plan_id begins with this text")
	_ = cmd.RegisterFlagCompletionFunc("plan-id", cobra.NoFileCompletions)
	cmd.Flags().BoolVar(&f.Over, "over", false, "the plans that are over, in place of the others")
	page.register(cmd, "plans")
	return cmd
}

// listNamed prints a page of the plans of a tenant ("" = those without one) whose plan_id begins so.
func (p *plansCommand) listNamed(ctx context.Context, c *connection, f plan.Filter, name string, page pageFlags) error {
	plans, unread, next, err := namedPage(page, "plan", planID, func(after string, limit int) ([]*repeat.Plan, []store.Unreadable, error) {
		return c.store.Plans.Named(ctx, f.Tenant, f.Over, name, after, limit)
	}, func(doc *repeat.Plan) string { return doc.ID }, func(doc *repeat.Plan) bool {
		return (f.Status == "" || doc.Status == f.Status) && (f.Station == "" || doc.Station == f.Station)
	})
	if err != nil {
		return err
	}
	return allBut(unread, p.printPlans(ctx, c, plans, f.Status, human.PlanID(next)))
}

func (p *plansCommand) printPlans(ctx context.Context, c *connection, plans []*repeat.Plan, status repeat.Status, next string) error {
	views := make([]json.RawMessage, len(plans))
	t := newTable("PLAN", "STATION", "REPEATS", "STATUS", "STEP", "DUE", "LAST", "SUCCEEDED", "CHANGED", "WHY")
	runs := false
	for i, doc := range plans {
		var err error
		if views[i], err = planJSON(doc); err != nil {
			return err
		}
		step, due := "", ""
		if doc.Step > 0 && doc.Status == repeat.StatusRunning && !doc.Done {
			step, due = fmt.Sprint(doc.Step), human.Relative(doc.PlanTime, c.at)
		}
		t.add(human.PlanID(doc.ID), doc.Station, repeats(doc), string(doc.Status), step, due, doc.LastState, fmt.Sprint(doc.RealRepet),
			human.Relative(doc.UpdatedAt, c.at), human.OneLine(doc.Reason, 80))
		runs = runs || doc.Status == repeat.StatusRunning
	}
	none := "no plans; to publish one: mscheduler plan publish -f FILE"
	if status != "" {
		none = "no plan is " + string(status)
	}
	if err := p.printPage("plans", views, next, t, none); err != nil {
		return err
	}
	if runs {
		return p.sayIdle(ctx, c)
	}
	return nil
}
