package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const ruleApplyHelp = `Store periodic rules as a YAML file says them.

The file has one rule a document, or lists of rules. A rule is known by its tenant and
name: it is created, or changed to what the file says; what the file leaves out is taken
away, but for enabled. Rules that are not in it stay. All of it is checked before anything
is written.

  name: nightly
  enabled: true                 # else a new rule does not fire, and an old one stays as it is
  cron: 0 30 2 * * *            # second minute hour day month weekday; five fields have
                                # second 0; @daily and the like; @every 90s. Day or weekday,
                                # as cron has it: both, where one begins with * (*/2, too)
  timezone: Europe/Berlin       # defaults to UTC
  type: report                  # of the task that each tick sends, and its args;
  args: {to: ann}               # or instead of both http: {url, method, headers, body, timeout,
                                # expect, mode, callback_timeout, callback_method}: a call,
                                # which decides the run
  overlap: SKIP                 # when a run has not ended: ALLOW, SKIP, CANCEL_PREV, PARALLEL
  on_failure: RUN_NEW           # after a run that failed: RUN_NEW, SKIP (once), RETRY
  max_concurrency: 1            # runs at once; without it 1000, beyond which ticks are
                                # skipped (capacity) whatever the policies say
  concurrency: QUEUE            # at that limit: QUEUE, SKIP, PARALLEL
  queue_limit: 10               # runs that wait; defaults to 100
  catch_up:                     # of ticks that nobody decided in time
    mode: COMPACT               # NONE, COMPACT (the newest, once for all), FULL
    window: 6h                  # older ones are skipped; defaults to 1d
    cap: 20                     # FULL: at most so many, the newest; defaults to 100
  options:                      # of the tasks, as in a file of ` + "`type apply`" + `
    timeout: 10m
    retry: {strategy: fixed, interval: 1m, max_errors: 2}   # within a run; http: none by default

Secrets, in http.keys [{ak, sk}] and options.callback.security, are sealed with
MSCHEDULER_SECRET_KEY before anything is written; *** is the one that is stored. So are the
http.headers authorization, proxy-authorization, cookie and x-api-key, where there is that key.

ext is any value of your own. Handlers read it, and http with {{ext}} and {{ext.field}}, as it
reads {{run_id}}, {{task_id}}, {{name}}, {{nominal_time}}, {{attempt}} and {{callback_url}}.

Also: tenant, creator, category, description, priority; start_at and end_at (with a zone,
or in the rule's), max_runs, jitter; log (none, trigger_log, trans_log) and run_retention
(defaults to 90d); dst {gap: run_after | skip, fold: first | both}, for times that do not exist
or come twice because clocks are changed: run_after and first without it, but skip and both
where the hour is *; and version: the file is refused when the stored rule has another one.

--dry-run writes nothing. It shows what would change, and what that means: what the rule as it
is stored and the changed one do in the last and in the next --days, decided by the planner
itself. Runs take as long as the recorded ones (or --run-takes) and end as those did.`

func (r *rulesCommand) apply() *cobra.Command {
	var file, takes string
	run := &applyingRules{rulesCommand: r}
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Store rules as a file says them", Args: noArgs, Long: ruleApplyHelp,
		Example: "  mscheduler periodic apply -f rules.yaml --dry-run\n  mscheduler periodic list -o yaml > rules.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage("periodic apply wants -f FILE, or -f - for stdin; see: mscheduler periodic apply --help")
			}
			if !run.dry && (cmd.Flags().Changed("run-takes") || cmd.Flags().Changed("days")) {
				return usage("--run-takes and --days go with --dry-run")
			}
			if run.days < 1 || run.days > 366 {
				return usage("--days is %d; want 1 to 366", run.days)
			}
			if takes != "" {
				d, err := parseDuration("run-takes", takes)
				if err == nil && d <= 0 {
					err = usage("--run-takes is %s; want more than nothing", takes)
				}
				if err != nil {
					return err
				}
				run.takes = d
			}
			data, err := r.readFile(file)
			if err != nil {
				return err
			}
			specs, err := ruleFile.read(file, data)
			if err != nil {
				return err
			}
			rules, err := run.check(specs)
			if err != nil {
				return err
			}
			if run.ruleDB, err = r.open(cmd.Context(), false); err != nil { // the first write sets an empty database up
				return err
			}
			return run.all(cmd.Context(), rules)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "the file; - is stdin")
	f.BoolVar(&run.dry, "dry-run", false, "show what it would change, and what that means, and write nothing")
	f.IntVar(&run.days, "days", 30, "with --dry-run: how many days back and ahead are looked at")
	f.StringVar(&takes, "run-takes", "", "with --dry-run: how long a run takes; defaults to the middle of the recorded runs")
	return cmd
}

