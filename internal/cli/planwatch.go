package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/plan"
)

const planWatchHelp = `Watch the results of plans as engines store them, until interrupted: of one plan, of those with a
description, or of all.

Each line is what one participant of a step did, or says that a step is due and no live worker takes
its task (NO_WORKER). With -o json each line is one JSON object; pass its token to --after to resume,
while the server still has the results.

It needs a change stream. At most two watchers of results in the whole fleet have one at a time. A
standalone server has none; ` + "`plan results`" + ` works there, too.`

func (p *plansCommand) watch() *cobra.Command {
	var topic plan.Topic
	cmd := &cobra.Command{
		Use: "watch [ID]", Short: "Watch the results of plans as they are stored", Args: oneOrNone("the id of a plan, or nothing for all plans"), Long: planWatchHelp,
		Example: "  mscheduler plan watch nightly-report\n  mscheduler plan watch --description sales -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if cmd.Flags().Changed("tenant") {
					if err := input.Name("--tenant", topic.Tenant); err != nil {
						return err
					}
				}
				return p.onDatabase(func(ctx context.Context, c *connection, _ []string) error { return p.printWatched(ctx, c, topic) })(cmd, nil)
			}
			if cmd.Flags().Changed("tenant") {
				return usage("--tenant is for the plans of a tenant; the id of a plan has its own")
			}
			return p.onPlan(func(ctx context.Context, c *connection, id string) error {
				if _, err := c.plans.Get(ctx, id); err != nil {
					return err
				}
				topic.Tenant, topic.Subtitle, _ = strings.Cut(id, "/")
				return p.printWatched(ctx, c, topic)
			})(cmd, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&topic.Title, "description", "", "only results of plans with this description, which is their topic")
	fs.StringVar(&topic.Tenant, "tenant", "", "only results of plans of this tenant; - for plans without a tenant")
	fs.StringVar(&topic.After, "after", "", "start after the result with this token; defaults to now")
	for _, name := range []string{"description", "tenant", "after"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

func (p *plansCommand) printWatched(ctx context.Context, c *connection, topic plan.Topic) error {
	if err := p.sayIdle(ctx, c); err != nil {
		return unless(ctx.Err() != nil, err)
	}
	p.say("watching; Ctrl-C stops")
	last := topic.After
	for e, err := range c.plans.Subscribe(ctx, topic) {
		if err != nil && ctx.Err() != nil {
			if last != "" {
				p.say("to continue: --after %s", last)
			}
			return nil
		}
		if err != nil {
			return watchError(err, "`mscheduler plan results` works without them")
		}
		doc, err := view.Stored(&e.Result, "id", bson.E{Key: "token", Value: e.Token})
		if err != nil {
			return err
		}
		if err := p.printLine(doc, planResultLine(&e)); err != nil {
			return err
		}
		last = e.Token
	}
	return nil
}

// planResultLine is a result that was published, as a person reads it.
func planResultLine(e *plan.Event) string {
	r := &e.Result
	line := fmt.Sprintf("%s  %-10s  %s  step %d", r.At.UTC().Format(clock.Format), r.State, human.PlanID(r.Plan), r.Step)
	if r.Try > 0 {
		line += fmt.Sprintf(" try %d", r.Try)
	}
	if r.Worker != "" {
		line += " by " + r.Worker
	}
	if text := returned(r); text != "" {
		line += "  " + human.OneLine(text, 200)
	}
	return line
}
