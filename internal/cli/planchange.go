package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
)

func (p *plansCommand) cancel() *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a plan", Args: one("the id of a plan"),
		Long: "Cancel a plan: no step follows, and the task of the step that waits or runs is cancelled. It has no\neffect on a plan that is over.",
		RunE: p.onPlan(func(ctx context.Context, c *connection, id string) error {
			before, err := c.plans.Get(ctx, id)
			if err != nil {
				return err
			}
			doc, err := c.plans.Cancel(ctx, id, remark)
			if err != nil {
				return err
			}
			if doc.Rev == before.Rev {
				p.sayUnchanged(human.PlanID(doc.ID), string(doc.Status))
			}
			return p.printPlan(ctx, c, doc)
		}),
	}
	cmd.Flags().StringVar(&remark, "remark", "", "reason, kept with the plan")
	return cmd
}

func (p *plansCommand) reset() *cobra.Command {
	return &cobra.Command{
		Use: "reset ID", Short: "Resume a plan in ERROR", Args: one("the id of a plan"),
		Long: "Resume a plan in ERROR: the step that failed starts again. Other plans are refused (exit\ncode 5), as is a plan whose document is broken.",
		RunE: p.onPlan(func(ctx context.Context, c *connection, id string) error {
			doc, err := c.plans.Reset(ctx, id)
			if err != nil {
				return err
			}
			return p.printPlan(ctx, c, doc)
		}),
	}
}
