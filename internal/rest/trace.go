package rest

import (
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/tracing"
)

// traced has an operation belong to the trace of its request, and records a span of it. It comes after
// [API.admit]: nobody without a token decides what is recorded. A span that the context has is that of
// the service that mounts the API, and knows the request's.
func (s *API) traced(op huma.Operation) func(huma.Context, func(huma.Context)) {
	name := op.Method + " " + op.Path
	return func(c huma.Context, next func(huma.Context)) {
		ctx := c.Context()
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = tracing.FromRequest(ctx, c.Header)
		}
		if !s.tracer.On() {
			next(huma.WithContext(c, ctx))
			return
		}
		ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", op.Method), attribute.String("http.route", op.Path)))
		defer span.End()
		c = huma.WithContext(c, ctx)
		next(c)
		status := c.Status()
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			tracing.Fail(span, strconv.Itoa(status), http.StatusText(status))
		}
	}
}
