package periodic_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

const secretKey = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// hooks are an engine, a worker and the endpoint of completions, all of one deployment.
type hooks struct {
	t    *testing.T
	p    *periodic.Periodic
	prod *producer.Producer
	db   *mongo.Database
	url  string // of completions
	n    int
}

func newHooks(t *testing.T) *hooks {
	db := testdb.New(t)
	h := &hooks{t: t, db: db}
	var err error
	h.p, err = periodic.New(periodic.Config{Database: db, SecretKey: secretKey})
	require.NoError(t, err)
	h.prod, err = producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.prod.Close(context.Background())) })
	server := httptest.NewServer(periodic.CompletionHandler(h.prod))
	t.Cleanup(server.Close)
	h.url = server.URL + httptarget.CompletionPath
	h.worker(db)
	engine(t, h.p.Run)
	return h
}

func (h *hooks) worker(db *mongo.Database) {
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: "w", Callbacks: &consumer.CallbackConfig{SecretKey: secretKey}})
	require.NoError(h.t, err)
	box, err := secret.Parse("secret_key", secretKey)
	require.NoError(h.t, err)
	require.NoError(h.t, builtin.Register(c, builtin.Options{Targets: builtin.TargetOptions{CompletionURL: h.url, Secrets: box}}))
	engine(h.t, c.Run)
}

// target is a server that a rule calls.
func target(t *testing.T, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// start makes a rule that fires when it is triggered only, and triggers it.
func (h *hooks) start(to *schedule.HTTPTarget, change ...func(*schedule.Spec)) *schedule.Rule {
	h.n++
	s := schedule.Spec{Name: fmt.Sprintf("rule %d", h.n), Cron: "0 0 1 1 *", HTTP: to}
	for _, f := range change {
		f(&s)
	}
	r, err := h.p.Create(h.t.Context(), s)
	require.NoError(h.t, err)
	h.trigger(r)
	return r
}

func (h *hooks) trigger(r *schedule.Rule) {
	_, err := h.p.Trigger(h.t.Context(), r.ID, periodic.TriggerOptions{})
	require.NoError(h.t, err)
}

// ends waits until a run of the rule has the status.
func (h *hooks) ends(r *schedule.Rule, want schedule.RunStatus) (run *schedule.Run) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		runs, err := h.p.Runs(h.t.Context(), r.ID, periodic.RunFilter{}, nil, 10)
		require.NoError(h.t, err)
		for _, x := range runs {
			if x.Status == want {
				run = x
				return true
			}
		}
		return false
	}, testdb.Patience, 20*time.Millisecond)
	return run
}

// completionAnswer is the answer to a completion.
type completionAnswer struct {
	TaskID string `json:"task_id"`
	Error  string
	Reason string
}

// post sends a completion and returns the answer.
func post(t *testing.T, url, body string) (int, completionAnswer) {
	t.Helper()
	return complete(t, http.MethodPost, url, body)
}

func complete(t *testing.T, method, url, body string) (int, completionAnswer) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	var a completionAnswer
	require.NoError(t, json.NewDecoder(res.Body).Decode(&a))
	return res.StatusCode, a
}

func TestTheAnswerDecidesARunOfASyncTarget(t *testing.T) {
	h := newHooks(t)
	var body, run, sig string
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(data)))
		if _, err := callback.Verify(r, callback.Key{AccessKey: "ak", Secret: "hunter2"}); err != nil {
			sig = err.Error()
		}
		body, run = string(data), r.URL.Query().Get("run")
		w.WriteHeader(http.StatusTeapot)
	})
	r := h.start(&schedule.HTTPTarget{
		URL: url + "/{{name}}?run={{run_id}}", Body: `{"name":"{{name}}","attempt":{{attempt}}}`,
		Expect: []schedule.StatusRange{{From: 418, To: 418}}, Keys: []callback.Key{{AccessKey: "ak", Secret: "hunter2"}},
	}, func(s *schedule.Spec) { s.Name = `a "b"` })
	got := h.ends(r, schedule.RunSuccess)
	require.Equal(t, got.ID, run)
	require.JSONEq(t, `{"name":"a \"b\"","attempt":1}`, body)
	require.Empty(t, sig)
	spec := periodic.SpecOf(r)
	require.Empty(t, spec.Type)
	require.Equal(t, url+"/{{name}}?run={{run_id}}", spec.HTTP.URL)

	failed := h.start(&schedule.HTTPTarget{URL: url})
	require.Contains(t, h.ends(failed, schedule.RunFailed).Error, "answered 418")
}

func TestARequestThatTakesTooLongIsATimeout(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := h.start(&schedule.HTTPTarget{URL: url, Timeout: 50 * time.Millisecond})
	require.Contains(t, h.ends(r, schedule.RunTimeout).Error, "no answer within 50ms")
}

