package consumer

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var spanned = model.NewType[int, model.None]("spanned")

// tracedWorld is a producer and workers whose spans are recorded.
type tracedWorld struct {
	t     *testing.T
	db    *mongo.Database
	spans *tracetest.InMemoryExporter
	tp    *sdktrace.TracerProvider
	p     *producer.Producer
}

func newTracedWorld(t *testing.T) *tracedWorld {
	t.Helper()
	w := &tracedWorld{t: t, db: testdb.New(t), spans: tracetest.NewInMemoryExporter()}
	w.tp = sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	var err error
	w.p, err = producer.New(producer.Config{Database: w.db, TracerProvider: w.tp})
	require.NoError(t, err)
	return w
}

func (w *tracedWorld) send(ctx context.Context, opts ...producer.Option) producer.Sent {
	w.t.Helper()
	sent, err := producer.Send(ctx, w.p, spanned, 1, opts...)
	require.NoError(w.t, err)
	return sent
}

// drain runs everything that is due by a worker with that handler.
func (w *tracedWorld) drain(c Config, h func(context.Context, *Task[int]) (model.None, error)) {
	w.t.Helper()
	c.Database = w.db
	worker, err := New(c)
	require.NoError(w.t, err)
	require.NoError(w.t, Handle(worker, spanned, h))
	ctx, cancel := context.WithTimeout(w.t.Context(), testdb.Patience)
	defer cancel()
	_, err = worker.Drain(ctx, false)
	require.NoError(w.t, err)
}

// named are the spans of that name that have ended.
func (w *tracedWorld) named(name string) (found tracetest.SpanStubs) {
	for _, s := range w.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one is the only span of that name.
func (w *tracedWorld) one(name string) tracetest.SpanStub {
	w.t.Helper()
	found := w.named(name)
	require.Len(w.t, found, 1, name)
	return found[0]
}

// attribute is that of a span; nil = it has none.
func attributeOf(s tracetest.SpanStub, key string) any {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.AsInterface()
		}
	}
	return nil
}

func linksTo(s, to tracetest.SpanStub) bool {
	for _, l := range s.Links {
		if l.SpanContext.SpanID() == to.SpanContext.SpanID() && l.SpanContext.TraceID() == to.SpanContext.TraceID() {
			return true
		}
	}
	return false
}

func TestATraceLeadsFromTheSendToTheCallback(t *testing.T) {
	w := newTracedWorld(t)
	headers := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header.Get("Traceparent") }))
	defer receiver.Close()
	ctx, caller := w.tp.Tracer("a service").Start(t.Context(), "order")
	sent := w.send(ctx, producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: receiver.URL}}))
	caller.End()
	w.drain(Config{TracerProvider: w.tp, WorkerID: "w1", Callbacks: &CallbackConfig{}}, func(ctx context.Context, _ *Task[int]) (model.None, error) {
		_, err := Step(ctx, "charge", func(ctx context.Context) (int, error) {
			_, span := w.tp.Tracer("a service").Start(ctx, "pay")
			span.End()
			return 1, nil
		})
		require.NoError(t, err)
		_, err = w.p.SendJSON(ctx, "later", nil)
		return model.None{}, err
	})

	order, send, process, step := w.one("order"), w.one("send spanned"), w.one("process spanned"), w.one("step charge")
	require.Equal(t, order.SpanContext.SpanID(), send.Parent.SpanID())
	require.Equal(t, trace.SpanKindProducer, send.SpanKind)
	require.Equal(t, sent.ID, attributeOf(send, "messaging.message.id"))
	require.Equal(t, "mscheduler", attributeOf(send, "messaging.system"))

	require.Equal(t, send.SpanContext.SpanID(), process.Parent.SpanID())
	require.Equal(t, trace.SpanKindConsumer, process.SpanKind)
	require.True(t, linksTo(process, send))
	require.True(t, linksTo(process, w.one("claim spanned")))
	require.True(t, linksTo(w.one("claim spanned"), send))
	require.Equal(t, "success", attributeOf(process, "mscheduler.outcome"))
	require.Equal(t, "spanned", attributeOf(process, "messaging.destination.name"))
	require.Equal(t, sent.ID, attributeOf(process, "messaging.message.id"))
	require.EqualValues(t, 1, attributeOf(process, "mscheduler.attempt"))

	require.Equal(t, process.SpanContext.SpanID(), step.Parent.SpanID())
	require.Equal(t, step.SpanContext.SpanID(), w.one("pay").Parent.SpanID(), "the function of a step has its span")
	require.Equal(t, process.SpanContext.SpanID(), w.one("send later").Parent.SpanID(), "what a handler sends is its child")

	delivery := w.one("process " + input.CallbackType)
	require.Equal(t, order.SpanContext.TraceID(), delivery.SpanContext.TraceID())
	require.Equal(t, "00-"+delivery.SpanContext.TraceID().String()+"-"+delivery.SpanContext.SpanID().String()+"-01", <-headers)
}

