package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func (p *plansCommand) show() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a plan and its step", Args: one("the id of a plan"),
		Long: "Show a plan: its times, the step that waits or runs, how the last one ended, and what is wrong. -o yaml\nprints a file for `plan publish`, -o json the document.",
		RunE: p.onPlan(func(ctx context.Context, c *connection, id string) error {
			doc, err := c.plans.Get(ctx, id)
			if err != nil {
				return err
			}
			if done, err := printOneStored(p.app, doc, planForm, planJSON); done {
				return err
			}
			if err := p.print(planFields(doc, c.at)); err != nil || stepplan.Over(doc.Status) {
				return err
			}
			task := stepplan.TaskID(doc, doc.Step)
			served, err := c.served(ctx, doc.Station, task)
			if err != nil {
				return err
			}
			if !served {
				p.say("no live worker takes the task of this step; to see why: mscheduler task explain %s", human.TaskArg(task))
			}
			return p.sayIdle(ctx, c)
		}),
	}
}

// planForm is a plan as a file for `plan publish` says it.
func planForm(doc *repeat.Plan) *form.Plan {
	spec := stepplan.Of(doc)
	return form.PlanOf(&spec)
}

func planFields(doc *repeat.Plan, now time.Time) string {
	var out fields
	out.add("plan", human.PlanID(doc.ID))
	out.add("description", doc.Description)
	out.add("station", doc.Station)
	out.add("caller", doc.Caller)
	out.add("request", doc.RequestID)
	out.add("repeats", repeats(doc))
	out.add("timezone", doc.Timezone)
	switch doc.PlanType {
	case repeat.Second, repeat.Minute, repeat.Hour, repeat.Day:
		out.add("counts from", human.Stamp(doc.Start))
		out.add("no_keep", fmt.Sprint(doc.NoKeep))
	}
	out.add("messages", human.OneLine(string(codec.ValueJSON(doc.Messages)), 200))
	if doc.PlanExecTimeout > 0 {
		out.add("exec timeout", human.Rough(doc.PlanExecTimeout))
	}
	out.add("status", string(doc.Status))
	out.add("why", doc.Reason)
	if doc.Step > 0 && !stepplan.Over(doc.Status) && !doc.Done {
		out.add("step", fmt.Sprint(doc.Step))
		out.add("due", human.When(doc.PlanTime, now))
		if doc.Try > 0 {
			out.add("started again", human.Plural(doc.Try, "time", "times"))
		}
		out.add("task", human.TaskID(stepplan.TaskID(doc, doc.Step)))
	}
	out.add("last state", doc.LastState)
	out.add("last end", human.When(doc.ExecTime, now))
	out.add("succeeded", human.Plural(doc.RealRepet, "step", "steps"))
	if doc.Skipped > 0 {
		out.add("skipped", human.Plural(doc.Skipped, "time", "times"))
	}
	out.add("created", human.When(doc.CreatedAt, now))
	out.add("changed", human.When(doc.UpdatedAt, now))
	out.add("ended", human.When(doc.EndedAt, now))
	return out.String()
}

const planResultsHelp = `List what the participants of a plan's steps did, the oldest first. A step that needs several workers
has a result of each; one that was started again has those of each try.

One page is printed. It also ends when its results have about 8 MiB together. If more results follow, the command prints the value of --after for the next
page; with -o json it is the field "next".`

func (p *plansCommand) results() *cobra.Command {
	var page pageFlags
	cmd := &cobra.Command{
		Use: "results ID", Short: "List what the participants of a plan's steps did", Args: one("the id of a plan"), Long: planResultsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			var from *repeat.Result
			if page.after != "" {
				at, id, err := placeOf(page.after)
				if err != nil || id == "" {
					return wrongAfter(page.after)
				}
				from = &repeat.Result{ID: id, At: at}
			}
			return p.onPlan(func(ctx context.Context, c *connection, id string) error {
				if _, err := c.plans.Get(ctx, id); err != nil {
					return err
				}
				results, more, err := c.store.Results.List(ctx, id, store.ResultPage{After: from, Limit: page.limit})
				if err != nil {
					return err
				}
				next := ""
				if more {
					last := results[len(results)-1]
					next = changedPlace(last.At, last.ID)
				}
				return p.printResults(results, next, c.at)
			})(cmd, args)
		},
	}
	page.register(cmd, "results")
	return cmd
}

func (p *plansCommand) printResults(results []*repeat.Result, next string, now time.Time) error {
	views := make([]json.RawMessage, len(results))
	t := newTable("STEP", "TRY", "TIME OF THE STEP", "ENDED", "WORKER", "STATE", "RESULT")
	for i, r := range results {
		var err error
		if views[i], err = view.Stored(r, "id"); err != nil {
			return err
		}
		t.add(fmt.Sprint(r.Step), fmt.Sprint(r.Try), human.Stamp(r.PlanTime), human.Relative(r.At, now), r.Worker, r.State, human.OneLine(returned(r), 100))
	}
	return p.printPage("results", views, next, t, "no results: no step has ended")
}

// returned is what a participant of a step returned, or why it did not.
func returned(r *repeat.Result) string {
	if r.ErrorInfo == "" && r.Result.Type != 0 {
		return string(codec.ValueJSON(r.Result))
	}
	return r.ErrorInfo
}
