package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
)

const runsHelp = `List what became of a rule's ticks, the newest first.

  SCHEDULED         its task was sent and waits for a worker
  QUEUED            it waits for an earlier run to end
  RUNNING           a worker runs its task
  WAITING_CALLBACK  its task waits to be ended from outside
  SUCCESS, FAILED   how its task ended
  TIMEOUT           its task took too long
  FAILED_TIMEOUT    nobody ended it from outside in time
  CANCELED          a person, or a later tick, cancelled it
  SKIPPED           it did not run; WHY says the reason. Ticks in a row that were skipped for one
                    reason share a line

LATE is the time from the tick to its start, TOOK from there to its end, ATTEMPT counts up after
failures where the rule says so.`

// runStatuses are those that --status takes.
var runStatuses = []model.RunStatus{
	model.RunScheduled, model.RunQueued, model.RunRunning, model.RunWaiting, model.RunSuccess, model.RunFailed,
	model.RunTimeout, model.RunFailedTimeout, model.RunCanceled, model.RunSkipped,
}

type runsFlags struct {
	status   []string
	from, to string
	limit    int
	after    string
}

func (r *rulesCommand) runs() *cobra.Command {
	var f runsFlags
	cmd := &cobra.Command{
		Use: "runs RULE", Short: "List what became of a rule's ticks", Args: one("the name of a rule"), Long: runsHelp,
		Example: "  mscheduler periodic runs nightly --status FAILED,TIMEOUT\n  mscheduler periodic runs nightly --from -1d -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := f.statuses()
			if err != nil {
				return err
			}
			if f.limit < 1 || f.limit > 1000 {
				return usage("--limit is %d; want 1 to 1000", f.limit)
			}
			ctx := cmd.Context()
			d, err := r.open(ctx, true)
			if err != nil {
				return err
			}
			rule, err := r.evenDeleted(ctx, d, args[0])
			if err != nil {
				return err
			}
			filter, err := f.filter(wanted, d.at)
			if err != nil {
				return err
			}
			after, err := d.runAfter(ctx, f.after)
			if err != nil {
				return err
			}
			runs, next, err := d.runsPage(ctx, rule.ID, filter, wanted, after, f.limit)
			if err != nil {
				return err
			}
			return r.printRuns(rule, runs, next, d.at)
		},
	}
	names := make([]string, len(runStatuses))
	for i, s := range runStatuses {
		names[i] = string(s)
	}
	cmd.Flags().StringSliceVar(&f.status, "status", nil, "only runs in one of these statuses")
	_ = cmd.RegisterFlagCompletionFunc("status", fixed(names...))
	cmd.Flags().StringVar(&f.from, "from", "", "only ticks from this time on: 2026-01-31T09:00:00Z, or -2h")
	cmd.Flags().StringVar(&f.to, "to", "", "only ticks before this time")
	cmd.Flags().IntVar(&f.limit, "limit", 50, "how many lines a page has")
	cmd.Flags().StringVar(&f.after, "after", "", "begin after this run: the next page")
	return cmd
}

func (f *runsFlags) statuses() (out []model.RunStatus, err error) {
	for _, name := range f.status {
		s := model.RunStatus(strings.ToUpper(name))
		if !slices.Contains(runStatuses, s) {
			return nil, usage("--status is %q; want one of %v", name, runStatuses)
		}
		out = append(out, s)
	}
	return out, nil
}

// filter is what the database is asked for. There a run is SCHEDULED until its end is told:
// what became of it meanwhile is read from its task.
func (f *runsFlags) filter(wanted []model.RunStatus, now time.Time) (out periodic.RunFilter, err error) {
	for _, s := range wanted {
		out.Statuses = append(out.Statuses, s)
		if s != model.RunQueued && s != model.RunSkipped && !slices.Contains(out.Statuses, model.RunScheduled) {
			out.Statuses = append(out.Statuses, model.RunScheduled)
		}
	}
	if f.from != "" {
		if out.From, err = parseTime("from", f.from, now); err != nil {
			return out, err
		}
	}
	if f.to != "" {
		out.To, err = parseTime("to", f.to, now)
	}
	return out, err
}

// runAfter is the run that a page begins after; nil for none.
func (d *ruleDB) runAfter(ctx context.Context, id string) (*model.Run, error) {
	if id == "" {
		return nil, nil
	}
	run, err := d.store.Run(ctx, id)
	if err == nil && run == nil {
		err = coded(ExitNotFound, "there is no run %s to begin after", id)
	}
	return run, err
}

