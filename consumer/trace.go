package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

// traceClaim records the claim of executions, from when it was sent, with links to what sent their
// tasks. The executions link to it.
func (c *Consumer) traceClaim(out *claim.Outcome, xs []*execution) {
	if !c.tracer.On() {
		return
	}
	typ, tasks := xs[0].task.Type, make([]*model.Task, len(xs))
	for i, x := range xs {
		if tasks[i] = x.task; x.task.Type != typ {
			typ = ""
		}
	}
	attributes := append(tracing.Message("claim", "receive", typ),
		attribute.String("messaging.client.id", c.cfg.WorkerID),
		attribute.Int("messaging.batch.message_count", len(xs)),
		attribute.String("mscheduler.exec_id", input.ShownExecID(out.ExecID)))
	ctx, span := c.tracer.Start(context.Background(), tracing.Name("claim", typ),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...), trace.WithLinks(tracing.Links(tasks)...),
		trace.WithTimestamp(c.cfg.Clock.Now().Add(-out.Stamp.At.SinceMonotonic(c.cfg.Clock))))
	span.End()
	for _, x := range xs {
		x.claim = trace.SpanContextFromContext(ctx)
	}
}

// traced is the handler's context with the span of the execution. Without a tracer it is that of
// what sent the task: what the handler sends belongs to the same trace.
func (c *Consumer) traced(ctx context.Context, x *execution, late time.Duration) context.Context {
	if !c.tracer.On() {
		return tracing.In(ctx, x.task.Trace)
	}
	t := x.task
	attributes := append(tracing.Message("process", "process", t.Type),
		attribute.String("messaging.message.id", t.ID),
		attribute.String("messaging.client.id", c.cfg.WorkerID),
		attribute.String("mscheduler.exec_id", input.ShownExecID(x.execID)),
		attribute.Int64("mscheduler.generation", t.Generation),
		attribute.Int("mscheduler.attempt", x.attempt),
		attribute.Int64("mscheduler.delay_ms", late.Milliseconds()))
	if t.Tenant != "" {
		attributes = append(attributes, attribute.String("mscheduler.tenant", t.Tenant))
	}
	if t.Origin != nil {
		attributes = append(attributes, attribute.String("mscheduler.origin.kind", t.Origin.Kind), attribute.String("mscheduler.origin.id", t.Origin.ID))
	}
	if x.previous != "" {
		attributes = append(attributes, attribute.String("mscheduler.taken_over_from", x.previous))
	}
	ctx, opts := tracing.Child(ctx, t.Trace, c.store.Clock.Now())
	opts = append(opts, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	if x.claim.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: x.claim}))
	}
	ctx, span := c.tracer.Start(ctx, tracing.Name("process", t.Type), opts...)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.span = span
	return ctx
}

// endSpan ends the execution's span by what its handler said.
func (x *execution) endSpan(out lifecycle.Outcome, cause error, parked bool) {
	if x.span == nil { // it is of the goroutine that runs the execution
		return
	}
	outcome := cmp.Or(out.Kind, measure.Success)
	switch {
	case parked:
		outcome = "parked"
	case errors.Is(cause, ErrLeaseLost):
		outcome = "lease_lost"
		tracing.Fail(x.span, outcome, cause.Error())
	case out.Kind != "" && out.Kind != failkind.Released && out.Kind != failkind.Cancelled:
		tracing.Fail(x.span, outcome, out.Reason)
	}
	x.span.SetAttributes(attribute.String("mscheduler.outcome", outcome))
	x.span.End()
}

// traceRetry notes a retry inside the execution with its span.
func (c *Consumer) traceRetry(x *execution, n int, err error) {
	if x.span != nil {
		x.span.AddEvent("local retry", trace.WithAttributes(attribute.Int("mscheduler.local_retry", n), attribute.String("error.type", fmt.Sprintf("%T", err))))
	}
}

// stepSpan begins the span of a step.
func (c *Consumer) stepSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return c.tracer.Start(ctx, "step "+name, trace.WithAttributes(attribute.String("mscheduler.step", name)))
}

// TraceID is the trace of the execution; that of what sent the task before it has one.
func (x *execution) TraceID() string {
	x.mu.Lock()
	span := x.span
	x.mu.Unlock()
	if span == nil {
		return tracing.ID(tracing.Context(x.task.Trace))
	}
	return tracing.ID(span.SpanContext())
}

// about says in a log line which execution it is about.
func about(e *zerolog.Event, x *execution) *zerolog.Event {
	return finish.About(e, x.task.ID, x.execID, x.TraceID())
}
