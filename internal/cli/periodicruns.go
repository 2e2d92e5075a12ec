package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const runsHelp = `List the runs of a rule, or of all rules, the newest tick first.

  SCHEDULED         its task was sent and waits for a worker
  QUEUED            it waits for an earlier run to end
  RUNNING           a worker runs its task
  WAITING_CALLBACK  its task waits for the completion by an HTTP target
  SUCCESS, FAILED   the end of its task
  TIMEOUT           its task exceeded its time limit
  FAILED_TIMEOUT    no completion arrived in time
  CANCELED          a person, or a later tick, cancelled it
  SKIPPED           it did not run; WHY gives the reason. Consecutive ticks that were skipped for
                    the same reason share a line

LATE is the time from the tick to its start, and TOOK the time from there to its end. ATTEMPT counts
up after failures if the rule retries. ` + "`mscheduler periodic run ID`" + ` shows one run, with the request
and the response of an HTTP target.`

// runStatuses are the values of --status.
var runStatuses = []schedule.RunStatus{
	schedule.RunScheduled, schedule.RunQueued, schedule.RunRunning, schedule.RunWaiting, schedule.RunSuccess, schedule.RunFailed,
	schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled, schedule.RunSkipped,
}

type runsFlags struct {
	status   []string
	from, to string
	page     pageFlags
}

func (r *rulesCommand) runs() *cobra.Command {
	var f runsFlags
	cmd := &cobra.Command{
		Use: "runs [RULE]", Short: "List runs of one rule or of all rules", Args: oneOrNone("the name of a rule, or nothing for all rules"), Long: runsHelp,
		Example: "  mscheduler periodic runs nightly --status FAILED,TIMEOUT\n  mscheduler periodic runs --status RUNNING --tenant acme\n  mscheduler periodic runs nightly --from -1d -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := statusesOf(f.status, runStatuses)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			d, err := r.connectReady(ctx)
			if err != nil {
				return err
			}
			filter, err := f.filter(wanted, d.at)
			if err != nil {
				return err
			}
			rule, id := (*schedule.Rule)(nil), ""
			if len(args) == 0 {
				filter.Tenant = r.tenant
			} else {
				if rule, err = r.evenDeleted(ctx, d, args[0]); err != nil {
					return err
				}
				id = rule.ID
			}
			after, err := d.runAfter(ctx, f.page.after)
			if err != nil {
				return err
			}
			unread := store.Unread{}
			runs, next, err := pageOf(after, f.page.limit, unread, func(after *schedule.Run, limit int) ([]*schedule.Run, error) {
				return d.rules.Runs(ctx, id, filter, after, limit)
			}, func(run *schedule.Run) string { return run.ID })
			if err != nil {
				return err
			}
			return allBut(unread, r.printRuns(rule, runs, next, d.at))
		},
	}
	cmd.Flags().StringSliceVar(&f.status, "status", nil, "only runs with one of these statuses")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(names(runStatuses)...))
	cmd.Flags().StringVar(&f.from, "from", "", "only ticks at or after this time: 2026-01-31T09:00:00Z, or -2h")
	cmd.Flags().StringVar(&f.to, "to", "", "only ticks before this time")
	f.page.register(cmd, "runs")
	return cmd
}

func (f *runsFlags) filter(wanted []schedule.RunStatus, now time.Time) (out periodic.RunFilter, err error) {
	out.Statuses = wanted
	if out.From, err = parsePastIfAny("from", f.from, now, "no run"); err != nil {
		return out, err
	}
	out.To, err = parsePastIfAny("to", f.to, now, "every run")
	return out, err
}

// runAfter is the run that a page begins after; nil for none.
func (d *connection) runAfter(ctx context.Context, id string) (*schedule.Run, error) {
	if id == "" {
		return nil, nil
	}
	run, err := d.store.Runs.Get(ctx, id)
	if err == nil && run == nil {
		err = coded(ExitNotFound, "--after: there is no run %s", id)
	}
	return run, err
}

func (r *rulesCommand) printRuns(rule *schedule.Rule, runs []*schedule.Run, next string, now time.Time) error {
	noRun := "no run"
	if rule != nil && rule.Log == schedule.LogNone {
		noRun += "\nthe rule keeps no records (log: none); its tasks: mscheduler task list --type " + rule.Task.Type + tenantFlag(rule.Tenant)
	}
	heads := []string{"TICK", "STATUS", "LATE", "TOOK", "ATTEMPT", "WHY", "RUN"}
	all := rule == nil
	if all {
		heads, rule = append([]string{"RULE"}, heads...), &schedule.Rule{} // times in UTC
	}
	t := newTable(heads...)
	views := make([]view.Run, len(runs))
	for i, x := range runs {
		views[i] = view.RunOf(x)
		late, attempt := "", ""
		if !x.Manual && x.Status != schedule.RunSkipped && (x.Late > 0 || !x.StartedAt.IsZero()) {
			late = human.Rough(time.Duration(x.Late) * time.Millisecond)
		}
		if x.Status != schedule.RunSkipped {
			attempt = fmt.Sprint(x.Attempt)
		}
		cells := []string{inZone(x.Nominal, rule), string(x.Status), late, tookText(x, now), attempt, human.OneLine(whyText(x, rule), 80), x.ID}
		if all {
			cells = append([]string{ruleName(&schedule.Rule{Name: x.RuleName, Tenant: x.Tenant})}, cells...)
		}
		t.add(cells...)
	}
	return r.printPage("runs", views, next, t, noRun)
}

func tookText(r *schedule.Run, now time.Time) string {
	switch {
	case r.StartedAt.IsZero():
		return ""
	case r.EndedAt.IsZero() && r.Status != schedule.RunScheduled && r.Status != schedule.RunRunning && r.Status != schedule.RunWaiting:
		return "" // its task says how it ended, and no more
	case r.EndedAt.IsZero():
		return human.Rough(max(now.Sub(r.StartedAt), 0)) + " so far"
	default:
		return human.Rough(r.EndedAt.Sub(r.StartedAt))
	}
}

// whyText says what is remarkable about a run.
func whyText(r *schedule.Run, rule *schedule.Rule) string {
	var parts []string
	if r.Manual {
		parts = append(parts, "by hand")
	}
	if r.Reason != "" {
		parts = append(parts, skipText(r.Reason))
	}
	if r.Count > 1 {
		parts = append(parts, fmt.Sprintf("%d ticks until %s", r.Count, inZone(r.Last, rule)))
	}
	if r.Error != "" {
		parts = append(parts, r.Error)
	}
	return strings.Join(parts, "; ")
}

// skipText says a reason as a sentence.
func skipText(reason string) string {
	switch reason {
	case tickplan.SkipOverlap:
		return "overlap: an earlier run had not ended"
	case tickplan.SkipFailure:
		return "failure: the run before failed"
	case tickplan.SkipConcurrency:
		return "concurrency: the limit of running or waiting runs was reached"
	case tickplan.SkipMissed:
		return "missed: no process decided ticks at that time"
	case tickplan.SkipEdited:
		return "edited: it was undecided and late when the rule was edited"
	case tickplan.SkipCapacity:
		return "capacity: the rule had reached the greatest number of active runs"
	case tickplan.SkipPaused:
		return "paused: the rule was disabled"
	default: // of a later release
		return reason
	}
}
