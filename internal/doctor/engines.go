package doctor

import (
	"context"
)

// flows says whether an engine carries on the flows that have something to do.
func (d *doctor) flows(ctx context.Context, engine bool) {
	runs := false
	err := d.store.Ask(ctx, "looking for flows that run", d.store.Flows.RunningQuestion(func() { runs = true }))
	switch {
	case err != nil:
		d.fail("flows", err, "")
	case !runs:
		d.ok("flows", "no node of a flow runs or may run")
	case engine:
		d.ok("flows", "nodes run, and a live engine carries their flows on")
	default:
		d.warn("flows", "nodes of flows may run, but no flow engine lives: the nodes behind them do not start",
			"start one: mscheduler work --flow, or a service that calls flow.Flows.Run")
	}
}

// plans says whether an engine plans the next steps of plans that run.
func (d *doctor) plans(ctx context.Context, engine bool) {
	runs := false
	err := d.store.Ask(ctx, "looking for plans that run", d.store.Plans.RunningQuestion(func() { runs = true }))
	switch {
	case err != nil:
		d.fail("plans", err, "")
	case !runs:
		d.ok("plans", "no plan has a step that waits or runs")
	case engine:
		d.ok("plans", "steps wait or run, and a live engine plans those behind them")
	default:
		d.warn("plans", "steps of plans wait or run, but no plan engine lives: the steps behind them do not start",
			"start one: mscheduler work --plan, or a service that calls plan.Plans.Run")
	}
}