func TestACompletionDecidesARunOfAnAsyncTargetOnce(t *testing.T) {
	h := newHooks(t)
	urls := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { urls <- r.Header.Get("Mscheduler-Callback-Url") })
	to := schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync}

	r := h.start(&to)
	back := testdb.Receive(t, urls)
	h.ends(r, schedule.RunWaiting)
	status, a := post(t, back, `{"result": 1, "other": 2}`)
	require.Equal(t, 400, status, a)
	require.Equal(t, "invalid", a.Reason)
	status, a = post(t, back, `{"result": {"rows": 7}}`)
	require.Equal(t, 200, status, a)
	run := h.ends(r, schedule.RunSuccess)
	require.Equal(t, run.TaskID, a.TaskID)
	task, err := h.prod.Get(t.Context(), run.TaskID)
	require.NoError(t, err)
	require.JSONEq(t, `{"rows":7}`, string(codec.ValueJSON(task.Result)))
	for _, again := range []string{`{"result": {"rows": 7}}`, `{"error": "no"}`, ``} {
		status, a = post(t, back, again)
		require.Equal(t, 409, status, again)
		require.Equal(t, "repeated", a.Reason)
	}

	r = h.start(&to)
	status, a = post(t, testdb.Receive(t, urls), `{"error": "no rows"}`) // before the park, or after it
	require.Equal(t, 200, status, a)
	require.Equal(t, "no rows", h.ends(r, schedule.RunFailed).Error)

	r = h.start(&to)
	back = testdb.Receive(t, urls)
	status, a = post(t, back, `{"plan_error": true}`)
	require.Equal(t, 400, status, a)
	status, a = post(t, back, `{"error": "no such region", "plan_error": true}`)
	require.Equal(t, 200, status, a)
	task, err = h.prod.Get(t.Context(), h.ends(r, schedule.RunFailed).TaskID)
	require.NoError(t, err)
	require.Equal(t, failkind.PlanError, task.WorkerStates[0].FailKind)
	status, a = post(t, back, ``)
	require.Equal(t, 409, status, a)
	require.Equal(t, "repeated", a.Reason)
}

func TestNullInACompletionIsAbsentAndItMayBePut(t *testing.T) {
	h := newHooks(t)
	urls := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { urls <- r.Header.Get("Mscheduler-Callback-Url") })
	for body, want := range map[string]schedule.RunStatus{
		`{"result": null, "error": "boom"}`:               schedule.RunFailed,
		`{"result": 1, "error": null}`:                    schedule.RunSuccess,
		`{"result": null, "error": null, "fatal": false}`: schedule.RunSuccess,
	} {
		r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync})
		status, a := complete(t, http.MethodPut, testdb.Receive(t, urls), body)
		require.Equal(t, 200, status, "%s: %v", body, a)
		h.ends(r, want)
	}
}

func TestACompletionBeforeTheAnswerWins(t *testing.T) {
	h := newHooks(t)
	answers := make(chan completionAnswer, 1)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		_, a := post(t, r.Header.Get("Mscheduler-Callback-Url"), "")
		answers <- a
	})
	r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync})
	require.Empty(t, testdb.Receive(t, answers).Error)
	h.ends(r, schedule.RunSuccess)
}

func TestACompletionThatDoesNotComeIsAFailedTimeoutAndALateOneIsRefused(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	urls := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		urls <- string(data)
	})
	r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync, CompletionTimeout: 50 * time.Millisecond, Body: "{{callback_url}}"})
	back := testdb.Receive(t, urls)
	require.Contains(t, h.ends(r, schedule.RunFailedTimeout).Error, "no completion arrived before")
	status, a := post(t, back, "")
	require.Equal(t, 410, status)
	require.Equal(t, "gone", a.Reason)
	require.Contains(t, a.Error, "no completion arrived before")
}

func TestALateCompletionIsRefusedAlsoWhereNobodyHasSeenTheLapse(t *testing.T) {
	h := newHooks(t)
	urls := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { urls <- r.Header.Get("Mscheduler-Callback-Url") })
	r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync})
	back := testdb.Receive(t, urls)
	run := h.ends(r, schedule.RunWaiting)
	// Its time is over, and its lapse_at, an hour ahead, has no worker look.
	_, err := h.db.Collection("tasks").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: run.TaskID}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "worker_states.0.ping_expire_time", Value: time.Now().Add(-time.Minute)}}}})
	require.NoError(t, err)
	status, a := post(t, back, `{"result": 1}`)
	require.Equal(t, 410, status, a)
	require.Equal(t, "gone", a.Reason)
	require.Contains(t, a.Error, "the callback timeout expired at ")
	h.ends(r, schedule.RunFailedTimeout)
	status, a = post(t, back, "")
	require.Equal(t, 410, status, a)
}

func TestARunIsOneCallUnlessTheRuleSaysMore(t *testing.T) {
	h := newHooks(t)
	var calls atomic.Int64
	url := target(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	h.ends(h.start(&schedule.HTTPTarget{URL: url}), schedule.RunFailed)
	require.EqualValues(t, 1, calls.Load())
	retry := model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond, MaxErrors: new(2)}
	h.ends(h.start(&schedule.HTTPTarget{URL: url}, func(s *schedule.Spec) { s.Options.Retry = &retry }), schedule.RunFailed)
	require.EqualValues(t, 4, calls.Load())
}

