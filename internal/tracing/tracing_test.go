package tracing

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/model"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestAStoredContextIsThatOfTheSpan(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_789_000, time.UTC)
	ctx := FromRequest(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {"shop=1"}}.Get)
	stored := Of(ctx, at)
	require.Equal(t, &model.Trace{Parent: parent, State: "shop=1", At: at.Truncate(time.Millisecond)}, stored)
	require.Equal(t, trace.SpanContextFromContext(ctx), Context(stored))
	h := http.Header{}
	ToRequest(ctx, h)
	require.Equal(t, http.Header{"Traceparent": {parent}, "Tracestate": {"shop=1"}}, h)
}

func TestAMalformedContextIsNone(t *testing.T) {
	for _, bad := range []string{
		"", "x", parent[:54], parent + "-x", strings.ToUpper(parent), strings.Replace(parent, "0af7", "0ag7", 1), "ff" + parent[2:],
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		ctx := FromRequest(t.Context(), http.Header{"Traceparent": {bad}}.Get)
		require.Equal(t, t.Context(), ctx, bad)
		require.Nil(t, Of(ctx, time.Now()), bad)
		require.False(t, Context(&model.Trace{Parent: bad}).IsValid(), bad)
	}
}

func TestALongTracestateIsDropped(t *testing.T) {
	state := "vendor=" + strings.Repeat("x", 250) + ",other=" + strings.Repeat("y", 250) + ",third=1"
	ctx := FromRequest(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {state}}.Get)
	require.Positive(t, trace.SpanContextFromContext(ctx).TraceState().Len())
	require.Equal(t, parent, Of(ctx, time.Now()).Parent)
	require.Empty(t, Of(ctx, time.Now()).State)
}
