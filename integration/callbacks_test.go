package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// secretKey and hookKey are what the scenarios' workers, senders and receivers share.
var (
	secretKey = strings.Repeat("5c", 32)
	hookKey   = callback.Key{AccessKey: "shop", Secret: "between the shop and us"}
)

// heard is one request that a receiver got.
type heard struct {
	method, id, task string
	body             string
	signed           error // what Verify said
}

// receiver is who is called back.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	list   []heard
	answer func(n int, h heard, w http.ResponseWriter) // n counts from 1; nil = 200
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	data, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(strings.NewReader(string(data)))
	h := heard{method: req.Method, id: req.Header.Get("Webhook-Id"), body: string(data)}
	d, err := callback.Verify(req, hookKey)
	if h.signed = err; err == nil {
		h.task = d.Task
	}
	r.mu.Lock()
	r.list = append(r.list, h)
	n, answer := len(r.list), r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(n, h, w)
	}
}

func (r *receiver) all() []heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]heard(nil), r.list...)
}

func (r *receiver) answers(f func(n int, h heard, w http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// to is a callback to the receiver, signed.
func (r *receiver) to() model.Callback {
	return model.Callback{
		Success:  &model.CallbackTarget{URL: r.URL + "/done?token=hidden"},
		Error:    &model.CallbackTarget{URL: r.URL + "/failed", Method: http.MethodPut},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: hookKey.AccessKey, Secret: hookKey.Secret}}},
	}
}

// delivering lets a worker deliver callbacks.
func delivering(c *handConfig) { c.Callbacks = &consumer.CallbackConfig{SecretKey: secretKey} }

// secretive is an arena whose producer can seal.
func secretive(t *testing.T, e Engine) *arena {
	t.Helper()
	a := newArena(t, e)
	p, err := producer.New(producer.Config{Database: a.db, SecretKey: secretKey})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	a.p, a.admin = p, admin.New(p)
	return a
}

// drainDelivering runs a worker that delivers until nothing is due, delays included.
func (a *arena) drainDelivering(handle handleWork, opts ...mstest.DrainOption) consumer.Drained {
	a.t.Helper()
	c, err := consumer.New(consumer.Config{Database: a.db, Callbacks: &consumer.CallbackConfig{SecretKey: secretKey}})
	require.NoError(a.t, err)
	require.NoError(a.t, consumer.Handle(c, chaosWork, handle))
	return mstest.Drain(a.t, c, append(opts, mstest.Within(3*chaosPatience))...)
}

func (a *arena) delivery(id string) *model.Task {
	a.t.Helper()
	return a.get(lifecycle.DeliveryID(a.get(id)))
}

func TestASuccessIsCalledBackWithItsArgumentsAndItsResult(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("order 17", 21, producer.Callback(r.to())).ID
		before := a.db
		r.answers(func(_ int, _ heard, w http.ResponseWriter) {
			var task struct{ Status string }
			_ = before.Collection("tasks").FindOne(context.Background(), bson.D{{Key: "_id", Value: id}}).Decode(&task)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "was "+task.Status)
		})
		a.drainDelivering(double)
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		got := r.all()
		require.Len(t, got, 1)
		require.NoError(t, got[0].signed)
		require.Equal(t, http.MethodPost, got[0].method)
		require.JSONEq(t, `{"ext": 21, "result": 42}`, got[0].body)
		require.Equal(t, id, got[0].task)
		require.Equal(t, a.delivery(id).Key, got[0].id)
		require.JSONEq(t, `{"status": 201, "body": "was Completed"}`, string(codec.ValueJSON(a.delivery(id).Result)),
			"the answer is kept, and until it came the task was Completed")
		require.Empty(t, a.get(id).Outbox)
		require.True(t, a.get(id).OutboxAt.IsZero())
		require.False(t, a.get(id).ArchiveAt.IsZero())
	})
}

func TestAFinalFailureIsCalledBackWithItsError(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("a/b", 7, producer.Callback(r.to()), retries(1, time.Second)).ID
		a.drainDelivering(func(context.Context, *consumer.Task[int]) (int, error) {
			return 0, errors.New("no paper\u0000 \"left\"")
		}, mstest.SkipTime())
		require.Equal(t, model.StatusFailure, a.get(id).Status)
		got := r.all()
		require.Len(t, got, 1, "the first error was not final")
		require.NoError(t, got[0].signed)
		require.Equal(t, http.MethodPut, got[0].method)
		var body struct {
			TaskID    string `json:"task_id"`
			ErrorInfo string `json:"error_info"`
			Ext       int    `json:"ext"`
		}
		dec := json.NewDecoder(strings.NewReader(got[0].body))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&body))
		require.Equal(t, id, body.TaskID)
		require.Contains(t, body.ErrorInfo, "no paper")
		require.Equal(t, 7, body.Ext)
	})
}

