package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
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
			became, err := d.triggered(ctx, rule, run, o.Force)
			if err != nil {
				return err
			}
			if err := r.printTriggered(became); err != nil {
				return err
			}
			if became.Status == schedule.RunSkipped {
				return quiet(ExitRefused) // the line says it all
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.Request, "request", "", "name of the request: repeating it does not start another run")
	cmd.Flags().BoolVar(&o.Force, "force", false, "ignore the concurrency limit, up to 1000 runs")
	return cmd
}

// triggeredRun is what became of a run that was just decided, as JSON.
type triggeredRun struct {
	Run    string              `json:"run"`
	Status schedule.RunStatus  `json:"status"`
	Reason schedule.SkipReason `json:"reason,omitempty"`
	TaskID string              `json:"task_id"`
}

func (r *rulesCommand) printTriggered(t triggeredRun) error {
	line := t.Run + "  " + string(t.Status)
	if t.Reason != "" {
		line += ", " + skipText(t.Reason)
	}
	if t.TaskID != "" {
		line += "  task " + human.TaskID(t.TaskID)
	}
	return r.result(t, line+"\n")
}

// triggered tells from the run's record what became of it, or, where the rule keeps none, from
// the rule and the run's task: what has left no trace there was skipped.
func (d *connection) triggered(ctx context.Context, before *schedule.Rule, run string, forced bool) (triggeredRun, error) {
	out := triggeredRun{Run: run}
	rec, err := d.store.Runs.Get(ctx, run)
	if err != nil {
		return out, err
	}
	if rec != nil {
		out.Status, out.Reason, out.TaskID = rec.Status, rec.Reason, rec.TaskID
		return out, nil
	}
	rule, err := d.store.Rules.Get(ctx, before.ID)
	if err != nil {
		return out, err
	}
	for _, x := range rule.Active {
		if x.ID == run {
			out.Status, out.TaskID = schedule.RunScheduled, model.TaskID(rule.Tenant, x.TaskType, x.ID)
			return out, nil
		}
	}
	for _, x := range rule.Queued {
		if x.ID == run {
			out.Status = schedule.RunQueued
			return out, nil
		}
	}
	switch ended, err := d.rules.GetRun(ctx, run); {
	case err == nil:
		out.Status, out.Reason, out.TaskID = ended.Status, ended.Reason, ended.TaskID
		return out, nil
	case !errors.Is(err, periodic.ErrNoRun):
		return out, err
	}
	out.Status, out.Reason = schedule.RunSkipped, tickplan.SkipConcurrency
	if forced || rule.MaxConcurrency == 0 || rule.Concurrency == schedule.ConcurrencyParallel {
		out.Reason = tickplan.SkipCapacity // no other limit holds
	}
	return out, nil
}
