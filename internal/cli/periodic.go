package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const periodicHelp = `Periodic rules send a task at the times of a cron expression. Every such time, a tick, is
recorded: what ran, when and how it ended, or why it was skipped.

At least one process must decide the ticks: ` + "`mscheduler work --periodic`" + ` or
` + "`mscheduler dev`" + `. A rule is named by its name (and --tenant), by tenant/name, or by its id.`

func (a *app) periodicCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "periodic", Short: "Manage rules that send tasks at cron times", Long: periodicHelp, Args: noArgs, RunE: group}
	r := &rulesCommand{app: a}
	cmd.PersistentFlags().StringVar(&r.tenant, "tenant", "", "tenant of the rules; defaults to none, for list to all")
	cmd.AddCommand(r.apply(), r.list(), r.show(), r.enable(), r.disable(), r.trigger(), r.cancel(), r.preview(), r.runs(), r.run(), r.backfill(), r.delete())
	return cmd
}

// rulesCommand is what the commands about rules share.
type rulesCommand struct {
	*app
	tenant string
}

// onRule is the action of a command on the rule that its argument names.
func (r *rulesCommand) onRule(do func(ctx context.Context, c *connection, rule *schedule.Rule) error) func(*cobra.Command, []string) error {
	return r.onDatabase(func(ctx context.Context, c *connection, args []string) error {
		rule, err := r.find(ctx, c, args[0])
		if err != nil {
			return err
		}
		return do(ctx, c, rule)
	})
}

// sayIdle tells when nobody decides ticks.
func (r *rulesCommand) sayIdle(ctx context.Context, c *connection) error {
	served, err := c.served(ctx, tickplan.EngineType, "")
	if err == nil && !served {
		r.say("no rule fires, because no process decides ticks; start one with: mscheduler work --periodic")
	}
	return err
}

// ruleForm is a stored rule as a file would say it that can be applied anywhere, any number
// of times.
func ruleForm(r *schedule.Rule) *form.Rule {
	spec := periodic.SpecOf(r)
	f := form.RuleOf(&spec)
	f.Enabled = new(tickplan.Enabled(r))
	return f
}

// stateText says whether the rule fires, in a word, and why it does not.
func stateText(r *schedule.Rule) string {
	switch {
	case r.Status == tickplan.StatusOnline:
		return "enabled"
	case r.Status == tickplan.StatusNew:
		return "never enabled"
	case tickplan.Rests(r):
		return human.OneLine("over: "+r.PauseNote, 40)
	case r.PauseNote != "":
		return human.OneLine("disabled: "+r.PauseNote, 40)
	default:
		return "disabled"
	}
}

func nextText(r *schedule.Rule, now time.Time) string {
	if r.NextFireAt.IsZero() {
		return ""
	}
	return inZone(r.NextFireAt, r) + " (" + human.Relative(r.NextFireAt, now) + ")"
}

// inZone is a time in the rule's zone, with its offset.
func inZone(t time.Time, r *schedule.Rule) string {
	zone, err := calendar.Zone(r.Timezone)
	if err != nil {
		zone = time.UTC
	}
	return localStamp(t.In(zone))
}

func localStamp(t time.Time) string {
	if t.Location() == time.UTC {
		return human.Stamp(t)
	}
	return t.Format("2006-01-02 15:04:05-07:00")
}

const nextShown = 3

func (r *rulesCommand) show() *cobra.Command {
	return &cobra.Command{
		Use: "show RULE", Short: "Show one rule, its next ticks and its runs", Args: one("the name of a rule"),
		Long: "Show one rule, its next ticks, and its running and waiting runs. -o yaml prints a file for\n`periodic apply`. -o json prints the stored document.",
		RunE: r.onRule(func(ctx context.Context, d *connection, rule *schedule.Rule) error {
			if done, err := printOneStored(r.app, rule, ruleForm, ruleJSON); done {
				return err
			}
			return r.showRule(ctx, d, rule)
		}),
	}
}

func (r *rulesCommand) showRule(ctx context.Context, d *connection, rule *schedule.Rule) error {
	var f fields
	for _, l := range form.Lines(ruleForm(rule)) {
		if l.Path != "enabled" {
			f.add(l.Path, l.Value)
		}
	}
	f.add("id", rule.ID)
	f.add("created", human.When(rule.CreatedAt, d.at))
	f.add("version", fmt.Sprint(rule.Version))
	state := stateText(rule)
	if !rule.PausedAt.IsZero() {
		state += ", since " + human.When(rule.PausedAt, d.at)
	}
	f.add("state", state)
	if rule.Status == tickplan.StatusOnline {
		next, err := tickplan.Preview(rule, rule.NextFireAt.Add(-time.Second), nextShown)
		if err != nil {
			return err
		}
		var lines []string
		for _, t := range next {
			lines = append(lines, tickText(t, d.at))
		}
		f.add("next", strings.Join(lines, "\n"))
	}
	f.add("runs so far", fmt.Sprint(rule.Runs))
	if l := rule.Last; l != nil {
		status, err := d.lastStatuses(ctx, []*schedule.Rule{rule})
		if err != nil {
			return err
		}
		f.add("last run", fmt.Sprintf("%s, of %s, attempt %d", status[l.ID], inZone(l.Nominal, rule), l.Attempt))
	}
	if s := rule.Range; s != nil {
		f.add("skipped since", fmt.Sprintf("%s (%s)", human.Plural(s.Count, "tick", "ticks"), skipText(s.Reason)))
	}
	f.add("runs now", runsText(rule.Active, rule))
	f.add("wait", runsText(rule.Queued, rule))
	if err := r.print(f.String()); err != nil {
		return err
	}
	if rule.Status != tickplan.StatusOnline {
		return nil
	}
	return r.sayIdle(ctx, d)
}

func tickText(t tickplan.PreviewTick, now time.Time) string {
	text := localStamp(t.Local) + " (" + human.Relative(t.UTC, now) + ")"
	if t.Note != "" {
		text += "  " + t.Note
	}
	return text
}

const runsShown = 5

func runsText(refs []schedule.RunRef, rule *schedule.Rule) string {
	var lines []string
	for i, ref := range refs {
		if i == runsShown {
			lines = append(lines, fmt.Sprintf("... %d more", len(refs)-i))
			break
		}
		lines = append(lines, ref.ID+"  of "+inZone(ref.Nominal, rule))
	}
	return strings.Join(lines, "\n")
}

// ruleJSON is the stored document, its primary key named id, without secrets.
func ruleJSON(r *schedule.Rule) (json.RawMessage, error) { return view.Stored(r, "id") }

// evenDeleted reads a rule whose runs are wanted: they stay when it is deleted, under its id.
func (r *rulesCommand) evenDeleted(ctx context.Context, d *connection, name string) (*schedule.Rule, error) {
	rule, err := r.find(ctx, d, name)
	if errors.Is(err, store.ErrNoRule) {
		if gone, goneErr := d.store.Rules.Get(ctx, name); goneErr == nil {
			return gone, nil
		}
	}
	return rule, err
}
