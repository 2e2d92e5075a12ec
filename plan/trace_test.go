package plan_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// traces are the spans that the tasks of steps store, by their keys, in the last lives.
func (w *world) traces() map[string]string {
	w.t.Helper()
	var tasks []model.Task
	found, err := w.db.Collection("tasks").Find(w.t.Context(), bson.D{{Key: "type", Value: "report"}})
	require.NoError(w.t, err)
	require.NoError(w.t, found.All(w.t.Context(), &tasks))
	out := map[string]string{}
	for _, t := range tasks {
		out[t.Key] = tracing.Context(t.Trace).SpanID().String()
	}
	return out
}

func TestTheStepsOfAPlanBelongToTheTraceOfItsPublication(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	w := newWorld(t, func(c *plan.Config) { c.TracerProvider = tp })
	tries := 0
	w.fails = func(repeat.Args[string], int) error {
		if tries++; tries == 1 {
			return consumer.Fatal(errors.New("no data"))
		}
		return nil
	}
	ctx, caller := tp.Tracer("a service").Start(t.Context(), "order")
	_, err := w.plans.Publish(ctx, every("p", 2))
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	require.Len(t, spans.GetSpans(), 1)
	published := spans.GetSpans()[0]
	require.Equal(t, "publish", published.Name)
	require.Equal(t, caller.SpanContext().SpanID(), published.Parent.SpanID())
	id := published.SpanContext.SpanID().String()
	require.Equal(t, map[string]string{"p@1": id, "p@2": id}, w.traces(), "also in the second life of the first step")
	require.Equal(t, 3, tries)
}

func TestAResetPlanBelongsToTheTraceOfWhoResetIt(t *testing.T) {
	w := newWorld(t)
	tp := sdktrace.NewTracerProvider()
	published, publisher := tp.Tracer("a service").Start(t.Context(), "order")
	_, err := w.plans.Publish(published, every("p", 2))
	require.NoError(t, err)
	w.fails = func(repeat.Args[string], int) error { return consumer.PlanError(errors.New("there is no such region")) }
	w.drain(mstest.SkipTime())
	require.Equal(t, repeat.StatusError, w.get("-/p").Status)
	require.Equal(t, map[string]string{"p@1": publisher.SpanContext().SpanID().String()}, w.traces())
	w.fails = nil
	reset, person := tp.Tracer("a service").Start(t.Context(), "reset")
	_, err = w.plans.Reset(reset, "-/p")
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	id := person.SpanContext().SpanID().String()
	require.Equal(t, map[string]string{"p@1": id, "p@2": id}, w.traces())
}

func TestAPlanThatIsPublishedWithoutASpanStoresNoTrace(t *testing.T) {
	w := newWorld(t)
	w.publish(every("p", 1))
	for _, collection := range []string{"plans", "tasks"} {
		raw, err := w.db.Collection(collection).FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		require.Zero(t, raw.Lookup("trace").Type, collection)
	}
}
