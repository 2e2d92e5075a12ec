package producer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestASentTaskIsStoredWithItsArgumentsAndOptions(t *testing.T) {
	b := setup(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	s := b.send(mail{To: "ann"}, Key("k/1"), At(at), Priority(0), Tenant("acme"), Creator("web"), Category("bulk"),
		ConcurrentWorkers(2), Workers("w1", "w2"), Lease(2*time.Second, 6*time.Second), Timeout(time.Minute),
		Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Second}), MaxLapses(0), MaxErrorsPerWorker(3),
		NeedManual(true), Retention(time.Hour))
	require.Equal(t, "acme/mail/k/1", s.ID)
	require.True(t, s.Created)
	require.Equal(t, model.StatusNew, s.Status)
	doc := b.get(s.ID)
	require.Equal(t, s.Generation, doc.Generation)
	require.Equal(t, at, doc.StartTime)
	require.Equal(t, at, doc.DueAt)
	require.Zero(t, doc.Priority)
	require.Equal(t, "acme", doc.Tenant)
	require.Equal(t, "web", doc.Creator)
	require.Equal(t, "bulk", doc.Category)
	require.JSONEq(t, `{"to":"ann"}`, string(codec.ValueJSON(doc.Args)))
	require.Equal(t, model.Options{
		ConcurrentWorkerCount: 2, SpecificWorkerIDs: []string{"w1", "w2"},
		PingInterval: 2 * time.Second, WorkerTimeout: 6 * time.Second, ExecutionTimeout: time.Minute,
		Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Second}, MaxLapses: new(0),
		MaxErrorsPerWorker: 3, NeedManual: new(true), Retention: time.Hour,
	}, doc.Options)
}

func TestASendWithoutOptionsHasATimeOrderedKeyAndStartsNow(t *testing.T) {
	b := setup(t)
	before := b.Now()
	first := b.send(mail{})
	b.p.room.Store.Clock.Skip(time.Millisecond) // keys order by milliseconds
	second := b.send(mail{})
	require.Less(t, first.ID, second.ID)
	doc := b.get(first.ID)
	require.WithinDuration(t, before, doc.StartTime, 5*time.Second)
	require.Equal(t, lifecycle.DefaultPriority, doc.Priority)
	require.Empty(t, doc.Tenant)
}

func TestInCountsFromTheDatabasesClock(t *testing.T) {
	b := setup(t, func(c *Config) { c.Clock = offClock{90 * time.Minute} })
	now := b.Now()
	s := b.send(mail{}, In(time.Hour))
	require.WithinDuration(t, now.Add(time.Hour), b.get(s.ID).StartTime, 10*time.Second)
}

func TestTheTenantDefaultsToTheConfigs(t *testing.T) {
	b := setup(t, func(c *Config) { c.Tenant = "acme" })
	require.Equal(t, "acme/mail/k", b.send(mail{}, Key("k")).ID)
	require.Equal(t, "-/mail/k", b.send(mail{}, Key("k"), Tenant("")).ID)
}

func TestAHeldTaskWaitsUntilItIsReleased(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Held())
	require.Equal(t, model.StatusWait, s.Status)
	require.Zero(t, b.get(s.ID).DueAt)
	for range 2 { // the second changes nothing
		released, err := b.p.Release(t.Context(), s.ID)
		require.NoError(t, err)
		require.Equal(t, model.StatusNew, released.Status)
		require.EqualValues(t, 2, b.get(s.ID).Rev)
	}
	require.NotZero(t, b.get(s.ID).DueAt)
}

func TestSendJSONStoresWhatSendDoes(t *testing.T) {
	b := setup(t)
	a := b.send(mail{To: "ann"})
	j, err := b.p.SendJSON(t.Context(), "mail", []byte(` {"to": "ann"} `))
	require.NoError(t, err)
	require.Equal(t, b.get(a.ID).Args, b.get(j.ID).Args)
	none, err := b.p.SendJSON(t.Context(), "mail", nil)
	require.NoError(t, err)
	require.Zero(t, b.get(none.ID).Args)
}

