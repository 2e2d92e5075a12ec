package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// stuck fails a test that waits for what does not come, and shows where all goroutines wait.
func stuck(t *testing.T, what string) {
	t.Helper()
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // to memory
	t.Log(stacks.String())
	require.FailNow(t, what)
}

// callsWorld is a deployment whose rules call URLs: two engines, two workers, and an
// endpoint that accepts completions.
type callsWorld struct {
	*arena
	rules *periodic.Periodic
}

func newCallsWorld(t *testing.T, e Engine) *callsWorld {
	t.Helper()
	w := &callsWorld{arena: newArena(t, e)}
	endpoint := httptest.NewServer(periodic.CompletionHandler(w.p))
	t.Cleanup(endpoint.Close)
	for _, id := range []string{"engine 1", "engine 2"} {
		p, err := periodic.New(periodic.Config{Database: w.db, EngineID: id})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(chaosPatience):
				stuck(t, "an engine has not stopped for minutes")
			}
		})
		w.rules = p
	}
	for _, id := range []string{"worker 1", "worker 2"} {
		w.hire(id, nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				return builtin.Register(c, builtin.Options{Targets: builtin.TargetOptions{CompletionURL: endpoint.URL + httptarget.CompletionPath}})
			}
		})
	}
	return w
}

// call is what the target of a rule saw of one call.
type call struct {
	run     string
	nominal time.Time
	back    string // where the completion goes
	over    <-chan struct{}
}

// target is a server that rules call. It answers as answer says, which may take its time.
func (w *callsWorld) target(answer func(c call, out http.ResponseWriter)) (url string, calls <-chan call) {
	heard := make(chan call, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		c := call{run: r.Header.Get("X-Run"), back: r.URL.Query().Get("back"), over: r.Context().Done()}
		c.nominal, _ = time.Parse(time.RFC3339, r.Header.Get("X-Nominal"))
		heard <- c
		if answer != nil {
			answer(c, out)
		}
	}))
	w.t.Cleanup(s.Close)
	return s.URL, heard
}

// called is the next call of the rule's target.
func (w *callsWorld) called(r *schedule.Rule, calls <-chan call) call {
	w.t.Helper()
	select {
	case c := <-calls:
		return c
	case <-time.After(chaosPatience):
		for _, x := range w.records(r) {
			w.t.Logf("%+v", x)
		}
		stuck(w.t, "the rule has not called its target for minutes")
		return call{}
	}
}

// eachSecond enables a rule that fires each second, and disables it at the test's end.
func (w *callsWorld) eachSecond(to schedule.HTTPTarget, overlap schedule.OverlapPolicy) *schedule.Rule {
	w.t.Helper()
	to.Timeout = time.Hour // a call ends by what a test does, however long the machine stands still
	to.Headers = map[string]string{"X-Run": "{{run_id}}", "X-Nominal": "{{nominal_time}}"}
	if to.Mode == schedule.HTTPAsync {
		to.URL += "/?back={{callback_url}}"
	}
	r, err := w.rules.Create(w.t.Context(), schedule.Spec{
		Name: "each second", Cron: "* * * * * *", HTTP: &to, Overlap: overlap,
		Options: model.Options{Retry: &model.Retry{Strategy: model.RetryNone}},
	})
	require.NoError(w.t, err)
	_, err = w.rules.Enable(w.t.Context(), r.ID, 0)
	require.NoError(w.t, err)
	return r
}

func (w *callsWorld) disable(r *schedule.Rule) {
	w.t.Helper()
	_, err := w.rules.Disable(w.t.Context(), r.ID, 0, "")
	require.NoError(w.t, err)
}

// ended waits until a run has ended and requires how.
func (w *callsWorld) ended(r *schedule.Rule, run string, want schedule.RunStatus) *schedule.Run {
	w.t.Helper()
	var found *schedule.Run
	awaitTrue(w.t, func() string {
		for _, x := range w.records(r) {
			if x.ID == run && x.Status == want {
				found = x
				return ""
			}
		}
		return fmt.Sprintf("the run %s to be %s", run, want)
	})
	return found
}

func (w *callsWorld) records(r *schedule.Rule) []*schedule.Run {
	w.t.Helper()
	runs, err := w.rules.Runs(w.t.Context(), r.ID, periodic.RunFilter{}, nil, 1000)
	require.NoError(w.t, err)
	return runs
}

// completionAnswer is the answer to a completion.
type completionAnswer struct {
	TaskID string `json:"task_id"`
	Error  string
	Reason string
}

// complete sends a completion and returns the answer.
func (w *callsWorld) complete(c call, body string) (int, completionAnswer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), chaosPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.back, strings.NewReader(body))
	require.NoError(w.t, err)
	res, err := http.DefaultClient.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		stuck(w.t, "a completion has had no answer for minutes")
	}
	require.NoError(w.t, err)
	defer func() { _ = res.Body.Close() }()
	var a completionAnswer
	require.NoError(w.t, json.NewDecoder(res.Body).Decode(&a))
	return res.StatusCode, a
}

