package callback

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// types is what the types say, by their names.
type types map[string]model.Options

func (t types) Options(typ string) model.Options { return t[typ] }

// bench is a store with tasks that have ended.
type bench struct {
	t       *testing.T
	store   *store.Store
	types   types
	secrets *secret.Box
	reach   httpcall.Reach
	timeout time.Duration
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return benchBy(t, clock.System())
}

// benchBy is [newBench] by a clock of the process.
func benchBy(t *testing.T, local clock.Clock) *bench {
	t.Helper()
	return benchOf(t, store.Config{Database: testdb.New(t), Clock: local})
}

func benchOf(t *testing.T, c store.Config) *bench {
	t.Helper()
	st, err := store.Open(c)
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	box, err := secret.Parse("key", strings.Repeat("5c", 32))
	require.NoError(t, err)
	return &bench{t: t, store: st, types: types{}, secrets: box}
}

// ended stores a task and ends it.
func (b *bench) ended(key string, c *model.Callback, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	return b.endedBy(key, model.Options{Callback: c}, nil, out)
}

// endedBy stores a task with options of its own and ends it; said is what its type and its
// handler say.
func (b *bench) endedBy(key string, own model.Options, said *model.Options, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	args, err := codec.EncodeJSON("args", []byte(`{"order": 17, "<": "&\u0000"}`), input.MaxArgsBytes)
	require.NoError(b.t, err)
	return b.endedOf(lifecycle.Draft{Type: "order", Key: key, Args: args, Options: own}, said, out)
}

// endedOf is [bench.endedBy] for any task.
func (b *bench) endedOf(draft lifecycle.Draft, said *model.Options, out lifecycle.Outcome) *model.Task {
	b.t.Helper()
	ctx := b.t.Context()
	task := lifecycle.NewTask(draft, b.store.Clock.Now())
	_, err := b.store.Tasks.Insert(ctx, []*model.Task{task})
	require.NoError(b.t, err)
	_, after, err := b.store.Tasks.Change(ctx, task.ID, func(t *model.Task) (*model.Task, error) {
		now, layers := b.store.Clock.Now(), []model.Options{t.Options}
		if said != nil {
			layers = append(layers, *said)
		}
		eff := lifecycle.ResolveOptions(layers...)
		claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w", ExecID: "x", Applied: said}, eff, now)
		require.Empty(b.t, no)
		return lifecycle.Finish(claimed, "x", out, eff, now, 0)
	})
	require.NoError(b.t, err)
	return after
}

func (b *bench) deliver(ctx context.Context, task *model.Task) (httpcall.Answer, error) {
	b.t.Helper()
	d := NewDeliverer(Config{Store: b.store, Types: b.types, Secrets: b.secrets, Reach: b.reach, Timeout: b.timeout})
	defer d.Close()
	return d.Deliver(ctx, lifecycle.DeliveryArgs{TaskID: task.ID, Generation: task.Generation})
}

func hook(url string) *model.Callback {
	return &model.Callback{Success: &model.CallbackTarget{URL: url}, Error: &model.CallbackTarget{URL: url, Method: "PUT"}}
}

func receiver(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func verdict(t *testing.T, err error) *httpcall.VerdictError {
	t.Helper()
	var v *httpcall.VerdictError
	require.ErrorAs(t, err, &v)
	return v
}

func TestTheRequestIsWhatTheSeedSays(t *testing.T) {
	b := newBench(t)
	var got *http.Request
	var body string
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got, body = r, string(data)
	})
	result, err := codec.EncodeJSON("result", []byte(`[1.5, null]`), input.MaxResultBytes)
	require.NoError(t, err)
	done := b.ended("done", hook(url), lifecycle.Success(result))
	_, err = b.deliver(t.Context(), done)
	require.NoError(t, err)
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "application/json", got.Header.Get("Content-Type"))
	require.JSONEq(t, `{"ext": {"order": 17, "<": "&\u0000"}, "result": [1.5, null]}`, body)
	require.Equal(t, lifecycle.DeliveryKey(done.ID, done.Generation), got.Header.Get("Webhook-Id"))
	require.Equal(t, strconv.FormatInt(done.Generation, 10), got.Header.Get("Webhook-Generation"))
	require.Empty(t, got.Header.Get("Webhook-Signature"), "nobody asked for a signature")

	failed := b.ended("failed", hook(url), lifecycle.Failed(failkind.Fatal, `no "paper"`))
	_, err = b.deliver(t.Context(), failed)
	require.NoError(t, err)
	require.Equal(t, "PUT", got.Method)
	require.JSONEq(t, `{"task_id": "-/order/failed", "error_info": "no \"paper\"", "ext": {"order": 17, "<": "&\u0000"}}`, body)
}

func TestTheAnswerIsKeptToItsLimit(t *testing.T) {
	b := newBench(t)
	url := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.Repeat("x", keptBytes)+"too much")
	})
	got, err := b.deliver(t.Context(), b.ended("k", hook(url), lifecycle.Outcome{}))
	require.NoError(t, err)
	require.Equal(t, httpcall.Answer{Status: 202, Body: strings.Repeat("x", keptBytes), Truncated: true}, got)
}

