package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// quoted is a name as a shell takes it.
func quoted(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@!:/") == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// each does something to each rule that is named; all of them must be there.
func (r *rulesCommand) each(ctx context.Context, c *connection, names []string, do func(*schedule.Rule) (*schedule.Rule, error)) error {
	rules := make([]*schedule.Rule, len(names))
	for i, name := range names {
		var err error
		if rules[i], err = r.find(ctx, c, name); err != nil {
			return err
		}
	}
	changed := r.several("rules")
	for _, rule := range rules {
		after, err := do(rule)
		if err != nil {
			return changed.cut(err)
		}
		if err := changed.add(viewOf(after), ruleName(after)+"  "+stateOrNext(after, c.at)); err != nil {
			return err
		}
	}
	return changed.end(ctx)
}

// ruleView is a changed rule as JSON.
type ruleView struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Tenant  string `json:"tenant,omitempty"`
	Status  string `json:"status"`
	Version int64  `json:"version"`
	Next    string `json:"next_fire_at,omitempty"`
}

func viewOf(r *schedule.Rule) ruleView {
	return ruleView{r.ID, r.Name, r.Tenant, r.Status, r.Version, view.Time(r.NextFireAt)}
}

func stateOrNext(r *schedule.Rule, now time.Time) string {
	if r.NextFireAt.IsZero() {
		return stateText(r)
	}
	return stateText(r) + ", next " + nextText(r, now)
}

func (r *rulesCommand) enable() *cobra.Command {
	return &cobra.Command{
		Use: "enable RULE...", Short: "Let rules fire", Args: some("the names of rules"),
		Long: "Let rules fire from now on. One record covers the ticks that were skipped while a rule was\ndisabled (paused). They do not run, but `periodic backfill` can run them.",
		RunE: r.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			err := r.each(ctx, c, args, func(rule *schedule.Rule) (*schedule.Rule, error) { return c.rules.Enable(ctx, rule.ID, 0) })
			if err != nil {
				return err
			}
			return r.sayIdle(ctx, c)
		}),
	}
}

func (r *rulesCommand) disable() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use: "disable RULE...", Short: "Stop rules from firing", Args: some("the names of rules"),
		Long: "Stop rules from firing, at once. Running and waiting runs continue; `periodic cancel` ends them.",
		RunE: r.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			return r.each(ctx, c, args, func(rule *schedule.Rule) (*schedule.Rule, error) { return c.rules.Disable(ctx, rule.ID, 0, note) })
		}),
	}
	cmd.Flags().StringVar(&note, "note", "", "the reason, stored with the rule")
	return cmd
}

func (r *rulesCommand) delete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete RULE", Short: "Delete a rule", Args: one("the name of a rule"),
		Long: "Delete a rule. It never fires again. Waiting runs are cancelled, and running ones continue. Its\nname becomes free. Its records stay until their retention ends; find them by the rule's id.",
		RunE: r.onRule(func(ctx context.Context, c *connection, rule *schedule.Rule) error {
			if n := len(rule.Queued); rule.Status == tickplan.StatusOnline || n > 0 {
				question := fmt.Sprintf("Delete rule %s? It is enabled.", ruleName(rule))
				if n > 0 {
					question = fmt.Sprintf("Delete rule %s? %s.", ruleName(rule), human.Plural(n, "run waits", "runs wait"))
				}
				if err := r.confirm(yes, question); err != nil {
					return err
				}
			}
			if err := c.rules.Delete(ctx, rule.ID, rule.Version); err != nil {
				return err
			}
			return r.result(map[string]any{"id": rule.ID, "name": rule.Name, "result": "deleted"},
				fmt.Sprintf("%s  deleted; its runs: mscheduler periodic runs %s\n", ruleName(rule), rule.ID))
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask if the rule is enabled or has waiting runs")
	return cmd
}

func (r *rulesCommand) cancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel RUN...", Short: "Cancel runs", Args: some("the ids of runs"),
		Long: "Cancel runs by the ids that `periodic runs` prints. A waiting run is cancelled at once. For a\nrunning one the task is cancelled, and the run becomes CANCELED when the handler has returned.\nA run that neither runs nor waits is refused (exit code 5), and the others are cancelled.",
		RunE: r.onDatabase(r.cancelRuns),
	}
}

// cancelRuns cancels named runs; what one of them forbids does not stop the others.
func (r *rulesCommand) cancelRuns(ctx context.Context, c *connection, runs []string) error {
	cancelled := r.several("runs")
	for _, run := range runs {
		if err := c.rules.Cancel(ctx, run); err != nil {
			if err := cancelled.skip(ctx, err, errorText(err), func() string { return r.named(ctx, c, run).ID }); err != nil {
				return err
			}
			continue
		}
		if err := cancelled.add(run, run+"  cancel requested"); err != nil {
			return err
		}
	}
	return cancelled.end(ctx)
}

func (r *rulesCommand) backfill() *cobra.Command {
	var from, to, request string
	cmd := &cobra.Command{
		Use: "backfill RULE --from TIME [--to TIME]", Short: "Run a rule for past ticks", Args: one("the name of a rule"),
		Long:    fmt.Sprintf("Run a rule for its past ticks from --from up to but excluding --to, in order. The rule's\nconcurrency limit applies. Runs beyond it wait, behind the ticks that come now. Without a limit all\nstart at once. With overlap SKIP one runs at a time, and a current tick waits for it. Ticks before\nthe rule's start_at, and at or after its end_at, are left out.\n\nTicks that ran at their time run again. A backfill has at most %d ticks.", tickplan.MaxBackfill),
		Example: "  mscheduler periodic backfill nightly --from 2026-01-01 --to 2026-01-08 --request january\n  mscheduler periodic backfill nightly --from -12h",
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return usage("periodic backfill requires --from; see: mscheduler periodic backfill --help")
			}
			return r.onRule(func(ctx context.Context, c *connection, rule *schedule.Rule) error {
				begin, err := parseTime("from", from, c.at)
				if err != nil {
					return err
				}
				end, err := parseTime("to", to, c.at)
				if err != nil {
					return err
				}
				n, err := c.rules.Backfill(ctx, rule.ID, begin, end, request)
				if err != nil {
					return err
				}
				times := fmt.Sprintf("from %s to %s", inZone(begin, rule), inZone(end, rule))
				text := fmt.Sprintf("%s  %s %s; see: mscheduler periodic runs %s\n", ruleName(rule), human.Plural(n, "run", "runs"), times, ruleArgs(rule.Tenant, rule.Name))
				if n == 0 {
					text = fmt.Sprintf("%s has no tick %s that the request has not run\n", ruleName(rule), times)
				}
				return r.result(map[string]any{"id": rule.ID, "runs": n, "from": view.Time(begin), "to": view.Time(end)}, text)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the first nominal time: 2026-01-31T09:00:00Z, or -2h")
	cmd.Flags().StringVar(&to, "to", "0s", "the end, exclusive; defaults to now")
	cmd.Flags().StringVar(&request, "request", "", "name of the request: repeating it does not run its ticks again")
	return cmd
}
