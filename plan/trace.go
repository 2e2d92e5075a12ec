package plan

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// begin begins the span of the step that a decision starts; nil = it starts none. It belongs to the trace of who
// published or reset the plan. The task of the step belongs to the span.
func (p *Plans) begin(ctx context.Context, w store.Decision[*repeat.Plan], now time.Time) (end func(error)) {
	if !p.tracer.On() {
		return nil
	}
	for k := range w.After.Planned {
		pl := &w.After.Planned[k]
		known := slices.ContainsFunc(w.Before.Planned, func(old repeat.Planned) bool { return old.ID == pl.ID })
		if known || pl.Do != stepplan.DoSend && pl.Do != stepplan.DoAgain {
			continue
		}
		pl.Trace, end = p.tracer.BeginAfter(ctx, "plan step", w.After.Trace, now, attribute.String("mscheduler.plan", w.After.ID),
			attribute.Int64("mscheduler.plan.step", pl.Step), attribute.Int64("mscheduler.plan.try", pl.Try),
			attribute.String("mscheduler.plan.time", w.After.PlanTime.UTC().Format(time.RFC3339)),
			attribute.Int64("mscheduler.plan.skipped", w.After.Skipped-w.Before.Skipped))
	}
	return end
}

// beginFirst begins the spans of the first steps of new plans. ended ends those of plans that were stored.
func (p *Plans) beginFirst(ctx context.Context, plans []*repeat.Plan, now time.Time) (ended func(error)) {
	ends := make([]func(error), len(plans))
	for i, doc := range plans {
		ends[i] = p.begin(ctx, store.Decision[*repeat.Plan]{Before: new(repeat.Plan), After: doc}, now)
	}
	of := slices.Clone(plans)
	return func(err error) {
		for i, end := range ends {
			if end != nil && of[i].Created {
				end(err)
			}
		}
	}
}