// applyingRules is one run of apply.
type applyingRules struct {
	*rulesCommand
	*ruleDB
	dry   bool
	days  int
	takes time.Duration // 0 = as recorded
}

// wantedRule is a rule of the file, checked and normalised.
type wantedRule struct {
	spec    periodic.Spec
	version int64 // 0 = whichever
	enabled *bool
	where   string
}

// check finds everything that is wrong with the rules themselves.
func (a *applyingRules) check(specs []namedSpec[ruleSpec]) ([]*wantedRule, error) {
	var errs []error
	var out []*wantedRule
	seen := map[string]string{}
	for _, s := range specs {
		if s.spec.Tenant == "" {
			s.spec.Tenant = a.tenant
		}
		spec, err := s.spec.rule()
		if err != nil {
			at := s.where + ": rule " + onTerminal(s.spec.Name) + ": "
			errs = append(errs, usage("%s%s", at, strings.ReplaceAll(err.Error(), "\n", "\n"+at)))
			continue
		}
		id := schedule.RuleName(spec.Tenant, spec.Name)
		if before, twice := seen[id]; twice {
			errs = append(errs, usage("%s: rule %s is there before, at %s", s.where, s.spec.Name, before))
		}
		seen[id] = s.where
		out = append(out, &wantedRule{spec: spec, version: s.spec.Version, enabled: s.spec.Enabled, where: s.where})
	}
	return out, errors.Join(errs...)
}

// ruleChange is what applying does to one rule.
type ruleChange struct {
	*wantedRule
	stored  *schedule.Rule // nil = it is created
	sealed  periodic.Spec  // what is stored, where something but enabled changes
	edit    bool           // something else than whether it is enabled changes
	turn    *bool          // it is enabled or disabled
	changes []string       // for people
}

// appliedRule is what became of one rule as JSON.
type appliedRule struct {
	ruleView
	Result   string        `json:"result"` // created, changed, unchanged
	Changes  []string      `json:"changes"`
	Forecast *forecastView `json:"forecast,omitempty"`

	rule *schedule.Rule // as it is stored then; nil for one that would be created
}

