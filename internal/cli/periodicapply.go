package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rulechange"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const ruleApplyHelp = `Store the periodic rules that a YAML or JSON file describes.

The file has one rule per document, or lists of rules. A rule is identified by its tenant and
name. It is created, or changed to what the file describes: fields that the file leaves out are
removed, except enabled. Rules that are not in the file stay. All of the file is checked before
anything is written: unknown fields first, and when there are none, the values.

  name: nightly
  enabled: true                 # without it a new rule does not fire, and an old one stays as it is
  cron: 0 30 2 * * *            # second minute hour day month weekday; five fields have
                                # second 0; @daily and the like; @every 90s. Given day and
                                # weekday, one must match; both, if one begins with * (also */2)
  timezone: Europe/Berlin       # defaults to UTC
  type: report                  # type of the task that each tick sends, and its args;
  args: {to: ann}               # or instead of both http: {url, method, headers, body, timeout,
                                # expect, mode, callback_timeout, callback_method}: a call,
                                # which decides the run
  overlap: SKIP                 # while an earlier run goes on: ALLOW, SKIP, CANCEL_PREV, PARALLEL
  on_failure: RUN_NEW           # after a failed run: RUN_NEW, SKIP (once), RETRY
  max_concurrency: 1            # runs at once; defaults to 1000, beyond which ticks are
                                # skipped (capacity) whatever the policies are
  concurrency: QUEUE            # at that limit: QUEUE, SKIP, PARALLEL
  queue_limit: 10               # waiting runs; defaults to 100
  catch_up:                     # missed ticks (no engine was running)
    mode: COMPACT               # NONE, COMPACT (the newest, once for all), FULL
    window: 6h                  # older ticks are skipped; defaults to 1d
    cap: 20                     # FULL: at most this many, the newest; defaults to 100
  options:                      # of the tasks, as in a file of ` + "`type apply`" + `; also
    timeout: 10m                # concurrent_worker_count, specific_worker_ids, limit_key
    retry: {strategy: fixed, interval: 1m, max_errors: 2}   # within a run; http: none by default

Secrets, in http.keys [{ak, sk}] and options.callback.security, are sealed with
MSCHEDULER_SECRET_KEY before anything is written; *** is the stored one. The http.headers
authorization, proxy-authorization, cookie and x-api-key are sealed, too, if there is that key.

ext is any value of your own. Handlers read it, and http with {{ext}} and {{ext.field}}. Other
placeholders: {{run_id}}, {{task_id}}, {{name}}, {{nominal_time}}, {{attempt}}, {{callback_url}}.

