package periodic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// newTraced is a driven rule that skips a tick while a run is active, and whose ticks have spans.
func newTraced(t *testing.T) (*driven, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return newDriven(t, schedule.Spec{Overlap: schedule.OverlapSkip}, func(c *Config) {
		c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	}), spans
}

// task is the task of a run.
func (d *driven) task(run string) *model.Task {
	d.t.Helper()
	task, err := d.prod.Get(d.t.Context(), model.TaskID("", "tick", run))
	require.NoError(d.t, err)
	return task
}

func TestATickThatStartsOrSkipsARunIsASpan(t *testing.T) {
	d, spans := newTraced(t)
	started := d.tick()
	first := d.last
	d.tick()
	want := []struct {
		at     time.Time
		result string
	}{{first, tickplan.TickStarted}, {d.last, string(tickplan.SkipOverlap)}}
	got := spans.GetSpans()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, "tick", got[i].Name)
		require.Equal(t, trace.SpanKindProducer, got[i].SpanKind)
		about := map[string]any{}
		for _, a := range got[i].Attributes {
			about[string(a.Key)] = a.Value.AsInterface()
		}
		require.Equal(t, map[string]any{
			"mscheduler.rule": "a", "mscheduler.tick.nominal": w.at.UTC().Format(time.RFC3339), "mscheduler.tick.result": w.result, "mscheduler.tick.count": int64(1),
		}, about)
	}
	require.NotEqual(t, got[0].SpanContext.TraceID(), got[1].SpanContext.TraceID(), "each tick has a trace of its own")
	require.Equal(t, got[0].SpanContext.SpanID(), tracing.Context(d.task(started.ID).Trace).SpanID())
	require.Equal(t, got[0].SpanContext.TraceID(), tracing.Context(d.task(started.ID).Trace).TraceID())
}

func TestADecisionThatAnotherEngineWasFasterWithHasNoSpan(t *testing.T) {
	d, spans := newTraced(t)
	before, err := d.p.Get(t.Context(), d.id)
	require.NoError(t, err)
	cal, err := d.p.calendarOf(before)
	require.NoError(t, err)
	after := tickplan.Plan(before, cal, before.NextFireAt.Add(time.Millisecond))
	d.tick()
	require.Len(t, spans.GetSpans(), 1)
	applied, _, err := d.p.decider.Several(t.Context(), clock.Read(d.p.store.Local()), []store.RuleWrite{{Before: before, After: after}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, applied)
	require.Len(t, spans.GetSpans(), 1)
}

func TestARunOfAPersonBelongsToThePersonsTrace(t *testing.T) {
	d, spans := newTraced(t)
	ctx, person := d.p.tracer.Start(t.Context(), "person")
	run, err := d.p.Trigger(ctx, d.id, TriggerOptions{})
	require.NoError(t, err)
	require.Equal(t, person.SpanContext().SpanID(), tracing.Context(d.task(run).Trace).SpanID())
	require.Empty(t, spans.GetSpans(), "a person's run is no tick")
}

func TestWithoutAProviderATaskOfATickStoresNoTrace(t *testing.T) {
	d := newDriven(t, schedule.Spec{})
	require.Nil(t, d.task(d.tick().ID).Trace)
}