func (a *applyingRules) all(ctx context.Context, rules []*wantedRule) error {
	changes := make([]*ruleChange, len(rules))
	var errs []error
	for i, w := range rules {
		var err error
		if changes[i], err = a.compare(ctx, w); err != nil {
			err = fmt.Errorf("%s: rule %s: %w", w.where, w.spec.Name, noRule(err))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	views, fires := []appliedRule{}, false
	for _, c := range changes {
		v, err := a.one(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: rule %s: %w", c.where, c.spec.Name, noRule(err))
		}
		views, fires = append(views, v), fires || v.Next != ""
		if !a.asJSON() {
			if err := a.print(a.text(&v)); err != nil {
				return err
			}
		}
	}
	if a.asJSON() {
		return a.printJSON(map[string]any{"rules": views, "dry_run": a.dry})
	}
	if fires && !a.dry {
		return a.sayIdle(ctx, a.ruleDB)
	}
	return nil
}

func (a *applyingRules) text(v *appliedRule) string {
	result := v.Result
	if a.dry && result != "unchanged" {
		result = "would be " + result
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s", printedName(v.Tenant, v.Name), result)
	if v.Version > 0 {
		fmt.Fprintf(&b, " (version %d)", v.Version)
	}
	switch {
	case a.dry:
	case v.Status == schedule.StatusNew && v.Result != "unchanged":
		fmt.Fprintf(&b, "; it does not fire yet: mscheduler periodic enable %s", ruleArgs(v.Tenant, v.Name))
	case v.Next != "":
		b.WriteString(", next " + nextText(v.rule, a.at))
	}
	b.WriteByte('\n')
	for _, c := range v.Changes {
		b.WriteString("  " + c + "\n")
	}
	if v.Forecast != nil {
		b.WriteString(v.Forecast.text())
	}
	return b.String()
}

// compare finds what the file changes of a rule. A rule that fires no more is only refused
// where the file makes it so.
func (a *applyingRules) compare(ctx context.Context, w *wantedRule) (*ruleChange, error) {
	c := &ruleChange{wantedRule: w}
	stored, err := a.rules.Named(ctx, w.spec.Tenant, w.spec.Name)
	if err != nil && !errors.Is(err, periodic.ErrNotFound) {
		return nil, err
	}
	var before *ruleSpec
	version, on := int64(0), false
	if err == nil {
		c.stored, before = stored, ruleSpecOf(periodic.SpecOf(stored))
		version, on = stored.Version, enabled(stored)
	}
	if w.version != 0 && w.version != version {
		return nil, fmt.Errorf("%w: it is at version %d, and the file is for %d", periodic.ErrChanged, version, w.version)
	}
	if c.changes, err = difference(before, ruleSpecOf(w.spec)); err != nil {
		return nil, err
	}
	c.changes = append(c.changes, givenSecrets("options.callback.security", callbackKeys(w.spec.Options.Callback))...)
	if c.stored != nil && c.stored.Task != nil {
		c.changes = append(c.changes, hiddenURLs("options.callback", c.stored.Task.Options.Callback, w.spec.Options.Callback)...)
	}
	if w.spec.HTTP != nil {
		c.changes = append(c.changes, givenSecrets("http.keys", w.spec.HTTP.Keys)...)
		for _, name := range secret.GivenHeaders(w.spec.HTTP.Headers) {
			c.changes = append(c.changes, "+ http.headers: the secret of "+name)
		}
	}
	if c.edit = len(c.changes) > 0; c.edit {
		if c.sealed, err = a.rules.Sealed(w.spec, c.stored); err != nil {
			return nil, err
		}
		if err := c.sealed.CheckedFor(c.stored, a.at); err != nil {
			return nil, err
		}
	}
	switch {
	case w.enabled == nil:
	case *w.enabled != on, *w.enabled && c.edit && c.stored != nil && rests(c.stored): // it may have a new end
		c.turn = w.enabled
		if c.stored != nil {
			c.changes = append(c.changes, fmt.Sprintf("- enabled: %t", on))
		}
		c.changes = append(c.changes, fmt.Sprintf("+ enabled: %t", *w.enabled))
	}
	return c, nil
}

// one applies one change. Somebody who changes the rule at the same time makes it look
// again, unless the file names the version it is for.
func (a *applyingRules) one(ctx context.Context, c *ruleChange) (appliedRule, error) {
	v := appliedRule{Result: "changed", Changes: c.changes}
	switch {
	case c.stored == nil:
		v.Result, v.Name, v.Tenant = "created", c.spec.Name, c.spec.Tenant
	case len(c.changes) == 0:
		v.Result, v.Changes = "unchanged", []string{}
		fallthrough
	default:
		v.rule, v.ruleView = c.stored, viewOf(c.stored)
	}
	if a.dry {
		if !c.edit {
			return v, nil
		}
		var err error
		v.Forecast, err = a.forecast(ctx, c)
		return v, err
	}
	if len(c.changes) == 0 {
		return v, nil
	}
	for tries := 0; ; tries++ {
		rule, err := a.write(ctx, c)
		if err == nil {
			v.rule, v.ruleView = rule, viewOf(rule)
			return v, nil
		}
		if c.version != 0 || tries == 5 || !errors.Is(err, periodic.ErrChanged) && !errors.Is(err, periodic.ErrExists) {
			return v, err
		}
		if c, err = a.compare(ctx, c.wantedRule); err != nil {
			return v, err
		}
	}
}

// write carries a change out: what stops a rule comes first, what starts it last.
func (a *applyingRules) write(ctx context.Context, c *ruleChange) (rule *schedule.Rule, err error) {
	if rule = c.stored; rule == nil {
		if rule, err = a.rules.Create(ctx, c.sealed); err != nil {
			return nil, err
		}
		c.stored, c.edit = rule, false // should the rest be repeated
	}
	if c.turn != nil && !*c.turn {
		if rule, err = a.rules.Disable(ctx, rule.ID, rule.Version, ""); err != nil {
			return nil, err
		}
	}
	if c.edit {
		if rule, err = a.rules.Update(ctx, rule.ID, c.stored.Version, c.sealed); err != nil {
			return nil, err
		}
	}
	if c.turn != nil && *c.turn {
		rule, err = a.rules.Enable(ctx, rule.ID, rule.Version)
	}
	return rule, err
}
