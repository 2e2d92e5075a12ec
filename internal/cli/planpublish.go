package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const planPublishHelp = `Publish the plans of a file. All of the file is checked before anything is written. A plan_id names
one plan: if a plan with the id exists, also one that is over, nothing changes.

The file has one plan per document, or lists of plans, as YAML or JSON; - is stdin:

  plan_id: nightly-report         # defaults to a generated id
  station: report                 # the type of the steps' tasks
  plan_type: day                  # none: at once; time: at plan_time; second, minute, hour,
                                  # day: after intervals; week, month: on a day
  plan_value: 1                   # the interval, 0 to 32767; week: the day, 0 (Sunday) to 6;
                                  # month: 1 to 31, 0 the last day, -1 to -31 days before that
  plan_repet: -1                  # number of steps; -1 = no end
  plan_time: 2026-12-01 02:30     # intervals count from it (default: now); without an offset
                                  # it is in the zone; week and month: the time of day, 02:30
  timezone: Europe/Berlin         # defaults to UTC
  no_keep: false                  # true: every step runs, late ones one after the other;
                                  # false: times that have passed are skipped
  messages: [sales, {top: 10}]    # arguments of each step: 1 to 1000 values, at most 240 KiB
  plan_exec_timeout: 5m           # lease of a step: it does not start again before that lapses
  options: {retry: {max_errors: 3}}   # options of the steps' tasks

A plan also has tenant, request_id, caller (the creator of the steps' tasks), description (the topic
of its results), priority and callback, whose success is called when the plan is FINISH, and whose
error when it is ERROR.

The first step of an interval is one interval after plan_time. Skipped times count as steps. A step
that fails starts again, also after the retries of its task. A fatal error or a plan error of a step stops
the plan: it is ERROR until ` + "`plan reset`" + `.

--dry-run writes nothing and needs no database. It shows the next steps of each plan.`

// maxPreview bounds how many steps a preview has.
const maxPreview = 10_000

func (p *plansCommand) publish() *cobra.Command {
	var f applyFlags
	var n int
	cmd := &cobra.Command{
		Use: "publish -f FILE", Short: "Publish plans from a file", Args: noArgs, Long: planPublishHelp,
		Example: "  mscheduler plan publish -f plans.yaml --dry-run\n  mscheduler plan publish -f plans.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("count") && !f.dry {
				return usage("--count requires --dry-run")
			}
			if err := checkCount(n); err != nil {
				return err
			}
			specs, err := p.readPlans(f.file)
			if err != nil {
				return err
			}
			if f.dry {
				return p.dryRun(specs, n)
			}
			return p.publishAll(cmd.Context(), specs)
		},
	}
	f.register(cmd, "show the next steps of each plan, and write nothing")
	cmd.Flags().IntVarP(&n, "count", "n", 5, "with --dry-run: number of steps of each plan")
	return cmd
}

func checkCount(n int) error {
	if n < 1 || n > maxPreview {
		return usage("--count is %d; want 1 to %d", n, maxPreview)
	}
	return nil
}

// readPlans reads the plans of a file, and finds everything that is wrong with any of them.
func (p *plansCommand) readPlans(file string) ([]repeat.Spec, error) {
	docs, err := readDocs[form.Plan](p.app, file, "a plan", "plans")
	if err != nil {
		return nil, err
	}
	specs := make([]repeat.Spec, len(docs))
	places := map[string]string{}
	var errs []error
	for i, d := range docs {
		spec, err := d.Form.Spec()
		specs[i] = spec
		err = errors.Join(err, plan.Validate(spec), builtin.CheckStation(spec.Station))
		if id := input.RuleName(spec.Tenant, spec.PlanID); spec.PlanID != "" {
			if place, twice := places[id]; twice {
				err = errors.Join(err, input.Invalid("plan_id", "is %q, as that of the plan at %s", spec.PlanID, place))
			} else {
				places[id] = d.Where()
			}
		}
		errs = append(errs, d.Locate(err))
	}
	return specs, errors.Join(errs...)
}

// dryRun shows the next steps of plans that are not published.
func (p *plansCommand) dryRun(specs []repeat.Spec, n int) error {
	now := p.clock().Now()
	previews := make([]view.PlanPreview, len(specs))
	for i := range specs {
		doc, err := stepplan.Unpublished(&specs[i], now)
		if err != nil {
			return err
		}
		if previews[i], err = view.PlanPreviewOf(doc, now, time.Time{}, n); err != nil {
			return err
		}
	}
	return p.printPreviews(previews, now)
}

// maxPublished is how many plans are published at once.
const maxPublished = 1000

func (p *plansCommand) publishAll(ctx context.Context, specs []repeat.Spec) error {
	c, err := p.connect(ctx) // the first write sets an empty database up
	if err != nil {
		return err
	}
	plans := p.several("plans")
	first := map[string]string{} // a step, by station
	runs := false
	for some := range slices.Chunk(specs, maxPublished) {
		docs, err := c.plans.PublishMany(ctx, some)
		if err != nil {
			return plans.cut(err)
		}
		for _, doc := range docs {
			if doc.Created {
				p.made(audit.Thing{Kind: audit.Plan, ID: doc.ID})
			} else {
				p.say("a plan with the id %s already exists; nothing changed", human.PlanID(doc.ID))
			}
			view, err := planJSON(doc)
			if err != nil {
				return err
			}
			if err := plans.add(view, planLine(doc, c.at)); err != nil {
				return err
			}
			if stepplan.Over(doc.Status) {
				continue
			}
			if runs = true; doc.Created && first[doc.Station] == "" && len(first) < maxTypesChecked {
				first[doc.Station] = stepplan.TaskID(doc, doc.Step)
			}
		}
	}
	if err := plans.end(ctx); err != nil {
		return err
	}
	if !runs {
		return nil
	}
	for _, station := range slices.Sorted(maps.Keys(first)) {
		p.warnUntaken(ctx, c, station, first[station])
	}
	return p.sayIdle(ctx, c)
}