// The receiver may be away for longer than the task stays and the history is kept.
func TestAFailureStaysUntilItsCallbackIsDelivered(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		require.NoError(t, a.admin.SetHistoryRetention(t.Context(), time.Minute))
		r.answers(func(n int, _ heard, w http.ResponseWriter) {
			if n <= 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		id := a.sendKey("k", 7, producer.Callback(r.to()), producer.Retention(time.Minute), retries(0, time.Second)).ID
		a.drainDelivering(func(context.Context, *consumer.Task[int]) (int, error) { return 0, errNo })
		require.Equal(t, model.StatusFailure, a.get(id).Status)
		require.Len(t, r.all(), 1)
		require.True(t, a.get(id).ArchiveAt.IsZero(), "nothing moves it while its delivery goes on")
		a.drainDelivering(double, mstest.SkipTime())
		require.Len(t, r.all(), 4)
		require.Equal(t, model.StatusSuccess, a.delivery(id).Status)
		require.Equal(t, a.get(id).FinishedAt.Add(time.Minute), a.get(id).ArchiveAt)
	})
}

func TestACallbackIsRepeatedUntilItIsTakenByTheSameID(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		r.answers(func(n int, _ heard, w http.ResponseWriter) {
			switch n {
			case 1:
				w.WriteHeader(http.StatusNotFound)
			case 2:
				http.Redirect(w, &http.Request{}, r.URL+"/elsewhere?token=hidden", http.StatusTemporaryRedirect)
			case 3:
				panic(http.ErrAbortHandler)
			}
		})
		id := a.sendKey("k", 1, producer.Callback(r.to())).ID
		a.drainDelivering(double, mstest.SkipTime())
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		got := r.all()
		require.Len(t, got, 4, "a redirect is not followed")
		for _, h := range got {
			require.Equal(t, got[0].id, h.id)
			require.Equal(t, got[0].body, h.body)
		}
		states := a.delivery(id).WorkerStates
		require.Len(t, states, 4, "every attempt is to be seen")
		require.Contains(t, states[0].FailReason, "answered 404")
		require.NotContains(t, states[0].FailReason, "hidden", "a query may hold a secret")
		require.Contains(t, states[1].FailReason, "/elsewhere?token=***, which is not followed")
		require.NotContains(t, states[1].FailReason, "hidden", "that of a redirect neither")
	})
}

func TestTypesAndHandlersSayWhoIsCalledBackAndATaskMaySayNobody(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r, mended := secretive(t, e), newReceiver(t), newReceiver(t)
		wrong, right := r.to(), mended.to()
		typ, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), Options: model.Options{Callback: &wrong}})
		require.NoError(t, err)
		require.NotEqual(t, hookKey.Secret, typ.Options.Callback.Security.Keys[0].Secret)
		told, quiet := a.sendKey("told", 1).ID, a.sendKey("quiet", 1, producer.Callback(model.Callback{})).ID
		a.drain(double)
		require.Equal(t, model.StatusCompleted, a.get(told).Status)
		require.Equal(t, model.StatusSuccess, a.get(quiet).Status)

		right.Security.Keys[0].Secret = safetext.Hidden // it stays what it is
		typ.Options.Callback = &right
		_, err = a.admin.PutType(t.Context(), *typ)
		require.NoError(t, err)
		a.drainDelivering(double)
		require.Equal(t, model.StatusSuccess, a.get(told).Status)
		require.Empty(t, r.all(), "an address that was mended holds for what is still to be delivered")
		require.Len(t, mended.all(), 1)
		require.NoError(t, mended.all()[0].signed)
	})
}

// Who finds that an address is wrong can stop what still waits for it.
func TestACallbackThatWasTakenOutOfItsTypeIsNotCalled(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		wrong := r.to()
		typ, err := a.admin.PutType(t.Context(), model.TaskType{Code: chaosWork.Name(), Options: model.Options{Callback: &wrong}})
		require.NoError(t, err)
		id := a.sendKey("k", 1).ID
		a.drain(double)
		require.Equal(t, model.StatusCompleted, a.get(id).Status)
		typ.Options.Callback = nil
		_, err = a.admin.PutType(t.Context(), *typ)
		require.NoError(t, err)
		a.drainDelivering(double)
		require.Empty(t, r.all())
		require.Equal(t, model.StatusSuccess, a.get(id).Status)
		_, err = a.admin.Redeliver(t.Context(), id, 0)
		require.ErrorContains(t, err, "the task has no callback for this status")
	})
}