func TestEachTickCallsTheTargetOnceAndTheAnswerDecides(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		var mu sync.Mutex
		answers := map[string]schedule.RunStatus{} // by run
		url, calls := w.target(func(c call, out http.ResponseWriter) {
			mu.Lock()
			defer mu.Unlock()
			answers[c.run] = schedule.RunSuccess
			if len(answers)%2 == 0 {
				answers[c.run] = schedule.RunFailed
				out.WriteHeader(http.StatusTeapot)
			}
		})
		r := w.eachSecond(schedule.HTTPTarget{URL: url}, schedule.OverlapAllow)
		const ticks = 4
		seen := map[string]bool{}
		for len(seen) < ticks {
			c := w.called(r, calls)
			require.False(t, seen[c.run], "the tick %s was called twice", c.run)
			require.Equal(t, r.ID+"@"+c.nominal.UTC().Format(time.RFC3339), c.run)
			seen[c.run] = true
		}
		w.disable(r)
		for run := range seen {
			mu.Lock()
			want := answers[run]
			mu.Unlock()
			require.Equal(t, want == schedule.RunFailed, strings.Contains(w.ended(r, run, want).Error, "answered 418"))
		}
		next := map[time.Time]int{}
		for _, x := range w.records(r) {
			next[x.Nominal]++
			require.Equal(t, 1, next[x.Nominal], "records of a tick")
		}
	})
}

func TestACompletionEndsTheRunOfATickOnce(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		url, calls := w.target(nil)
		r := w.eachSecond(schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync}, schedule.OverlapSkip)
		c := w.called(r, calls)
		w.ended(r, c.run, schedule.RunWaiting)
		status, a := w.complete(c, `{"result": {"rows": 7}}`)
		require.Equal(t, http.StatusOK, status, a)
		task := w.get(w.ended(r, c.run, schedule.RunSuccess).TaskID)
		require.JSONEq(t, `{"rows": 7}`, string(codec.ValueJSON(task.Result)))
		for _, again := range []string{`{"result": {"rows": 7}}`, `{"error": "no"}`} {
			status, a = w.complete(c, again)
			require.Equal(t, http.StatusConflict, status)
			require.Equal(t, "repeated", a.Reason)
		}
		c = w.called(r, calls) // the tick after the end: those in between were skipped
		status, _ = w.complete(c, `{"error": "no rows"}`)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "no rows", w.ended(r, c.run, schedule.RunFailed).Error)
		w.disable(r)
		w.ended(r, task.Origin.Tick.Run, schedule.RunSuccess) // what came later changed nothing
	})
}

func TestACompletionAfterItsTimeIsRefusedAndTheRunIsATimeout(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		url, calls := w.target(nil)
		r := w.eachSecond(schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync, CompletionTimeout: 100 * time.Millisecond}, schedule.OverlapSkip)
		c := w.called(r, calls)
		w.ended(r, c.run, schedule.RunFailedTimeout)
		status, a := w.complete(c, `{"result": 1}`)
		require.Equal(t, http.StatusGone, status)
		require.Equal(t, "gone", a.Reason)
		w.disable(r)
		w.ended(r, c.run, schedule.RunFailedTimeout)
	})
}

func TestCancelPrevAbortsTheCallInFlightBeforeTheNextTickRuns(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		over := make(chan struct{})
		defer close(over)
		url, calls := w.target(func(c call, _ http.ResponseWriter) {
			select {
			case <-c.over:
			case <-over:
			}
		})
		r := w.eachSecond(schedule.HTTPTarget{URL: url}, schedule.OverlapCancelPrev)
		first := w.called(r, calls)
		<-first.over // aborted: nothing else ends it
		second := w.called(r, calls)
		require.NotEqual(t, first.run, second.run)
		before := w.get(model.TaskID("", "mscheduler.http", first.run))
		require.Equal(t, model.StatusCancelled, before.Status, "the next begins when the first has ended")
		w.ended(r, first.run, schedule.RunCanceled)
		w.disable(r)
	})
}

func TestCancelPrevDoesNotWaitForACompletion(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		url, calls := w.target(nil)
		r := w.eachSecond(schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync, CompletionTimeout: time.Hour}, schedule.OverlapCancelPrev)
		first := w.called(r, calls)
		second := w.called(r, calls)
		require.NotEqual(t, first.run, second.run)
		w.ended(r, first.run, schedule.RunCanceled)
		status, a := w.complete(first, `{"result": 1}`)
		require.Equal(t, http.StatusGone, status)
		require.Contains(t, a.Error, "cancelled")
		w.disable(r)
		w.ended(r, first.run, schedule.RunCanceled)
	})
}
