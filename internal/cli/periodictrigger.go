package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func (r *rulesCommand) trigger() *cobra.Command {
	var o periodic.TriggerOptions
	cmd := &cobra.Command{
		Use: "trigger RULE", Short: "Start a run now", Args: one("the name of a rule"),
		Long: "Start a run now, even if the rule is disabled. The rule's concurrency limit applies: the run may\nwait, or be skipped (exit code 5). --force starts it regardless. A triggered run is not a tick, and\nthe overlap and failure policies do not apply to it.",
		RunE: r.onRule(func(ctx context.Context, d *connection, rule *schedule.Rule) error {
			run, err := d.rules.Trigger(ctx, rule.ID, o)
			if err != nil {
				return err
			}
			became, err := rulechange.WhatBecame(ctx, d.store, d.rules, run, o.Force)
			if err != nil {
				return err
			}
			if err := r.printTriggered(became); err != nil {
				return err
			}
			if became.Status == schedule.RunSkipped {
				r.refuses("", skipText(became.Reason))
				return quiet(ExitRefused) // the line says it all
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.Request, "request", "", "name of the request: repeating it does not start another run")
	cmd.Flags().BoolVar(&o.Force, "force", false, "ignore the concurrency limit, up to 1000 runs")
	return cmd
}

func (r *rulesCommand) printTriggered(t rulechange.Triggered) error {
	line := t.Run + "  " + string(t.Status)
	if t.Reason != "" {
		line += ", " + skipText(t.Reason)
	}
	if t.TaskID != "" {
		line += "  task " + human.TaskID(t.TaskID)
	}
	return r.result(t, line+"\n")
}
