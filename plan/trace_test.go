package plan_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/stepplan"
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

// newTraced is a world whose publications and steps have spans.
func newTraced(t *testing.T) (*world, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return newWorld(t, func(c *plan.Config) {
		c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	}), spans
}

// spansOf are the spans of steps in their order, each after what its attributes say.
func spansOf(t *testing.T, spans *tracetest.InMemoryExporter) (about []map[string]any, found tracetest.SpanStubs) {
	t.Helper()
	for _, s := range spans.GetSpans() {
		if s.Name != "plan step" {
			continue
		}
		require.Equal(t, trace.SpanKindProducer, s.SpanKind)
		values := map[string]any{}
		for _, a := range s.Attributes {
			values[strings.TrimPrefix(string(a.Key), "mscheduler.")] = a.Value.AsInterface()
		}
		about, found = append(about, values), append(found, s)
	}
	return about, found
}

func TestEachStepOfAPlanIsASpanThatFollowsFromItsPublication(t *testing.T) {
	w, spans := newTraced(t)
	tries := 0
	w.fails = func(repeat.Args[string], int) error {
		if tries++; tries == 1 {
			return errors.New("no data")
		}
		return nil
	}
	ctx, caller := sdktrace.NewTracerProvider().Tracer("a service").Start(t.Context(), "order")
	p, err := w.plans.Publish(ctx, every("p", 2, unretried, func(s *repeat.Spec) { s.PlanValue = 3600 }))
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	require.Equal(t, 3, tries)
	about, steps := spansOf(t, spans)
	at := func(hours int) string {
		return p.PlanTime.Add(time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
	}
	want := func(step, try int64, hours int) map[string]any {
		return map[string]any{"plan": "-/p", "plan.step": step, "plan.try": try, "plan.time": at(hours), "plan.skipped": int64(0)}
	}
	require.Equal(t, []map[string]any{want(1, 0, 0), want(1, 1, 0), want(2, 0, 1)}, about)
	id := func(s tracetest.SpanStub) string { return s.SpanContext.SpanID().String() }
	require.Equal(t, map[string]string{"p@1": id(steps[1]), "p@2": id(steps[2])}, w.traces(), "each task belongs to the span of its try")

	var published tracetest.SpanStub
	for _, s := range spans.GetSpans() {
		if s.Name == "publish" {
			published = s
		}
	}
	require.Equal(t, caller.SpanContext().SpanID(), published.Parent.SpanID())
	require.Equal(t, published.SpanContext.SpanID(), steps[0].Parent.SpanID(), "the first step is decided by the publication")
	for _, s := range steps[1:] { // an hour later
		require.False(t, s.Parent.IsValid())
		require.Equal(t, published.SpanContext.SpanID(), s.Links[0].SpanContext.SpanID())
	}
}

func TestADecisionAboutAPlanThatAnotherEngineWasFasterWithHasNoSpan(t *testing.T) {
	w, spans := newTraced(t)
	before := w.publish(every("p", 2))
	now := before.PlanTime
	after := stepplan.Ended(before, stepplan.End{Step: 1, Status: model.StatusSuccess, At: now}, now)
	faster := stepplan.Ended(before, stepplan.End{Step: 1, Status: model.StatusCancelled, At: now}, now)
	for _, d := range []struct {
		after   *repeat.Plan
		applied bool
	}{{faster, true}, {after, false}} {
		d.after.Decision = d.after.LastState
		applied, err := w.plans.Decide(t.Context(), before, d.after)
		require.NoError(t, err)
		require.Equal(t, d.applied, applied)
		about, _ := spansOf(t, spans)
		require.Len(t, about, 2, "the first step and the second")
	}
}

func TestAPlanThatIsThereAlreadyHasNoSpanOfAStep(t *testing.T) {
	w, spans := newTraced(t)
	w.publish(every("p", 2))
	w.publish(every("p", 2))
	about, _ := spansOf(t, spans)
	require.Len(t, about, 1)
}

// The engine that sends the task of a step is not the process that decided it, and records no spans.
func TestTheTaskOfAStepBelongsToItsSpanWhoeverSendsIt(t *testing.T) {
	w, spans := newTraced(t)
	session, err := w.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) { return w.plans.Publish(ctx, every("p", 1)) })
	require.NoError(t, err)
	require.Empty(t, w.traces(), "nobody has sent it")
	w.plans, err = plan.New(plan.Config{Database: w.db})
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	_, steps := spansOf(t, spans)
	require.Len(t, steps, 1)
	require.Equal(t, map[string]string{"p@1": steps[0].SpanContext.SpanID().String()}, w.traces())
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
