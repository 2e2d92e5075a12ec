package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
)

// traced is a world whose spans are recorded.
type traced struct {
	*world
	spans *tracetest.InMemoryExporter
}

func newTraced(t *testing.T) *traced {
	spans := tracetest.NewInMemoryExporter()
	return &traced{newWorld(t, func(c *flow.Config) { c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) }), spans}
}

// of is the context of somebody with a span.
func (w *traced) of(who string) (context.Context, trace.SpanContext) {
	ctx, span := w.tp.Tracer("a service").Start(w.t.Context(), who)
	return ctx, span.SpanContext()
}

// all are the spans of that name.
func (w *traced) all(name string) (found tracetest.SpanStubs) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// processed waits until the spans of so many executions have ended, and returns which span they link to
// beside their claim, by the keys of their tasks.
func (w *traced) processed(n int) map[string]trace.SpanID {
	w.t.Helper()
	w.eventually("all executions have spans", func() bool { return len(w.all("process add")) >= n })
	require.Len(w.t, w.all("process add"), n)
	out := map[string]trace.SpanID{}
	for _, s := range w.all("process add") {
		require.NotEmpty(w.t, s.Links)
		for _, a := range s.Attributes {
			if a.Key == "messaging.message.id" {
				out[a.Value.AsString()[len("-/add/"):]] = s.Links[0].SpanContext.SpanID()
			}
		}
	}
	return out
}

// The flow has a node with elements, and one that starts a flow.
func TestAllTasksOfAFlowBelongToTheTraceOfItsStart(t *testing.T) {
	t.Parallel()
	w := newTraced(t)
	ctx, caller := w.of("order")
	spec := within("f")
	each := fanned("f", []int{1, 2}, graph.Each{})
	spec.Args, each.Nodes[1].After, each.Nodes[2].ID = each.Args, []string{"after"}, "last"
	spec.Nodes = append(spec.Nodes, each.Nodes[1:]...)
	began := time.Now()
	f, err := w.flows.Start(ctx, spec)
	require.NoError(t, err)
	w.becomes(f.ID, graph.StatusFinish)
	processed := w.processed(7)
	require.Len(t, w.all("start flow"), 1)
	start := w.all("start flow")[0]
	require.Equal(t, caller.SpanID(), start.Parent.SpanID())
	require.Equal(t, trace.SpanKindProducer, start.SpanKind)
	id := start.SpanContext.SpanID()
	want := map[string]trace.SpanID{}
	for _, key := range []string{"f:a", "f:after", "f:last", "f.in:x", "f.in:y", "f:each/0", "f:each/1"} {
		want["flow:"+key] = id
	}
	require.Equal(t, want, processed)
	for _, s := range w.all("process add") {
		if s.StartTime.Sub(began) < 50*time.Second {
			require.Equal(t, caller.TraceID(), s.SpanContext.TraceID())
		}
	}
}

func TestARetriedFlowBelongsToTheTraceOfWhoRetriesIt(t *testing.T) {
	t.Parallel()
	w := newTraced(t)
	s := diamond("f")
	f := w.start(s)
	w.becomes(f.ID, graph.StatusFinish)
	w.processed(4)
	ctx, person := w.of("person")
	_, err := w.flows.RetryFrom(ctx, f.ID, "b")
	require.NoError(t, err)
	processed := w.processed(6)
	start := w.all("start flow")[0].SpanContext.SpanID()
	require.Equal(t, map[string]trace.SpanID{"flow:f:a": start, "flow:f:b": person.SpanID(), "flow:f:c": start, "flow:f:d": person.SpanID()}, processed)
	w.becomes(f.ID, graph.StatusFinish)
	_, err = w.flows.RetryFrom(t.Context(), f.ID, "d") // by somebody without a span
	require.NoError(t, err)
	require.Equal(t, person.SpanID(), w.processed(7)["flow:f:d"])
}

func TestANodeOfAStreamBelongsToTheTraceOfItsAppend(t *testing.T) {
	t.Parallel()
	w := newTraced(t)
	w.fails("s/g", "b", true)
	append1, first := w.of("first")
	_, err := w.flows.Append(append1, "s", "g", node("a"), node("b"), node("c"))
	require.NoError(t, err)
	w.becomes("s/g", graph.StatusPending)
	w.processed(2)
	w.fails("s/g", "b", false)
	retry, person := w.of("person")
	_, err = w.flows.RetryFrom(retry, "s/g", "b")
	require.NoError(t, err)
	w.processed(4)
	append2, second := w.of("second")
	_, err = w.flows.Append(append2, "s", "g", node("d"))
	require.NoError(t, err)
	_, err = w.flows.Append(t.Context(), "s", "g", node("e"))
	require.NoError(t, err)
	processed := w.processed(6)
	appends := map[trace.SpanID]trace.SpanID{} // by their parents
	for _, s := range w.all("append") {
		appends[s.Parent.SpanID()] = s.SpanContext.SpanID()
	}
	require.Len(t, appends, 3)
	require.Equal(t, map[string]trace.SpanID{
		"stream:s/g:a": appends[first.SpanID()], "stream:s/g:b": person.SpanID(), "stream:s/g:c": appends[first.SpanID()],
		"stream:s/g:d": appends[second.SpanID()], "stream:s/g:e": appends[trace.SpanID{}],
	}, processed)
}

func TestWithoutSpansNoDocumentOfAFlowHasATrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.start(diamond("f"))
	w.becomes(f.ID, graph.StatusFinish)
	w.appends("s", "g", node("a"))
	w.eventually("the node of the stream has run", func() bool { return w.record("s/g/a").Status == graph.NodeSuccess })
	for _, collection := range []string{"flows", "flow_nodes", "tasks"} {
		n, err := w.db.Collection(collection).CountDocuments(t.Context(), bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "trace", Value: bson.D{{Key: "$exists", Value: true}}}}, bson.D{{Key: "task.trace", Value: bson.D{{Key: "$exists", Value: true}}}},
		}}})
		require.NoError(t, err)
		require.Zero(t, n, collection)
	}
}
