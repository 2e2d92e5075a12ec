package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
)

const (
	callersTrace  = "0af7651916cd43dd8448eb211c80319c"
	callersSpan   = "b7ad6b7169203331"
	callersParent = "00-" + callersTrace + "-" + callersSpan + "-01"
)

func TestATaskThatIsSentOverHTTPBelongsToTheCallersTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	w := newWorld(t, func(c *rest.Config) { c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) })
	w.header = http.Header{"Traceparent": {callersParent}, "Tracestate": {"shop=1"}}
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.Len(t, spans.GetSpans(), 2)
	send, request := spans.GetSpans()[0], spans.GetSpans()[1]
	require.Equal(t, "send mail", send.Name)
	require.Equal(t, "POST /api/v1/tasks", request.Name)
	require.Equal(t, callersSpan, request.Parent.SpanID().String())
	require.Equal(t, callersTrace, request.SpanContext.TraceID().String())
	require.Equal(t, request.SpanContext.SpanID(), send.Parent.SpanID())

	stored := "00-" + callersTrace + "-" + send.SpanContext.SpanID().String() + "-01"
	task := w.ok("GET", "/api/v1/tasks/-/mail/k", "")
	require.Equal(t, stored, at(task, "trace.traceparent"))
	require.Equal(t, "shop=1", at(task, "trace.tracestate"))
	fetched := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["mail"]}`)
	require.Equal(t, stored, at(fetched, "tasks.0.traceparent"))
	require.Equal(t, "shop=1", at(fetched, "tasks.0.tracestate"))
}

// Otherwise anybody who reaches the server decides how many spans it exports, and in which traces.
func TestARequestThatIsRefusedHasNoSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	w := newWorld(t, func(c *rest.Config) {
		c.NoTokens, c.TracerProvider = false, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	})
	viewer, operator := w.with(access.Viewer), w.with(access.Operator)
	w.header = http.Header{"Traceparent": {callersParent}}
	w.fails(http.StatusUnauthorized, "GET", "/api/v1/tasks", "")
	w.by("msk_x_y").fails(http.StatusUnauthorized, "GET", "/api/v1/tasks", "")
	viewer.as("Traceparent", callersParent).fails(http.StatusForbidden, "POST", "/api/v1/tasks", `{"type": "mail"}`)
	require.Empty(t, spans.GetSpans())
	operator.as("Traceparent", callersParent).fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tasks", "{}")
	require.Len(t, spans.GetSpans(), 1, "what the operation refuses has one")
	require.Equal(t, callersTrace, spans.GetSpans()[0].SpanContext.TraceID().String())
}

func TestATraceOfARequestIsHandedOnWithoutAProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.header = http.Header{"Traceparent": {callersParent}}
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.Equal(t, callersParent, at(w.ok("GET", "/api/v1/tasks/-/mail/k", ""), "trace.traceparent"))

	w.header = http.Header{"Traceparent": {"00-" + callersTrace + "-x-01"}}
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "malformed"}`)
	require.Nil(t, at(w.ok("GET", "/api/v1/tasks/-/mail/malformed", ""), "trace"))
}

func TestFlowsAndPlansOverHTTPBelongToTheCallersTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	w := newWorld(t, func(c *rest.Config) { c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) })
	w.header = http.Header{"Traceparent": {callersParent}}
	for _, c := range []struct {
		path, body string
		spans      []string // each the child of the next
	}{
		{"/api/v1/flows", `{"key": "f", "nodes": [{"id": "a", "type": "mail"}]}`, []string{"start flow", "POST /api/v1/flows"}},
		{"/api/v1/plans", `{"plan_id": "p", "station": "mail", "plan_type": "none", "messages": ["m"]}`, []string{"plan step", "publish", "POST /api/v1/plans"}},
	} {
		spans.Reset()
		w.ok("POST", c.path, c.body)
		got := spans.GetSpans()
		require.Len(t, got, len(c.spans))
		for i, span := range got {
			require.Equal(t, c.spans[i], span.Name)
			require.Equal(t, callersTrace, span.SpanContext.TraceID().String())
			if i > 0 {
				require.Equal(t, span.SpanContext.SpanID(), got[i-1].Parent.SpanID())
			}
		}
	}
	fetched := w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["mail"], "max": 2}`)
	require.Contains(t, at(fetched, "tasks.0.traceparent"), callersTrace)
	require.Contains(t, at(fetched, "tasks.1.traceparent"), callersTrace)
}