func TestBadInputIsRefusedByFieldAndNothingIsWritten(t *testing.T) {
	b := setup(t)
	deep := strings.Repeat("[", 95) + strings.Repeat("]", 95)
	for _, c := range []struct {
		field string
		send  func(context.Context) (Sent, error)
	}{
		{"type", b.json("", `1`)},
		{"type", b.json("a/b", `1`)},
		{"type", b.json(strings.Repeat("x", 101), `1`)},
		{"args", b.json("mail", `{`)},
		{"args", b.json("mail", `1 2`)},
		{"args.a[1]", b.json("mail", `{"a":[1, 9223372036854775808]}`)},
		{"args.$set", b.json("mail", `{"$set":1}`)},
		{"args.a.a", b.json("mail", `{"a":{"a":1,"a":2}}`)},
		{"args" + strings.Repeat("[0]", 90), b.json("mail", deep)},
		{"args", b.json("mail", `"`+strings.Repeat("x", input.MaxArgsBytes)+`"`)},
		{"args", b.sending(Args(1))},
		{"key", b.sending(Key(""))},
		{"key", b.sending(Key(strings.Repeat("k", 401)))},
		{"key", b.sending(Key("a\x00b"))},
		{"key", b.sending(Key("\xff"))},
		{"tenant", b.sending(Tenant("a/b"))},
		{"creator", b.sending(Creator(strings.Repeat("c", 201)))},
		{"category", b.sending(Category("\xff"))},
		{"priority", b.sending(Priority(10))},
		{"priority", b.sending(Priority(-1))},
		{"start_time", b.sending(At(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)))},
		{"start_time", b.sending(At(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)))},
		{"in", b.sending(In(-time.Second))},
		{"in", b.sending(In(11 * 365 * 24 * time.Hour))},
		{"concurrent_worker_count", b.sending(ConcurrentWorkers(0))},
		{"concurrent_worker_count", b.sending(ConcurrentWorkers(65))},
		{"concurrent_worker_count", b.sending(ConcurrentWorkers(-1))},
		{"concurrent_worker_count", b.sending(ConcurrentWorkers(2), Workers("w"))},
		{"specific_worker_ids", b.sending(Workers())},
		{"specific_worker_ids", b.sending(Workers(make([]string, 65)...))},
		{"specific_worker_ids[1]", b.sending(Workers("w", "*"))},
		{"ping_interval", b.sending(Lease(4*time.Second, 6*time.Second))},
		{"ping_interval", b.sending(Lease(-1, 0))},
		{"worker_timeout", b.sending(Lease(0, 500*time.Millisecond))},
		{"timeout", b.sending(Timeout(-time.Second))},
		{"timeout", b.sending(Timeout(time.Microsecond))},
		{"retry.strategy", b.sending(Retry(model.Retry{Strategy: "often"}))},
		{"retry.max_errors", b.sending(Retry(model.Retry{MaxErrors: new(-1)}))},
		{"retry.sequence[0]", b.sending(Retry(model.Retry{Strategy: model.RetrySequence, Sequence: []time.Duration{-1}}))},
		{"max_lapses", b.sending(MaxLapses(-1))},
		{"max_errors_per_worker", b.sending(MaxErrorsPerWorker(11))},
		{"retention", b.sending(Retention(-time.Second))},
		{"on_existing", b.sending(OnExisting(1 << 7))},
		{"options[1]", b.sending(Held(), nil)},
	} {
		_, err := c.send(t.Context())
		require.ErrorIs(t, err, model.ErrInvalid, c.field)
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, c.field, invalid.Field, "%v", err)
		require.NotEmpty(t, invalid.Reason)
	}
	_, err := Send(t.Context(), b.p, model.Type[mail, receipt]{}, mail{})
	require.ErrorIs(t, err, model.ErrInvalid, "the zero type")
	_, err = Send(t.Context(), b.p, model.NewType[func(), model.None]("f"), nil)
	require.ErrorIs(t, err, model.ErrInvalid, "what JSON cannot hold")
	names, err := b.db.ListCollectionNames(t.Context(), map[string]any{})
	require.NoError(t, err)
	require.Empty(t, names, "nothing was written, not even a schema")
}

func (b *bundle) json(typ, args string) func(context.Context) (Sent, error) {
	return func(ctx context.Context) (Sent, error) { return b.p.SendJSON(ctx, typ, []byte(args)) }
}

func (b *bundle) sending(opts ...Option) func(context.Context) (Sent, error) {
	return func(ctx context.Context) (Sent, error) { return Send(ctx, b.p, mailType, mail{}, opts...) }
}

func TestEveryFaultOfASendIsNamed(t *testing.T) {
	b := setup(t)
	_, err := b.p.SendJSON(t.Context(), "a b", []byte(`{"$x":1}`), Priority(12), Key(""), In(-1))
	for _, field := range []string{"type", "args.$x", "priority", "key", "in is"} {
		require.ErrorContains(t, err, field)
	}
}