func TestEachAttemptIsASpanLinkedToTheSend(t *testing.T) {
	w := newTracedWorld(t)
	w.send(t.Context(), producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond, MaxErrors: new(3), Local: &model.LocalRetry{Count: 1}}))
	runs := 0
	for runs < 4 { // the second attempt is due a moment after the first
		w.drain(Config{TracerProvider: w.tp}, func(context.Context, *Task[int]) (model.None, error) {
			if runs++; runs < 4 {
				return model.None{}, errors.New("out of paper")
			}
			return model.None{}, nil
		})
	}
	send, attempts := w.one("send spanned"), w.named("process spanned")
	require.Len(t, attempts, 2)
	for i, a := range attempts {
		require.True(t, linksTo(a, send))
		require.EqualValues(t, i+1, attributeOf(a, "mscheduler.attempt"))
		require.Len(t, a.Events, 1, "each attempt had a local retry")
		require.Equal(t, "local retry", a.Events[0].Name)
	}
	require.Equal(t, codes.Error, attempts[0].Status.Code)
	require.Equal(t, "out of paper", attempts[0].Status.Description)
	require.Equal(t, "error", attributeOf(attempts[0], "mscheduler.outcome"))
	require.Equal(t, codes.Unset, attempts[1].Status.Code)
}

func TestAnExecutionLongAfterTheSendHasATraceOfItsOwn(t *testing.T) {
	w := newTracedWorld(t)
	sent := w.send(t.Context())
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), sent.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "trace.at", Value: time.Now().Add(-2 * tracing.Together)}}}})
	require.NoError(t, err)
	w.drain(Config{TracerProvider: w.tp}, func(context.Context, *Task[int]) (model.None, error) { return model.None{}, nil })
	send, process := w.one("send spanned"), w.one("process spanned")
	require.False(t, process.Parent.IsValid())
	require.NotEqual(t, send.SpanContext.TraceID(), process.SpanContext.TraceID())
	require.True(t, linksTo(process, send))
}

func TestARetriedTaskBelongsToTheTraceOfWhoRetriesIt(t *testing.T) {
	w := newTracedWorld(t)
	sent := w.send(t.Context())
	fails := func(ctx context.Context, _ *Task[int]) (model.None, error) {
		_, err := Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		return model.None{}, Fatal(errors.New("out of paper"))
	}
	w.drain(Config{TracerProvider: w.tp}, fails)
	from := []tracetest.SpanStub{w.one("send spanned")}
	for _, retry := range []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := w.p.Retry(ctx, sent.ID, "")
			return err
		},
		func(ctx context.Context) error {
			_, err := w.p.RetryFrom(ctx, sent.ID, "charge", "")
			return err
		},
	} {
		require.NoError(t, retry(t.Context()), "without a span the task keeps what it has")
		w.drain(Config{TracerProvider: w.tp}, fails)
		from = append(from, from[len(from)-1])
		ctx, person := w.tp.Tracer("a service").Start(t.Context(), "person")
		require.NoError(t, retry(ctx))
		person.End()
		w.drain(Config{TracerProvider: w.tp}, fails)
		from = append(from, tracetest.SpanStub{SpanContext: person.SpanContext()})
	}
	lives := w.named("process spanned")
	require.Len(t, lives, len(from))
	for i, life := range lives {
		require.True(t, linksTo(life, from[i]), "life %d", i)
	}
}

func TestAMalformedTraceOfATaskIsIgnored(t *testing.T) {
	w := newTracedWorld(t)
	sent := w.send(t.Context())
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), sent.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "trace.traceparent", Value: "00-zz-1"}}}})
	require.NoError(t, err)
	w.drain(Config{TracerProvider: w.tp}, func(context.Context, *Task[int]) (model.None, error) { return model.None{}, nil })
	process := w.one("process spanned")
	require.False(t, process.Parent.IsValid())
	require.Equal(t, "success", attributeOf(process, "mscheduler.outcome"))
}