func TestAnAnswerWhoseBodyBreaksOffDeliversAllTheSame(t *testing.T) {
	b := newBench(t)
	url := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "ten bytes.")
	})
	got, err := b.deliver(t.Context(), b.ended("k", hook(url), lifecycle.Outcome{}))
	require.NoError(t, err)
	require.Equal(t, 200, got.Status)
}

func TestAnswersDecideWhetherItIsTriedAgain(t *testing.T) {
	b := newBench(t)
	var status int
	var followed bool
	url := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		followed = followed || r.URL.Path != "/"
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "why")
	})
	task := b.ended("k", hook(url+"/?token=hidden"), lifecycle.Outcome{})
	for s, want := range map[int]httpcall.VerdictError{
		301: {}, 302: {}, 307: {}, 400: {}, 401: {}, 404: {}, 422: {},
		410: {Fatal: true},
		408: {Later: true, RetryAfter: 7 * time.Second}, 429: {Later: true, RetryAfter: 7 * time.Second}, 503: {Later: true, RetryAfter: 7 * time.Second},
	} {
		status = s
		_, err := b.deliver(t.Context(), task)
		require.Error(t, err, s)
		require.ErrorContains(t, err, "why", s)
		require.NotContains(t, err.Error(), "hidden")
		var got httpcall.VerdictError
		if v := (*httpcall.VerdictError)(nil); errors.As(err, &v) {
			got = *v
		}
		got.Err = nil
		require.Equal(t, want, got, "%d: %v", s, err)
	}
	require.False(t, followed, "a redirect is not followed")
}

func TestAReceiverThatHangsIsGivenUp(t *testing.T) {
	b := newBench(t)
	b.timeout = 20 * time.Millisecond
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	_, err := b.deliver(t.Context(), b.ended("k", hook(url), lifecycle.Outcome{}))
	require.ErrorContains(t, err, "no answer within 20ms")
	require.NotErrorAs(t, err, new(*httpcall.VerdictError), "it is tried again")
}

func TestTheEndOfTheContextIsTheCause(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the worker is stopping")
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(stop)
		<-r.Context().Done()
	})
	_, err := b.deliver(ctx, b.ended("k", hook(url), lifecycle.Outcome{}))
	require.ErrorIs(t, err, stop)
}

func TestMetadataAddressesAreNotCalled(t *testing.T) {
	b := newBench(t)
	for _, url := range []string{"http://169.254.169.254/latest", "http://[fd00:ec2::254]/"} {
		_, err := b.deliver(t.Context(), b.ended(url, hook(url), lifecycle.Outcome{}))
		require.True(t, verdict(t, err).Fatal)
		require.ErrorIs(t, err, httpcall.ErrForbiddenAddress)
	}
}

func TestOnlyReceiversOnTheListAreCalled(t *testing.T) {
	b := newBench(t)
	url := receiver(t, func(http.ResponseWriter, *http.Request) {})
	var err error
	b.reach.Allow, err = httpcall.ParseAllow("allow", []string{"example.org"})
	require.NoError(t, err)
	_, err = b.deliver(t.Context(), b.ended("no", hook(url), lifecycle.Outcome{}))
	require.True(t, verdict(t, err).Fatal)
	require.ErrorIs(t, err, httpcall.ErrNotAllowed)
	b.reach.Allow, err = httpcall.ParseAllow("allow", []string{"127.0.0.0/8"})
	require.NoError(t, err)
	_, err = b.deliver(t.Context(), b.ended("yes", hook(url), lifecycle.Outcome{}))
	require.NoError(t, err)
}

func TestASignatureIsByTheKeysOfNow(t *testing.T) {
	b := newBench(t)
	var got *wire.Delivery
	var verified error
	fresh := wire.Key{AccessKey: "fresh", Secret: "new"}
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) { got, verified = wire.Verify(r, fresh) })
	task := b.ended("k", nil, lifecycle.Outcome{})
	said := hook(url)
	said.Security = &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []wire.Key{{AccessKey: "fresh", Secret: "new"}, {AccessKey: "old", Secret: "old"}}}
	sealed, err := b.secrets.SealCallback("callback", said)
	require.NoError(t, err)
	b.types["order"] = model.Options{Callback: sealed}
	_, err = b.deliver(t.Context(), task)
	require.NoError(t, err)
	require.NoError(t, verified)
	require.Equal(t, "-/order/k", got.Task)

	box := b.secrets
	b.secrets = nil
	_, err = b.deliver(t.Context(), task)
	require.True(t, verdict(t, err).NotHere)
	require.ErrorIs(t, err, secret.ErrNoKey)

	b.secrets = box
	moved := *sealed.Security
	moved.Keys = []wire.Key{{AccessKey: "stolen", Secret: moved.Keys[0].Secret}}
	b.types["order"] = model.Options{Callback: &model.Callback{Success: sealed.Success, Security: &moved}}
	_, err = b.deliver(t.Context(), task)
	require.True(t, verdict(t, err).Fatal)
	require.ErrorIs(t, err, secret.ErrBroken)
}