func TestConfigsThatCannotWorkAreRefused(t *testing.T) {
	db := setup(t).db
	for field, c := range map[string]Config{
		"database":   {},
		"prefix":     {Database: db, Prefix: "a$b"},
		"tenant":     {Database: db, Tenant: "a/b"},
		"middleware": {Database: db, Middleware: []Middleware{nil}},
	} {
		_, err := New(c)
		var invalid *model.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
}

func TestAPrefixKeepsProducersApart(t *testing.T) {
	a := setup(t)
	p, err := New(Config{Database: a.db, Prefix: "b_"})
	require.NoError(t, err)
	s, err := Send(t.Context(), p, mailType, mail{}, Key("k"))
	require.NoError(t, err)
	require.True(t, s.Created)
	_, err = a.p.Get(t.Context(), s.ID)
	require.ErrorIs(t, err, model.ErrNotFound)
	require.True(t, a.send(mail{}, Key("k")).Created)
}

func TestConcurrentSendsShareInserts(t *testing.T) {
	t.Parallel()
	counter := new(commandCounter)
	b := setup(t, counter.watch(t))
	b.send(mail{}) // schema and clock
	counter.reset()
	const n = 500
	ids := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := Send(t.Context(), b.p, mailType, mail{})
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	require.Less(t, counter.count("insert"), n/2, "inserts for %d concurrent sends", n)
	require.EqualValues(t, n+1, b.Tasks())
	for _, id := range ids {
		b.get(id)
	}
}

func TestOfOneKeySentConcurrentlyOneTaskIsCreated(t *testing.T) {
	b := setup(t)
	const n = 50
	sent := make([]Sent, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var err error
			if sent[i], err = Send(t.Context(), b.p, mailType, mail{}, Key("k")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	created := 0
	for _, s := range sent {
		if s.Created {
			created++
		}
		require.Equal(t, "-/mail/k", s.ID)
		require.Equal(t, sent[0].Generation, s.Generation)
		require.Equal(t, model.StatusNew, s.Status)
	}
	require.Equal(t, 1, created)
	require.EqualValues(t, 1, b.Tasks())
}

func TestASenderThatGivesUpDoesNotTakeOthersWithIt(t *testing.T) {
	b := setup(t)
	ended, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	waiting := []*gathered{{ctx: ended}, {ctx: t.Context()}}
	ctx, stop := whileAnyWaits(waiting)
	require.NoError(t, ctx.Err())
	stop()

	waiting[1].ctx = ended
	ctx, stop = whileAnyWaits(waiting)
	defer stop()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), why, "nobody waits any more")

	_, err := Send(ended, b.p, mailType, mail{})
	require.ErrorIs(t, err, why)
}

func TestMiddlewareWrapsEverySendTheFirstOutermost(t *testing.T) {
	var order []string
	note := func(name string) Middleware {
		return func(next SendFunc) SendFunc {
			return func(ctx context.Context, drafts []*Draft) ([]Sent, error) {
				order = append(order, name+" before")
				for _, d := range drafts {
					d.Creator += name
				}
				sent, err := next(ctx, drafts)
				order = append(order, name+" after")
				return sent, err
			}
		}
	}
	b := setup(t, func(c *Config) { c.Middleware = []Middleware{note("a"), note("b")} })
	s := b.send(mail{})
	require.Equal(t, []string{"a before", "b before", "b after", "a after"}, order)
	require.Equal(t, "ab", b.get(s.ID).Creator)
	many, err := SendMany(t.Context(), b.p, mailType, []Item[mail]{{}, {}})
	require.NoError(t, err)
	require.Len(t, order, 8, "a SendMany is one send")
	require.Equal(t, "ab", b.get(many[1].ID).Creator)
}

func TestWhatMiddlewareMakesOfADraftIsCheckedAgain(t *testing.T) {
	b := setup(t, func(c *Config) {
		c.Middleware = []Middleware{func(next SendFunc) SendFunc {
			return func(ctx context.Context, drafts []*Draft) ([]Sent, error) {
				drafts[0].Tenant = "a/b"
				return next(ctx, drafts)
			}
		}}
	})
	_, err := Send(t.Context(), b.p, mailType, mail{})
	require.ErrorIs(t, err, model.ErrInvalid)
}

func TestMiddlewareThatLosesResultsIsAnError(t *testing.T) {
	b := setup(t, func(c *Config) {
		c.Middleware = []Middleware{func(SendFunc) SendFunc {
			return func(context.Context, []*Draft) ([]Sent, error) { return nil, nil }
		}}
	})
	_, err := Send(t.Context(), b.p, mailType, mail{})
	require.ErrorContains(t, err, "0 results for 1 tasks")
}

func TestAfterCloseNothingIsSentOrAwaited(t *testing.T) {
	b := setup(t)
	s := b.send(mail{})
	waiting := make(chan error, 1)
	go func() {
		_, err := b.p.AwaitTask(context.Background(), s)
		waiting <- err
	}()
	require.NoError(t, b.p.Close(t.Context()))
	require.ErrorIs(t, <-waiting, ErrClosed)
	_, err := Send(t.Context(), b.p, mailType, mail{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = SendMany(t.Context(), b.p, mailType, []Item[mail]{{}, {}})
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.p.AwaitTask(t.Context(), s)
	require.ErrorIs(t, err, ErrClosed)
}

func TestCloseWaitsForSendsUnderWay(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	b := setup(t, func(c *Config) {
		c.Middleware = []Middleware{func(next SendFunc) SendFunc {
			return func(ctx context.Context, drafts []*Draft) ([]Sent, error) {
				close(began)
				<-goOn
				return next(ctx, drafts)
			}
		}}
	})
	sent := make(chan error, 1)
	go func() {
		_, err := Send(context.Background(), b.p, mailType, mail{})
		sent <- err
	}()
	<-began
	short, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.p.Close(short), context.Canceled)
	close(goOn)
	require.NoError(t, b.p.Close(t.Context()))
	require.NoError(t, <-sent, "it was under way when Close was called")
}