// runsPage reads a page of those in the wanted statuses (none = all), and the id of the last
// if there are more.
func (d *ruleDB) runsPage(ctx context.Context, rule string, f periodic.RunFilter, wanted []model.RunStatus, after *model.Run, limit int) (out []*model.Run, next string, err error) {
	for {
		page, err := d.rules.Runs(ctx, rule, f, after, min(limit+1, 1000))
		if err != nil {
			return nil, "", err
		}
		for _, run := range page {
			if len(wanted) > 0 && !slices.Contains(wanted, run.Status) {
				continue
			}
			if len(out) == limit {
				return out, out[limit-1].ID, nil
			}
			out = append(out, run)
		}
		if len(page) < min(limit+1, 1000) {
			return out, "", nil
		}
		after = page[len(page)-1]
	}
}

// runView is a run as JSON.
type runView struct {
	ID      string           `json:"id"`
	Rule    string           `json:"rule"`
	Nominal string           `json:"nominal"`
	Last    string           `json:"last_nominal,omitempty"` // of skipped ticks that share the record
	Ticks   int64            `json:"ticks"`
	Status  model.RunStatus  `json:"status"`
	Reason  model.SkipReason `json:"reason,omitempty"`
	Error   string           `json:"error_info,omitempty"`
	Attempt int              `json:"attempt,omitempty"`
	Manual  bool             `json:"manual,omitempty"`
	TaskID  string           `json:"task_id,omitempty"`
	Late    int64            `json:"late_ms"`
	Started string           `json:"started_at,omitempty"`
	Ended   string           `json:"ended_at,omitempty"`
}

func (r *rulesCommand) printRuns(rule *model.Rule, runs []*model.Run, next string, now time.Time) error {
	if r.asJSON() {
		views := make([]runView, len(runs))
		for i, x := range runs {
			views[i] = runView{
				x.ID, x.RuleName, jsonTime(x.Nominal), jsonTime(x.Last), max(x.Count, 1), x.Status, x.Reason, x.Error, x.Attempt, x.Manual,
				x.TaskID, x.Late, jsonTime(x.StartedAt), jsonTime(x.EndedAt),
			}
		}
		out := map[string]any{"runs": views}
		if next != "" {
			out["next"] = next
		}
		return r.printJSON(out)
	}
	if len(runs) == 0 {
		r.say("no run")
		if rule.Log == model.LogNone {
			r.say("the rule keeps no records (log: none); its tasks: mscheduler task list --type %s%s", rule.Task.Type, tenantFlag(rule.Tenant))
		}
		return nil
	}
	t := newTable("TICK", "STATUS", "LATE", "TOOK", "ATTEMPT", "WHY", "RUN")
	for _, x := range runs {
		late, attempt := "", ""
		if !x.Manual && x.Status != model.RunSkipped && (x.Late > 0 || !x.StartedAt.IsZero()) {
			late = human.Rough(time.Duration(x.Late) * time.Millisecond)
		}
		if x.Status != model.RunSkipped {
			attempt = fmt.Sprint(x.Attempt)
		}
		t.add(inZone(x.Nominal, rule), string(x.Status), late, tookText(x, now), attempt, whyText(x, rule), x.ID)
	}
	if err := r.print(t.String()); err != nil {
		return err
	}
	if next != "" {
		r.say("there are more; the next page: --after '%s'", next)
	}
	return nil
}

func tookText(r *model.Run, now time.Time) string {
	switch {
	case r.StartedAt.IsZero():
		return ""
	case r.EndedAt.IsZero() && r.Status != model.RunScheduled && r.Status != model.RunRunning && r.Status != model.RunWaiting:
		return "" // its task says how it ended, and no more
	case r.EndedAt.IsZero():
		return human.Rough(max(now.Sub(r.StartedAt), 0)) + " so far"
	default:
		return human.Rough(r.EndedAt.Sub(r.StartedAt))
	}
}

// whyText says what is remarkable about a run.
func whyText(r *model.Run, rule *model.Rule) string {
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
	return human.OneLine(strings.Join(parts, "; "), 80)
}

// skipText says a reason as a sentence.
func skipText(reason model.SkipReason) string {
	switch reason {
	case model.SkipOverlap:
		return "overlap: an earlier run had not ended"
	case model.SkipFailure:
		return "failure: the run before failed"
	case model.SkipConcurrency:
		return "concurrency: as many as allowed ran, or waited"
	case model.SkipMissed:
		return "missed: no engine ran then"
	case model.SkipEdited:
		return "edited: nobody had decided it in time when the rule was edited"
	case model.SkipCapacity:
		return "capacity: as many runs as one rule holds were active"
	case model.SkipPaused:
		return "paused: the rule was disabled"
	default: // of a later release
		return string(reason)
	}
}