func TestNobodyIsToldWhereTheCallbackWasTakenOut(t *testing.T) {
	b, calls := newBench(t), 0
	url := receiver(t, func(http.ResponseWriter, *http.Request) { calls++ })
	for i, out := range []lifecycle.Outcome{{}, lifecycle.Failed(failkind.Fatal, "no")} {
		said := &model.Options{Callback: hook(url)}
		task := b.endedBy("k"+strconv.Itoa(i), model.Options{}, said, out)
		require.Equal(t, lifecycle.OutcomeCallback, task.Outbox[0].Kind, "it was to be told")
		got, err := b.deliver(t.Context(), task)
		require.NoError(t, err)
		require.Zero(t, got)
	}
	require.Zero(t, calls)
}

func TestWhatOnlyAHandlerSaidIsDeliveredByEverybody(t *testing.T) {
	b := newBench(t)
	said := &model.Options{Callback: hook(receiver(t, func(http.ResponseWriter, *http.Request) {}))}
	said.Callback.OfHandler = true
	task := b.endedBy("k", model.Options{}, said, lifecycle.Outcome{})
	got, err := b.deliver(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, 200, got.Status)
	b.types["order"] = model.Options{Callback: &model.Callback{}}
	require.NoError(t, b.store.Types.Put(t.Context(), &model.TaskType{Code: "order", Options: b.types["order"]}))
	got, err = b.deliver(t.Context(), task)
	require.NoError(t, err)
	require.Zero(t, got, "an empty callback of the type silences it")
}

// A callback is not lost because the process that delivers has not heard of its type yet.
func TestNobodyIsToldOnlyWhereTheDatabaseSaysSo(t *testing.T) {
	b := newBench(t)
	said := &model.Options{Callback: hook(receiver(t, func(http.ResponseWriter, *http.Request) {}))}
	require.NoError(t, b.store.Types.Put(t.Context(), &model.TaskType{Code: "order", Options: *said}))
	task := b.endedBy("k", model.Options{}, said, lifecycle.Outcome{})
	got, err := b.deliver(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, 200, got.Status)
}

func TestATaskThatIsGoneEndsItsDelivery(t *testing.T) {
	b := newBench(t)
	task := b.ended("k", hook("http://127.0.0.1:1/"), lifecycle.Outcome{})
	task.Generation++
	_, err := b.deliver(t.Context(), task)
	require.True(t, verdict(t, err).Fatal)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// Behind a router, a server that is no longer the primary may be asked. It does not have the end with which the delivery
// was stored.
func TestADeliveryWaitsForTheEndOfItsTask(t *testing.T) {
	b := newBench(t)
	called := 0
	task := b.ended("k", hook(receiver(t, func(http.ResponseWriter, *http.Request) { called++ })), lifecycle.Outcome{})
	set := func(status model.Status) {
		_, _, err := b.store.Tasks.Change(t.Context(), task.ID, func(t *model.Task) (*model.Task, error) {
			c := *t
			c.Status, c.Rev = status, t.Rev+1
			return &c, nil
		})
		require.NoError(t, err)
	}
	noErrors(t, Handover{Store: b.store}.Carry(t.Context(), entries(task)))
	settlement := Settlement{Store: b.store, Types: b.types}
	set(model.StatusExecuting)
	_, err := b.deliver(t.Context(), task)
	require.ErrorContains(t, err, "the server that answered does not have")
	require.NotErrorAs(t, err, new(*httpcall.VerdictError), "it is tried again")
	delivery := b.end(b.get(lifecycle.DeliveryID(task)), lifecycle.Outcome{})
	require.ErrorContains(t, settlement.Carry(t.Context(), entries(delivery))[0], "the server that answered does not have")

	set(model.StatusCompleted)
	_, err = b.deliver(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, 1, called)
	noErrors(t, settlement.Carry(t.Context(), entries(delivery)))
	require.Equal(t, model.StatusSuccess, b.get(task.ID).Status)
}

// It holds a place of the process for as long as one that does not answer.
func TestAReceiverThatAnswersSlowlyGetsItsShare(t *testing.T) {
	clk := testdb.NewClock()
	b := benchBy(t, clk)
	inside, gate := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	url := receiver(t, func(http.ResponseWriter, *http.Request) {
		switch calls.Add(1) {
		case 1:
			clk.Move(slowAfter + time.Millisecond)
		case 2:
			close(inside)
			<-gate
		}
	})
	d := NewDeliverer(Config{Store: b.store, Types: b.types, Concurrency: 4})
	defer d.Close()
	task := b.ended("k", hook(url), lifecycle.Outcome{})
	deliver := func() error {
		_, err := d.Deliver(t.Context(), lifecycle.DeliveryArgs{TaskID: task.ID, Generation: task.Generation})
		return err
	}
	require.NoError(t, deliver(), "slow, but delivered")
	second := make(chan error, 1)
	go func() { second <- deliver() }()
	<-inside
	err := deliver()
	close(gate)
	require.True(t, verdict(t, err).Busy, "%v", err)
	require.NoError(t, <-second)
	require.NoError(t, deliver(), "it is quick again")
	require.Empty(t, d.receivers.hosts)
}
