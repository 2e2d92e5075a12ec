// Package tracing is what this project does with OpenTelemetry: spans that cost nothing where no
// provider was given, and the W3C context of a span as a task stores it.
//
// It uses the API of OpenTelemetry alone. Who exports spans gives a provider to the Configs, as
// internal/cli does. Names of spans and attributes follow OpenTelemetry's conventions for
// messaging; attributes of this project begin with mscheduler.
package tracing

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Together is for how long after a context was stored what it led to is a part of its trace. What
// begins later has a trace of its own, with a link: backends look at a trace as complete after a
// while, and a trace of days shows nothing.
const Together = time.Minute

const (
	// maxState is how much of a tracestate is stored: what the W3C asks of everybody. A longer
	// one is dropped whole, which its standard allows.
	maxState = 512
	maxText  = 1 << 10 // of the error of a span
	maxLinks = 128     // of a span, the default of the SDKs
)

// Tracer starts the spans of this project. The zero value starts none.
type Tracer struct{ t trace.Tracer }

// New makes a tracer. A nil provider makes the zero value.
func New(p trace.TracerProvider) Tracer {
	if p == nil {
		return Tracer{}
	}
	return Tracer{p.Tracer("github.com/mscheduler/mscheduler")}
}

// On reports whether it starts spans.
func (t Tracer) On() bool { return t.t != nil }

// Start starts a span. The caller has asked [Tracer.On], and ends the span.
func (t Tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.t.Start(ctx, name, opts...)
}

// Message are the attributes of a span about tasks of a type; "" = of several.
func Message(operation, kind, typ string) []attribute.KeyValue {
	a := append(make([]attribute.KeyValue, 0, 16),
		attribute.String("messaging.system", "mscheduler"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", kind))
	if typ != "" {
		a = append(a, attribute.String("messaging.destination.name", typ))
	}
	return a
}

// Name is the name of a span: what is done, and with tasks of which type, "" = of several.
func Name(operation, typ string) string {
	if typ == "" {
		return operation
	}
	return operation + " " + typ
}

// Fail says that what the span is about failed. kind is a word for the reason.
func Fail(s trace.Span, kind, why string) {
	s.SetAttributes(attribute.String("error.type", kind))
	s.SetStatus(codes.Error, safetext.Clip(why, maxText))
}

// Begin starts the span of something that leads to tasks, as a child of ctx's. from is the context that they
// store: that of ctx's span if no spans are started, nil if there is none. end ends the span.
func (t Tracer) Begin(ctx context.Context, name string, now time.Time, about ...attribute.KeyValue) (from *model.Trace, end func(error)) {
	if !t.On() {
		return Of(ctx, now), func(error) {}
	}
	ctx, span := t.t.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(about...))
	return Of(ctx, now), func(err error) { End(span, err) }
}

// BeginAfter is [Tracer.Begin] for something that a stored context led to: the span is related to it as [Child]
// says. If no spans are started, from is the stored context itself.
func (t Tracer) BeginAfter(ctx context.Context, name string, stored *model.Trace, now time.Time, about ...attribute.KeyValue) (from *model.Trace, end func(error)) {
	if !t.On() {
		return stored, func(error) {}
	}
	ctx, related := Child(ctx, stored, now)
	ctx, span := t.t.Start(ctx, name, append(related, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(about...))...)
	return Of(ctx, now), func(err error) { End(span, err) }
}

// End ends a span; err is what it ended with.
func End(s trace.Span, err error) {
	if err != nil {
		Fail(s, fmt.Sprintf("%T", err), err.Error())
	}
	s.End()
}

// Links are links to the spans that the tasks' contexts name.
func Links(tasks []*model.Task) (links []trace.Link) {
	for _, t := range tasks {
		if sc := Context(t.Trace); sc.IsValid() && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	return links
}

// Of is the context of ctx's span as tasks store it; nil = there is no span.
func Of(ctx context.Context, now time.Time) *model.Trace {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return nil
	}
	t := &model.Trace{At: clock.Millis(now)}
	propagation.TraceContext{}.Inject(ctx, carrier{t})
	if len(t.State) > maxState {
		t.State = ""
	}
	return t
}

// Context is the span context that a task stores; not valid = it stores none, or it is malformed.
func Context(t *model.Trace) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier{t}))
}

// In is ctx with the span that the task's context names as its remote span; ctx itself if there is
// none.
func In(ctx context.Context, t *model.Trace) context.Context {
	if sc := Context(t); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// Child is how a span starts that a stored context led to: as its child, or later with a trace of
// its own; with a link to it in any case.
func Child(ctx context.Context, from *model.Trace, now time.Time) (context.Context, []trace.SpanStartOption) {
	sc := Context(from)
	switch {
	case !sc.IsValid():
		return ctx, []trace.SpanStartOption{trace.WithNewRoot()}
	case now.Sub(from.At) > Together:
		return ctx, []trace.SpanStartOption{trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: sc})}
	default:
		return trace.ContextWithRemoteSpanContext(ctx, sc), []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: sc})}
	}
}

// Apart is ctx without a span: what it begins has another cause than what ctx came with.
func Apart(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// ID is the trace of a ctx's span as logs name it; "" = there is none.
func ID(sc trace.SpanContext) string {
	if !sc.HasTraceID() {
		return ""
	}
	return sc.TraceID().String()
}

// FromRequest is ctx with the span context of a request's headers; ctx itself if there is none, or
// a malformed one.
func FromRequest(ctx context.Context, header func(string) string) context.Context {
	return In(ctx, &model.Trace{Parent: header("Traceparent"), State: header("Tracestate")})
}

// ToRequest gives the headers of a request the context of ctx's span.
func ToRequest(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// carrier is a stored context as the propagator reads and writes it.
type carrier struct{ t *model.Trace }

func (c carrier) Get(key string) string {
	switch key {
	case "traceparent":
		return c.t.Parent
	case "tracestate":
		return c.t.State
	default:
		return ""
	}
}

func (c carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.t.Parent = value
	case "tracestate":
		c.t.State = value
	}
}

func (carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
