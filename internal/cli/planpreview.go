package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func (p *plansCommand) preview() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use: "preview ID", Short: "Show the next steps of a plan", Args: one("the id of a plan"),
		Long: "Show the next steps of a plan, beginning with the one that waits or runs, if each ends as soon as it\n" +
			"starts: their times in the plan's zone and in UTC, and which are skipped and why. The command writes\nnothing. For a plan that is not published: mscheduler plan publish --dry-run.",
		Example: "  mscheduler plan preview nightly-report -n 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCount(n); err != nil {
				return err
			}
			return p.onPlan(func(ctx context.Context, c *connection, id string) error {
				doc, err := c.plans.Get(ctx, id)
				if err != nil {
					return err
				}
				preview, err := view.PlanPreviewOf(doc, c.at, time.Time{}, n)
				if err != nil {
					return err
				}
				if err := p.printPreviews([]view.PlanPreview{preview}, c.at); err != nil {
					return err
				}
				if doc.Status == repeat.StatusError {
					p.say("the plan is ERROR, so no step starts; to let it go on: mscheduler plan reset %s", human.PlanArg(id))
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().IntVarP(&n, "count", "n", 10, "number of steps")
	return cmd
}

func (p *plansCommand) printPreviews(previews []view.PlanPreview, now time.Time) error {
	t := newTable("PLAN", "STEP", "LOCAL", "", "UTC", "FROM NOW", "RUNS", "WHY NOT")
	for _, preview := range previews {
		for _, x := range preview.Times {
			id := human.PlanID(preview.ID)
			if x.Over {
				t.add(id, "", "", "", "", "", "over", x.Why)
				continue
			}
			step, runs := fmt.Sprint(x.Step), "yes"
			if x.Skipped > 0 {
				runs = "no"
			}
			if x.Skipped > 1 {
				step = fmt.Sprintf("%d to %d", x.Step, x.Step+x.Skipped-1)
			}
			t.add(id, step, x.At.Format(localLayout), x.At.Format("Mon"), human.Stamp(x.At), human.Relative(x.At, now), runs, x.Why)
		}
	}
	return p.resultTable(map[string]any{"plans": previews}, t, "no step")
}

const localLayout = "2006-01-02 15:04:05-07:00"