func TestWithoutAProviderTheTraceIsHandedOn(t *testing.T) {
	w := newTracedWorld(t)
	ctx, caller := w.tp.Tracer("a service").Start(t.Context(), "order")
	p, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	sent, err := producer.Send(ctx, p, spanned, 1)
	require.NoError(t, err)
	var got trace.SpanContext
	w.drain(Config{}, func(ctx context.Context, _ *Task[int]) (model.None, error) {
		got = trace.SpanContextFromContext(ctx)
		return model.None{}, nil
	})
	require.Equal(t, caller.SpanContext().SpanID(), got.SpanID())
	require.Equal(t, caller.SpanContext().TraceID(), got.TraceID())
	require.Empty(t, w.spans.GetSpans(), "nobody was asked to record")
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Contains(t, task.Trace.Parent, caller.SpanContext().TraceID().String())
}

func TestATaskThatIsSentWithoutASpanStoresNoTrace(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	sent, err := producer.Send(t.Context(), p, spanned, 1)
	require.NoError(t, err)
	raw, err := db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: sent.ID}}).Raw()
	require.NoError(t, err)
	require.Zero(t, raw.Lookup("trace").Type)
}

func TestATakeoverIsASpanOfItsOwnAndALostLeaseIsLoggedWithItsTrace(t *testing.T) {
	w := newTracedWorld(t)
	sent := w.send(t.Context(), producer.Lease(200*time.Millisecond, time.Minute))
	var log bytes.Buffer
	started, lost, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
	run := func() (stop func()) {
		c, err := New(Config{Database: w.db, TracerProvider: w.tp, Logger: zerolog.New(zerolog.SyncWriter(&log))})
		require.NoError(t, err)
		require.NoError(t, Handle(c, spanned, func(ctx context.Context, task *Task[int]) (model.None, error) {
			if task.Attempt == 2 {
				close(again)
				return model.None{}, nil
			}
			close(started)
			<-ctx.Done()
			close(lost)
			return model.None{}, context.Cause(ctx)
		}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		return func() {
			require.NoError(t, c.Stop(t.Context()))
			require.NoError(t, inTime(t, ran))
		}
	}
	stop := run()
	inTime(t, started)
	// As if another worker had taken the task over, and had died: its lease has lapsed.
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), sent.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "worker_states.0.exec_id", Value: claim.NewExecID()}, {Key: "worker_states.0.worker_id", Value: "gone"},
		{Key: "worker_states.0.ping_expire_time", Value: time.Now().Add(-time.Hour)}, {Key: "lapse_at", Value: time.Now().Add(-time.Hour)},
	}}})
	require.NoError(t, err)
	inTime(t, lost)
	stop()
	stop = run() // who comes looks for lapsed leases
	inTime(t, again)
	stop()
	attempts := map[int64]tracetest.SpanStub{}
	for _, s := range w.named("process spanned") {
		attempts[attributeOf(s, "mscheduler.attempt").(int64)] = s //nolint:forcetypeassert // or the test fails
	}
	require.Len(t, attempts, 2)
	first, second := attempts[1], attempts[2]
	require.Equal(t, "lease_lost", attributeOf(first, "mscheduler.outcome"))
	require.Equal(t, codes.Error, first.Status.Code)
	require.Equal(t, "success", attributeOf(second, "mscheduler.outcome"))
	require.Equal(t, "gone", attributeOf(second, "mscheduler.taken_over_from"))
	require.True(t, linksTo(first, w.one("send spanned")))
	require.True(t, linksTo(second, w.one("send spanned")))
	require.Regexp(t, `"task_id":"`+sent.ID+`","exec_id":"[^"]+","trace_id":"`+first.SpanContext.TraceID().String()+`".*lease`, log.String())
}

// untraced does all that tracing does for a send, a claim and an execution where there is no span.
func untraced(ctx context.Context) (do func()) {
	c, x, now := &Consumer{}, &execution{task: &model.Task{}}, clock.System().Now()
	return func() {
		if tracing.Of(ctx, now) != nil || c.traced(ctx, x, time.Second) != ctx || tracing.Apart(ctx) != ctx {
			panic("there is a span")
		}
		c.traceClaim(nil, nil)
		c.traceRetry(x, 1, nil)
	}
}

func TestWithoutSpansTracingAllocatesNothing(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, untraced(t.Context())))
}

func BenchmarkWithoutSpans(b *testing.B) {
	do := untraced(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}