Also: tenant, creator, category, description, priority; start_at and end_at (with an offset,
or in the rule's zone), max_runs, jitter; log (none, trigger_log, trans_log) and run_retention
(defaults to 90d); dst {gap: run_after | skip, fold: first | both}, for times that do not exist
or come twice because clocks change: by default run_after and first, but skip and both
where the hour is *; and version: the file is refused if the stored rule has another version.

--dry-run writes nothing. It shows what would change, and what that means: the ticks of the
stored and of the changed rule in the last and the next --days, as the planner decides them.
It covers fewer days if a rule has more than 20,000 ticks in that time.
Runs take as long as the recorded ones (or --run-takes) and end as those did.`

func (r *rulesCommand) apply() *cobra.Command {
	var f applyFlags
	run := &applyingRules{rulesCommand: r}
	var rules applier[form.Rule, schedule.Rule] = run
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Store rules from a file", Args: noArgs, Long: ruleApplyHelp,
		Example: "  mscheduler periodic apply -f rules.yaml --dry-run\n  mscheduler periodic list -o yaml > rules.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			takes := cmd.Flags().Changed("run-takes")
			switch {
			case !f.dry && (takes || cmd.Flags().Changed("days")):
				return usage("--run-takes and --days require --dry-run")
			case run.days < 1 || run.days > 366:
				return usage("--days is %d; want 1 to 366", run.days)
			case takes && run.takes <= 0:
				return usage("--run-takes is %s; it must be positive", span(run.takes))
			}
			run.dry = f.dry
			docs, err := readDocs[form.Rule](r.app, f.file, "a periodic rule", "periodic rules")
			if err != nil {
				return err
			}
			for _, d := range docs {
				if d.Form.Tenant == "" {
					d.Form.Tenant = r.tenant
				}
			}
			if err := checkDocs(rules, docs); err != nil {
				return err
			}
			ctx := cmd.Context()
			if run.connection, err = r.connect(ctx); err != nil { // the first write sets an empty database up
				return err
			}
			if err := applyDocs(ctx, r.app, rules, docs, "rules", f.dry); err != nil {
				return err
			}
			if run.fires && !f.dry && !r.asJSON() {
				return r.sayIdle(ctx, run.connection)
			}
			return nil
		},
	}
	f.register(cmd, "show the changes and their effect, and write nothing")
	cmd.Flags().IntVar(&run.days, "days", 30, "with --dry-run: number of days to look back and ahead")
	spanVar(cmd.Flags(), &run.takes, "run-takes", 0, "with --dry-run: how long a run takes; defaults to the median of the recorded runs")
	return cmd
}

// applyingRules is one run of `periodic apply`.
type applyingRules struct {
	*rulesCommand
	*connection
	dry   bool
	days  int
	takes time.Duration // 0 = as recorded
	fires bool          // one of the rules does
}

type ruleChange = change[form.Rule, schedule.Rule]

func (*applyingRules) id(f *form.Rule) string { return printedName(f.Tenant, f.Name) }
func (*applyingRules) thing(f *form.Rule) audit.Thing {
	return audit.Thing{Kind: audit.Rule, ID: input.RuleName(f.Tenant, f.Name)}
}
func (*applyingRules) wanted(f *form.Rule) int64 { return f.Version }
func (*applyingRules) changed() error            { return fmt.Errorf("the rule was %w", model.ErrChanged) }

func (*applyingRules) check(f *form.Rule) error {
	_, err := rulechange.Spec(f)
	return err
}

func (a *applyingRules) load(ctx context.Context, f *form.Rule) (*schedule.Rule, int64, error) {
	r, err := a.rules.Named(ctx, f.Tenant, f.Name)
	if errors.Is(err, store.ErrNoRule) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.Version, nil
}

func (a *applyingRules) compare(_ context.Context, c *ruleChange) error {
	e, err := a.edit(c)
	c.lines = e.Lines()
	return err
}

// edit finds what the file changes of a rule.
func (a *applyingRules) edit(c *ruleChange) (rulechange.Edit, error) {
	box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
	if err != nil {
		return rulechange.Edit{}, err
	}
	return rulechange.Of(c.Form, c.stored, box, a.at)
}

func (a *applyingRules) write(ctx context.Context, c *ruleChange) (*schedule.Rule, error) {
	e, err := a.edit(c)
	if err != nil {
		return nil, err
	}
	rule, err := e.Write(ctx, a.rules)
	if errors.Is(err, store.ErrRuleExists) && c.stored == nil { // since it was looked for
		err = fmt.Errorf("the rule was %w: %w", model.ErrChanged, err)
	}
	return rule, err
}

// appliedRule is what became of one rule as JSON.
type appliedRule struct {
	ruleView
	outcome
	Forecast *rulechange.Forecast `json:"forecast,omitempty"`
}

func (a *applyingRules) show(ctx context.Context, c *ruleChange, after *schedule.Rule, o outcome) (view any, line, more string, err error) {
	v := appliedRule{outcome: o, ruleView: ruleView{Name: c.Form.Name, Tenant: c.Form.Tenant}}
	if after != nil {
		v.ruleView = viewOf(after)
		a.fires = a.fires || v.Next != ""
		line = fmt.Sprintf(" (version %d)", after.Version)
		switch {
		case a.dry:
		case after.Status == tickplan.StatusNew && o.Result != "unchanged":
			line += "; disabled; to let it fire: mscheduler periodic enable " + ruleArgs(after.Tenant, after.Name)
		case v.Next != "":
			line += ", next " + nextText(after, a.at)
		}
	}
	if e, err := a.edit(c); a.dry && err == nil && e.Edits() {
		what := rulechange.Window{Now: a.at, Days: a.days, Takes: a.takes}
		if v.Forecast, err = e.Forecast(ctx, a.rules, what); err != nil {
			return nil, "", "", err
		}
		more = forecastText(v.Forecast, a.days)
	}
	return v, line, more, nil
}
