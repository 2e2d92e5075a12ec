package periodic

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/tracing"
)

// begin begins the spans of the ticks of a decision. The task of a tick belongs to the trace of its span,
// and that of a run that a person starts to the trace of who starts it.
func (p *Periodic) begin(ctx context.Context, w store.RuleWrite, now time.Time) (end func(error)) {
	caller := tracing.Of(ctx, now)
	if !p.tracer.On() && caller == nil {
		return nil
	}
	var ends []func(error)
	for _, tick := range tickplan.Ticks(w.Before, w.After) {
		from := caller
		if !tick.Manual {
			var ended func(error)
			from, ended = p.tracer.Begin(ctx, "tick", now, attribute.String("mscheduler.rule", w.After.Name),
				attribute.String("mscheduler.tick.nominal", tick.Nominal.UTC().Format(time.RFC3339)),
				attribute.String("mscheduler.tick.result", tick.Result), attribute.Int64("mscheduler.tick.count", tick.Count))
			ends = append(ends, ended)
		}
		if tick.Task != nil {
			tick.Task.Trace = from
		}
	}
	return func(err error) {
		for _, end := range ends {
			end(err)
		}
	}
}
