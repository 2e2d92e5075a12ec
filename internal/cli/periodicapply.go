package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const ruleApplyHelp = `Store the periodic rules that a YAML or JSON file describes.

The file has one rule per document, or lists of rules. A rule is identified by its tenant and
name. It is created, or changed to what the file describes: fields that the file leaves out are
removed, except enabled. Rules that are not in the file stay. All of the file is checked before
anything is written.

  name: nightly
  enabled: true                 # without it a new rule does not fire, and an old one stays as it is
  cron: 0 30 2 * * *            # second minute hour day month weekday; five fields have
                                # second 0; @daily and the like; @every 90s. Given day and
                                # weekday, one must match; both, if one begins with * (also */2)
  timezone: Europe/Berlin       # defaults to UTC
  type: report                  # of the task that each tick sends, and its args;
  args: {to: ann}               # or instead of both http: {url, method, headers, body, timeout,
                                # expect, mode, callback_timeout, callback_method}: a call,
                                # which decides the run
  overlap: SKIP                 # while an earlier run goes on: ALLOW, SKIP, CANCEL_PREV, PARALLEL
  on_failure: RUN_NEW           # after a failed run: RUN_NEW, SKIP (once), RETRY
  max_concurrency: 1            # runs at once; defaults to 1000, beyond which ticks are
                                # skipped (capacity) whatever the policies are
  concurrency: QUEUE            # at that limit: QUEUE, SKIP, PARALLEL
  queue_limit: 10               # waiting runs; defaults to 100
  catch_up:                     # of ticks that nobody decided in time
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

func (*applyingRules) id(f *form.Rule) string    { return printedName(f.Tenant, f.Name) }
func (*applyingRules) wanted(f *form.Rule) int64 { return f.Version }
func (*applyingRules) changed() error            { return periodic.ErrChanged }

// specOf is the rule that a file says, checked and normalised; not whether it still fires, which
// depends on the time.
func specOf(f *form.Rule) (schedule.Spec, error) {
	spec, err := f.Spec()
	checked, wrong := rulespec.Normal(&spec, time.Unix(0, 0))
	return checked, errors.Join(err, builtin.CheckArgs(f.Type, []byte(f.Args)), wrong)
}

func (*applyingRules) check(f *form.Rule) error {
	_, err := specOf(f)
	return err
}

func (a *applyingRules) load(ctx context.Context, f *form.Rule) (*schedule.Rule, int64, error) {
	r, err := a.rules.Named(ctx, f.Tenant, f.Name)
	if errors.Is(err, periodic.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.Version, nil
}

// ruleEdit is what a change does to a rule beside what it says: a change of whether it is
// enabled is no edit.
type ruleEdit struct {
	sealed schedule.Spec
	edit   bool  // something else than whether it is enabled changes
	turn   *bool // it is enabled or disabled
}

func (a *applyingRules) compare(_ context.Context, c *ruleChange) error {
	e, lines, err := a.edit(c)
	c.lines = lines
	switch on := c.stored != nil && enabled(c.stored); {
	case err != nil || e.turn == nil:
	case c.stored != nil:
		c.lines = append(c.lines, fmt.Sprintf("- enabled: %t", on), fmt.Sprintf("+ enabled: %t", *e.turn))
	default:
		c.lines = append(c.lines, fmt.Sprintf("+ enabled: %t", *e.turn))
	}
	return err
}

// edit finds what the file changes of a rule. One that fires no more is only refused where the
// file makes it so.
func (a *applyingRules) edit(c *ruleChange) (e ruleEdit, lines []string, err error) {
	spec, err := specOf(c.Form)
	if err != nil {
		return e, nil, err
	}
	var before *form.Rule
	var old *model.Callback
	on := false
	if c.stored != nil {
		stored := periodic.SpecOf(c.stored)
		before, old, on = form.RuleOf(&stored), c.stored.Task.Options.Callback, enabled(c.stored)
	}
	lines = append(form.Changes(before, form.RuleOf(&spec)), secretChanges("options.callback", old, spec.Options.Callback)...)
	if spec.HTTP != nil {
		lines = append(lines, givenSecrets("http.keys", spec.HTTP.Keys)...)
		for _, name := range secret.GivenHeaders(spec.HTTP.Headers) {
			lines = append(lines, "+ http.headers: the secret of "+name)
		}
	}
	if e.edit = len(lines) > 0; e.edit {
		box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
		if err != nil {
			return e, nil, err
		}
		if e.sealed, err = rulespec.Seal(box, spec, c.stored); err != nil {
			return e, nil, err
		}
		if err := rulespec.Check(&e.sealed, c.stored, a.at); err != nil {
			return e, nil, err
		}
	}
	wanted := c.Form.Enabled
	if wanted != nil && (*wanted != on || *wanted && e.edit && c.stored != nil && rests(c.stored)) { // it may have a new end
		e.turn = wanted
	}
	return e, lines, nil
}

// write carries a change out: what stops a rule comes first, what starts it last.
func (a *applyingRules) write(ctx context.Context, c *ruleChange) (*schedule.Rule, error) {
	e, _, err := a.edit(c)
	if err != nil {
		return nil, err
	}
	rule := c.stored
	if rule == nil {
		if rule, err = a.rules.Create(ctx, e.sealed); err != nil {
			if errors.Is(err, periodic.ErrExists) { // since it was looked for
				err = fmt.Errorf("%w: %w", periodic.ErrChanged, err)
			}
			return nil, err
		}
		e.edit = false
	}
	if e.turn != nil && !*e.turn {
		if rule, err = a.rules.Disable(ctx, rule.ID, rule.Version, ""); err != nil {
			return nil, err
		}
	}
	if e.edit {
		if rule, err = a.rules.Update(ctx, rule.ID, c.stored.Version, e.sealed); err != nil {
			return nil, err
		}
	}
	if e.turn != nil && *e.turn {
		rule, err = a.rules.Enable(ctx, rule.ID, rule.Version)
	}
	return rule, err
}

// appliedRule is what became of one rule as JSON.
type appliedRule struct {
	ruleView
	outcome
	Forecast *forecastView `json:"forecast,omitempty"`
}

func (a *applyingRules) show(ctx context.Context, c *ruleChange, after *schedule.Rule, o outcome) (view any, line, more string, err error) {
	v := appliedRule{outcome: o, ruleView: ruleView{Name: c.Form.Name, Tenant: c.Form.Tenant}}
	if after != nil {
		v.ruleView = viewOf(after)
		a.fires = a.fires || v.Next != ""
		line = fmt.Sprintf(" (version %d)", after.Version)
		switch {
		case a.dry:
		case after.Status == schedule.StatusNew && o.Result != "unchanged":
			line += "; disabled; to let it fire: mscheduler periodic enable " + ruleArgs(after.Tenant, after.Name)
		case v.Next != "":
			line += ", next " + nextText(after, a.at)
		}
	}
	if e, _, err := a.edit(c); a.dry && err == nil && e.edit {
		spec, err := specOf(c.Form)
		if err != nil {
			return nil, "", "", err
		}
		if v.Forecast, err = a.forecast(ctx, c.stored, spec); err != nil {
			return nil, "", "", err
		}
		more = v.Forecast.text()
	}
	return v, line, more, nil
}

// enabled says whether a person wants the rule to fire: it does, or rests because its end is
// reached.
func enabled(r *schedule.Rule) bool { return r.Status == schedule.StatusOnline || rests(r) }

func rests(r *schedule.Rule) bool { return r.Status == schedule.StatusOffline && r.PausedAt.IsZero() }