func TestSecretsAreSealedWhereverTheyAreStored(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		hook := r.to()
		_, err := producer.Send(t.Context(), a.p, chaosWork, 1, producer.Key("own"), producer.Callback(hook))
		require.NoError(t, err)
		a.sendKey("handler's", 2)
		a.sendKey("updated", 3)
		_, err = a.p.Update(t.Context(), "-/chaos.work/updated", producer.Callback(hook))
		require.NoError(t, err)
		c, err := consumer.New(consumer.Config{Database: a.db, Callbacks: &consumer.CallbackConfig{SecretKey: secretKey}})
		require.NoError(t, err)
		require.NoError(t, consumer.Handle(c, chaosWork, double, consumer.Defaults(model.Options{Callback: &hook})))
		mstest.Drain(t, c)
		require.Len(t, r.all(), 3)
		for _, h := range r.all() {
			require.NoError(t, h.signed)
		}
		for _, name := range []string{"tasks", "task_history"} {
			cur, err := a.db.Collection(name).Find(t.Context(), bson.D{})
			require.NoError(t, err)
			for cur.Next(t.Context()) {
				require.NotContains(t, string(cur.Current), hookKey.Secret)
			}
			require.NoError(t, cur.Err())
		}
	})
}

func TestWithoutASecretKeyNothingIsWritten(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a, r := newArena(t, e), newReceiver(t)
		_, err := producer.Send(t.Context(), a.p, chaosWork, 1, producer.Key("k"), producer.Callback(r.to()))
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, "callback.security.keys[0].sk")
		require.ErrorContains(t, err, "MSCHEDULER_SECRET_KEY")
		_, err = a.p.Get(t.Context(), "-/chaos.work/k")
		require.ErrorIs(t, err, model.ErrNotFound)
		c, err := consumer.New(consumer.Config{Database: a.db})
		require.NoError(t, err)
		hook := r.to()
		err = consumer.Handle(c, chaosWork, double, consumer.Defaults(model.Options{Callback: &hook}))
		require.ErrorContains(t, err, "defaults.callback.security.keys[0].sk")
	})
}

// A worker that lacks the key leaves the delivery to one that has it.
func TestADeliveryWaitsForAWorkerThatHasTheKey(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		id := a.sendKey("k", 1, producer.Callback(r.to())).ID
		a.hire("keyless", double, func(c *handConfig) {
			c.Callbacks = &consumer.CallbackConfig{SecretKey: strings.Repeat("00", 32)}
		})
		a.awaitStatus(id, model.StatusCompleted)
		deliveryID := lifecycle.DeliveryID(a.get(id))
		awaitTrue(t, func() string {
			task, err := a.store.Tasks.Get(t.Context(), deliveryID)
			if err != nil || len(task.WorkerStates) == 0 || lifecycle.Open(&task.WorkerStates[0]) {
				return "the keyless worker did not give the delivery back"
			}
			return ""
		})
		require.Contains(t, a.get(deliveryID).WorkerStates[0].FailReason, "this process does not have")
		require.Zero(t, a.get(deliveryID).ErrorCount)
		a.hire("keyed", double, delivering)
		a.awaitStatus(id, model.StatusSuccess)
		require.NoError(t, r.all()[0].signed)
	})
}

func TestAnEndFromOutsideIsCalledBackToo(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a, r := secretive(t, e), newReceiver(t)
		hook := r.to()
		id := a.sendKey("parked", 4).ID
		handles := make(chan string, 1)
		a.hire("worker", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			handles <- task.Handle
			return 0, consumer.Park(time.Now().Add(time.Hour))
		}, delivering, func(c *handConfig) {
			c.options = []consumer.HandleOption{consumer.Defaults(model.Options{Callback: &hook})}
		})
		handle := receive(t, handles, "the handle")
		a.await(id, "parked", func(task *model.Task) bool { return task.WorkerStates[0].Parked })
		_, err := a.p.Complete(t.Context(), handle, 9)
		require.NoError(t, err)
		a.awaitStatus(id, model.StatusSuccess)
		require.JSONEq(t, `{"ext": 4, "result": 9}`, r.all()[0].body)
	})
}