func TestCancelPrevAbortsTheCallInFlight(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	began, aborted := make(chan bool, 10), make(chan bool, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- true
		select {
		case <-r.Context().Done():
			aborted <- true
		case <-t.Context().Done():
		}
	})
	r, err := h.p.Create(t.Context(), schedule.Spec{
		Name: "n", Cron: "* * * * * *", Overlap: schedule.OverlapCancelPrev, HTTP: &schedule.HTTPTarget{URL: url, Timeout: time.Hour},
	})
	require.NoError(t, err)
	_, err = h.p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	testdb.Receive(t, began)
	testdb.Receive(t, aborted)
	testdb.Receive(t, began) // the next run, when the first has ended
	h.ends(r, schedule.RunCanceled)
	_, err = h.p.Disable(t.Context(), r.ID, 0, "")
	require.NoError(t, err)
}

func TestACancelledRunDoesNotWaitForItsCompletion(t *testing.T) {
	h := newHooks(t)
	urls := make(chan string, 10)
	url := target(t, func(_ http.ResponseWriter, r *http.Request) { urls <- r.Header.Get("Mscheduler-Callback-Url") })
	r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync})
	back := testdb.Receive(t, urls)
	run := h.ends(r, schedule.RunWaiting)
	require.NoError(t, h.p.Cancel(t.Context(), run.ID))
	h.ends(r, schedule.RunCanceled)
	status, a := post(t, back, "")
	require.Equal(t, 410, status)
	require.Contains(t, a.Error, "cancelled")
}

func TestATargetThatIsWrongIsRefusedByItsField(t *testing.T) {
	p, err := periodic.New(periodic.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	for _, c := range []struct {
		says   string
		change func(*schedule.Spec)
	}{
		{`http.url has the placeholder "run"`, func(s *schedule.Spec) { s.HTTP.URL += "{{run}}" }},
		{`http.body has the placeholder "callback_url", which requires mode ASYNC`, func(s *schedule.Spec) { s.HTTP.Body = "{{callback_url}}" }},
		{"http.keys[0].sk cannot be stored: no secret key is set", func(s *schedule.Spec) { s.HTTP.Keys = []callback.Key{{AccessKey: "a", Secret: "s"}} }},
		{"callback.security.keys[0].sk cannot be stored: no secret key is set", func(s *schedule.Spec) { s.Options.Callback = signed("s") }},
		{"callback cannot be set for tasks of type mscheduler.callback", func(s *schedule.Spec) {
			s.HTTP, s.Type, s.Options.Callback = nil, input.CallbackType, &model.Callback{Success: &model.CallbackTarget{URL: "http://h"}}
		}},
		{`type is "t", but http is set, too`, func(s *schedule.Spec) { s.Type = "t" }},
		{"http.url has a placeholder before its path", func(s *schedule.Spec) { s.Type, s.HTTP.URL = "t", "http://{{name}}/" }},
		{"expires_at is 2027-01-01 00:00:00 +0000 UTC, one time for all ticks", func(s *schedule.Spec) { s.Options.ExpiresAt = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"args are given", func(s *schedule.Spec) { s.Args = 1 }},
		{"set http instead", func(s *schedule.Spec) { s.HTTP, s.Type = nil, "mscheduler.http" }},
	} {
		s := schedule.Spec{Name: "n", Cron: "@daily", HTTP: &schedule.HTTPTarget{URL: "http://example.org/"}}
		c.change(&s)
		_, err := p.Create(t.Context(), s)
		require.ErrorIs(t, err, model.ErrInvalid, c.says)
		require.ErrorContains(t, err, c.says)
	}
}

// A target may still write when it is refused, and the body of whoever has no token is not kept.
func TestACompletionIsRefusedByItsTokenWhateverItsBody(t *testing.T) {
	h := newHooks(t)
	taken := make(chan string, 1)
	r := h.start(&schedule.HTTPTarget{Mode: schedule.HTTPAsync, URL: target(t, func(_ http.ResponseWriter, r *http.Request) {
		taken <- path.Base(r.Header.Get("Mscheduler-Callback-Url"))
	})})
	token := <-taken
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	const proof = 32
	forged := string(raw[:len(raw)-proof]) + strings.Repeat("0", proof)
	for _, bad := range []string{"x", base64.RawURLEncoding.EncodeToString([]byte(forged))} {
		for _, body := range []string{strings.Repeat("x", 1<<20), `{"result"`} {
			answer, err := http.Post(h.url+bad, "application/json", strings.NewReader(body)) //nolint:noctx // a test
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Contains(t, []int{http.StatusNotFound, http.StatusGone}, answer.StatusCode)
		}
	}
	answer := httptest.NewRecorder()
	periodic.CompletionHandler(h.prod).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, httptarget.CompletionPath+token, strings.NewReader(`{"result": 1}`)))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	h.ends(r, schedule.RunSuccess)
}
