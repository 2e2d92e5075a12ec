package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const planHelp = `A plan sends its messages to a station, which is a task type, again and again: at once, at a time,
after intervals, or by the week or the month. Each time is a step. The next step is planned when a
step has succeeded; a step that fails starts again, unless the error is fatal.

Plans need an engine: ` + "`mscheduler work --plan`" + ` or ` + "`mscheduler dev`" + `. A plan's id is its plan_id, or
tenant/plan_id.`

func (a *app) planCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Short: "Publish and manage plans: repeated messages, each step once", Long: planHelp, Args: noArgs, RunE: group}
	p := &plansCommand{a}
	cmd.AddCommand(p.publish(), p.list(), p.show(), p.results(), p.watch(), p.preview(), p.cancel(), p.reset())
	return cmd
}

// plansCommand is what the commands about plans share.
type plansCommand struct{ *app }

// planID is the id that an argument names: tenant/plan_id, or the plan_id of a plan without a tenant.
func planID(arg string) (string, error) {
	if !strings.Contains(arg, "/") {
		arg = model.NoTenant + "/" + arg
	}
	tenant, id, _ := strings.Cut(arg, "/")
	if input.Name("tenant", tenant) != nil || stepplan.CheckID(id) != nil {
		return "", usage("plan id is %q; want plan_id or tenant/plan_id, with - for no tenant", human.OneLine(arg, 120))
	}
	return arg, nil
}

// onPlan is the action of a command on the plan that its argument names.
func (p *plansCommand) onPlan(do func(ctx context.Context, c *connection, id string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := planID(args[0])
		if err != nil {
			return err
		}
		c, err := p.connectReady(cmd.Context())
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, id)
	}
}

// sayIdle warns when no process runs an engine, so that no plan goes on.
func (p *plansCommand) sayIdle(ctx context.Context, c *connection) error {
	served, err := c.served(ctx, stepplan.EngineType, "")
	if err == nil && !served {
		p.say("no plan engine is running, so no plan gets beyond the step that waits; start one with: mscheduler work --plan")
	}
	return err
}

// planJSON is a plan's document as JSON.
func planJSON(doc *repeat.Plan) (json.RawMessage, error) { return view.Stored(doc, "id") }

// planLine is what became of a plan, for people.
func planLine(doc *repeat.Plan, now time.Time) string {
	line := human.PlanID(doc.ID) + "  " + string(doc.Status)
	if doc.Status == repeat.StatusRunning && !doc.Done {
		line += fmt.Sprintf("  step %d, %s", doc.Step, human.When(doc.PlanTime, now))
	}
	if doc.Reason != "" {
		line += "  " + human.OneLine(doc.Reason, 200)
	}
	return line
}

// printPlan prints a plan that a command has changed, and warns when nothing carries that on.
func (p *plansCommand) printPlan(ctx context.Context, c *connection, doc *repeat.Plan) error {
	view, err := planJSON(doc)
	if err != nil {
		return err
	}
	if err := p.result(view, planLine(doc, c.at)+"\n"); err != nil || stepplan.Over(doc.Status) && !doc.EndedAt.IsZero() {
		return err
	}
	return p.sayIdle(ctx, c)
}

// repeats says when the steps of a plan are, for people.
func repeats(doc *repeat.Plan) string {
	often := ""
	switch doc.PlanType {
	case repeat.None:
		return "once, at once"
	case repeat.Time:
		return "once, at " + human.Stamp(doc.Start)
	case repeat.Week:
		often = "every " + time.Weekday(doc.PlanValue).String() + " at " + timeOfDay(doc)
	case repeat.Month:
		often = "every month " + calendar.DayOfMonth(doc.PlanValue) + " at " + timeOfDay(doc)
	default:
		often = "every " + human.Plural(doc.PlanValue, string(doc.PlanType), string(doc.PlanType)+"s")
		if doc.PlanValue == 1 {
			often = "every " + string(doc.PlanType)
		}
	}
	if doc.PlanRepet > 0 {
		often += ", " + human.Plural(doc.PlanRepet, "time", "times")
	}
	return often
}

func timeOfDay(doc *repeat.Plan) string {
	zone, err := calendar.Zone(doc.Timezone)
	if err != nil || doc.Start.IsZero() {
		return "00:00"
	}
	return doc.Start.In(zone).Format("15:04:05")
}
