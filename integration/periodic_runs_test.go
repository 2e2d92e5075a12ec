package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

var ruleWork = model.NewType[model.None, model.None]("rule.work")

// trigger makes a rule that fires when it is told to only, and triggers it.
func (w *callsWorld) trigger(s schedule.Spec) (r *schedule.Rule, run string) {
	w.t.Helper()
	s.Cron = "@yearly"
	r, err := w.rules.Create(w.t.Context(), s)
	require.NoError(w.t, err)
	return r, w.again(r)
}

func (w *callsWorld) again(r *schedule.Rule) (run string) {
	w.t.Helper()
	run, err := w.rules.Trigger(w.t.Context(), r.ID, periodic.TriggerOptions{})
	require.NoError(w.t, err)
	return run
}

func (w *callsWorld) run(id string) *schedule.Run {
	w.t.Helper()
	r, err := w.rules.GetRun(w.t.Context(), id)
	require.NoError(w.t, err)
	return r
}

func TestTheExtOfARuleReachesHandlersAndRequests(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		seen := make(chan string, 10)
		w.hire("handler", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				return consumer.Handle(c, ruleWork, func(_ context.Context, x *consumer.Task[model.None]) (model.None, error) {
					seen <- string(x.Ext())
					return model.None{}, nil
				})
			}
		})
		ext := map[string]any{"region": "eu", "hosts": []string{"a", "b"}}
		r, _ := w.trigger(schedule.Spec{Name: "handler", Type: ruleWork.Name(), Ext: ext})
		require.JSONEq(t, `{"region": "eu", "hosts": ["a", "b"]}`, <-seen)
		_, err := w.rules.Update(t.Context(), r.ID, r.Version, schedule.Spec{Name: "handler", Cron: "@yearly", Type: ruleWork.Name()})
		require.NoError(t, err)
		w.again(r)
		require.Equal(t, "null", <-seen, "the rule has none any more")

		bodies := make(chan string, 10)
		target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies <- r.URL.Path + " " + string(body)
		}))
		defer target.Close()
		to := schedule.HTTPTarget{URL: target.URL + "/{{ext.region}}", Body: `{"host": "{{ext.hosts.1}}", "ext": {{ext}}}`}
		_, run := w.trigger(schedule.Spec{Name: "target", HTTP: &to, Ext: ext})
		path, body, _ := strings.Cut(<-bodies, " ")
		require.Equal(t, "/eu", path)
		require.JSONEq(t, `{"host": "b", "ext": {"region": "eu", "hosts": ["a", "b"]}}`, body, run)

		to.URL = target.URL + "/{{ext.zone}}"
		_, err = w.rules.Create(t.Context(), schedule.Spec{Name: "wrong", Cron: "@yearly", HTTP: &to, Ext: ext})
		require.ErrorContains(t, err, `http.url has the placeholder "ext.zone", but the rule's ext does not contain this value`)
	})
}

// The record is all that is left of a run when its task is gone.
func TestARunKeepsItsLastRequestAndResponse(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		release := make(chan struct{})
		target := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server would not notice that the caller is gone
			switch "/" + strings.Split(r.URL.Path, "/")[1] {
			case "/slow":
				<-r.Context().Done()
				return
			case "/held":
				select {
				case <-release:
				case <-r.Context().Done():
				}
			case "/refuses":
				out.WriteHeader(http.StatusTeapot)
			}
			out.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(out, "done "+strings.Repeat("é", 10_000))
		}))
		defer target.Close()
		begin := time.Now().Add(-time.Minute)
		to := func(path string) *schedule.HTTPTarget {
			return &schedule.HTTPTarget{
				URL: target.URL + path + "?token=hunter2&run={{run_id}}", Method: http.MethodPut, Body: `{"attempt": {{attempt}}, "long": "` + strings.Repeat("x", 10_000) + `"}`,
				Headers: map[string]string{"Authorization": "Bearer hunter2", "X-Run": "{{run_id}}"},
			}
		}
		kept := func(run string) *schedule.Run {
			awaitTrue(t, func() string {
				if stored, err := w.store.Runs.Get(t.Context(), run); err != nil || stored.Status == schedule.RunScheduled {
					return fmt.Sprintf("the rule to be told of the end: %v", err)
				}
				return ""
			})
			_, err := w.db.Collection("tasks").DeleteMany(t.Context(), bson.D{{Key: "key", Value: run}})
			require.NoError(t, err)
			r := w.run(run)
			require.NotNil(t, r.Call, "the record has the call")
			require.False(t, r.StartedAt.IsZero() || r.ExecutedAt.Before(r.StartedAt) || r.EndedAt.Before(r.ExecutedAt), "sent %v, begun %v, ended %v", r.StartedAt, r.ExecutedAt, r.EndedAt)
			require.True(t, r.Call.At.After(begin))
			require.Equal(t, 1, r.Call.Attempt)
			q := r.Call.Request
			require.Equal(t, http.MethodPut, q.Method)
			require.Contains(t, q.URL, "?token=***&run=***")
			require.Equal(t, []string{"Authorization: ***", "Content-Type: application/json", "X-Run: " + run}, q.Headers)
			require.True(t, strings.HasPrefix(q.Body, `{"attempt": 1, "long": "xxx`) && len(q.Body) == 4<<10 && q.Truncated, q.Body)
			all, err := json.Marshal(r)
			require.NoError(t, err)
			require.NotContains(t, string(all), "hunter2")
			require.Less(t, len(all), 20<<10, "it is bounded")
			return r
		}

		r, run := w.trigger(schedule.Spec{Name: "good", HTTP: to("/good")})
		w.ended(r, run, schedule.RunSuccess)
		got := kept(run)
		require.Equal(t, 200, got.Call.Response.Status)
		require.Equal(t, []string{"Content-Type: text/plain"}, got.Call.Response.Headers)
		require.True(t, strings.HasPrefix(got.Call.Response.Body, "done éé") && got.Call.Response.Truncated)
		require.Empty(t, got.Call.Error)

		r, run = w.trigger(schedule.Spec{Name: "bad", HTTP: to("/refuses")})
		w.ended(r, run, schedule.RunFailed)
		got = kept(run)
		require.Equal(t, http.StatusTeapot, got.Call.Response.Status)
		require.Contains(t, got.Call.Error, "answered 418")

		slow := to("/slow")
		slow.Timeout = 100 * time.Millisecond
		r, run = w.trigger(schedule.Spec{Name: "slow", HTTP: slow})
		w.ended(r, run, schedule.RunTimeout)
		got = kept(run)
		require.Nil(t, got.Call.Response)
		require.Contains(t, got.Call.Error, "no answer within")

		// While it runs, and before the answer, the request of an ASYNC target is there; the
		// callback URL is a secret as long as the run waits.
		held := to("/held")
		held.Mode, held.Headers["X-Back"] = schedule.HTTPAsync, "{{callback_url}}"
		held.Body, held.URL = `{"back": "{{callback_url}}"}`, target.URL+"/held/{{callback_url}}"
		r, run = w.trigger(schedule.Spec{Name: "held", HTTP: held})
		awaitTrue(t, func() string {
			if got = w.run(run); got.Call == nil {
				return "the request"
			}
			return ""
		})
		require.Equal(t, schedule.RunRunning, got.Status)
		require.Nil(t, got.Call.Response)
		require.Equal(t, target.URL+"/held/***", got.Call.Request.URL)
		require.JSONEq(t, `{"back": "***"}`, got.Call.Request.Body)
		require.Contains(t, got.Call.Request.Headers, "X-Back: ***")
		close(release)
		got = w.ended(r, run, schedule.RunWaiting)
		require.False(t, got.ExecutedAt.IsZero())
		awaitTrue(t, func() string {
			if got = w.run(run); got.Call.Response == nil {
				return "the response"
			}
			return ""
		})
	})
}

func TestACompletionHasTheMethodThatTheRuleNames(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		heard := make(chan [2]string, 10)
		target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			heard <- [2]string{r.Header.Get("Mscheduler-Callback-Url"), r.Header.Get("Mscheduler-Callback-Method")}
		}))
		defer target.Close()
		for named, other := range map[string]string{http.MethodPut: http.MethodPost, http.MethodPost: http.MethodPut} {
			r, run := w.trigger(schedule.Spec{Name: named, HTTP: &schedule.HTTPTarget{URL: target.URL, Mode: schedule.HTTPAsync, CompletionMethod: named}})
			call := <-heard
			require.Equal(t, named, call[1], "the target is told")
			for _, method := range []string{other, named} {
				req, err := http.NewRequestWithContext(t.Context(), method, call[0], http.NoBody)
				require.NoError(t, err)
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				if method == other {
					require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode)
					require.Equal(t, named, res.Header.Get("Allow"))
					require.NotEqual(t, schedule.RunSuccess, w.run(run).Status, "it ends nothing")
				} else {
					require.Equal(t, http.StatusOK, res.StatusCode)
				}
			}
			w.ended(r, run, schedule.RunSuccess)
		}
		for _, wrong := range []schedule.HTTPTarget{
			{URL: target.URL, Mode: schedule.HTTPAsync, CompletionMethod: "GET"}, {URL: target.URL, CompletionMethod: http.MethodPut},
		} {
			_, err := w.rules.Create(t.Context(), schedule.Spec{Name: "wrong", Cron: "@yearly", HTTP: &wrong})
			require.ErrorContains(t, err, "http.callback_method")
		}
	})
}

func TestRunsAreListedAcrossRulesByWhatTheyAreNow(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		release := make(chan struct{})
		w.hire("handler", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				return consumer.Handle(c, ruleWork, func(ctx context.Context, _ *consumer.Task[model.None]) (model.None, error) {
					select {
					case <-release:
					case <-ctx.Done():
					}
					return model.None{}, ctx.Err()
				})
			}
		})
		target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer target.Close()
		ids := map[string][]string{} // of runs, by what they are, the newest first
		add := func(what, run string) { ids[what] = slices.Insert(ids[what], 0, run) }
		for i := range 3 {
			_, run := w.trigger(schedule.Spec{Name: fmt.Sprint("runs ", i), Type: ruleWork.Name(), Tenant: "acme"})
			add("RUNNING", run)
			_, run = w.trigger(schedule.Spec{Name: fmt.Sprint("waits ", i), HTTP: &schedule.HTTPTarget{URL: target.URL, Mode: schedule.HTTPAsync}})
			add("WAITING_CALLBACK", run)
			_, run = w.trigger(schedule.Spec{Name: fmt.Sprint("nobody ", i), Type: "nobody"})
			add("SCHEDULED", run)
		}
		r, first := w.trigger(schedule.Spec{Name: "one at a time", Type: "nobody", MaxConcurrency: 1})
		add("SCHEDULED", first)
		add("QUEUED", w.again(r))

		// list reads all pages of the given size.
		list := func(rule string, f periodic.RunFilter, size int) (out []string) {
			var after *schedule.Run
			for {
				page, err := w.rules.Runs(t.Context(), rule, f, after, size)
				require.NoError(t, err)
				for _, x := range page {
					if len(f.Statuses) > 0 {
						require.Contains(t, f.Statuses, x.Status)
					}
					out = append(out, x.ID)
				}
				if len(page) < size {
					return out
				}
				after = page[len(page)-1]
			}
		}
		of := func(s ...schedule.RunStatus) periodic.RunFilter { return periodic.RunFilter{Statuses: s} }
		awaitTrue(t, func() string { // all at once: some run before they wait
			for what, want := range ids {
				if got := list("", of(schedule.RunStatus(what)), 1000); !slices.Equal(got, want) {
					return fmt.Sprintf("%s: %v, got %v", what, want, got)
				}
			}
			return ""
		})
		for what, want := range ids {
			for _, size := range []int{1, 2} {
				require.Equal(t, want, list("", of(schedule.RunStatus(what)), size), "pages of %d join", size)
			}
		}
		require.Len(t, list("", periodic.RunFilter{}, 4), 11)
		require.Len(t, list("", of(schedule.RunRunning, schedule.RunQueued), 2), 4)
		require.Empty(t, list("", of(schedule.RunSuccess, schedule.RunSkipped), 2))
		require.Equal(t, ids["RUNNING"], list("", periodic.RunFilter{Tenant: "acme"}, 2))
		require.Len(t, list("", periodic.RunFilter{Tenant: model.NoTenant}, 3), 8)
		require.Equal(t, []string{first}, list(r.ID, of(schedule.RunScheduled), 1))
		require.Empty(t, list(r.ID, of(schedule.RunRunning), 1))

		// Their tasks have ended, whether the rules know it or not.
		close(release)
		awaitTrue(t, func() string {
			if got := list("", of(schedule.RunSuccess), 2); !slices.Equal(got, ids["RUNNING"]) {
				return fmt.Sprintf("the runs that succeeded, got %v", got)
			}
			return ""
		})
		require.Empty(t, list("", of(schedule.RunRunning), 2))
	})
}

func TestARunIsReadByItsIDWhateverTheRuleRecords(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		w := newCallsWorld(t, e)
		target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer target.Close()
		for _, log := range []schedule.RunLog{"", schedule.LogNone, schedule.LogTrigger, schedule.LogTrans} {
			r, run := w.trigger(schedule.Spec{Name: "log " + string(log), HTTP: &schedule.HTTPTarget{URL: target.URL}, Log: log})
			awaitTrue(t, func() string {
				x := w.run(run)
				if x.Status != schedule.RunSuccess || x.ExecutedAt.IsZero() || x.Call == nil || x.Call.Response == nil {
					return fmt.Sprintf("the end of the run, log %q: %+v", log, x)
				}
				require.Equal(t, r.ID, x.RuleID)
				require.Equal(t, r.Name, x.RuleName)
				require.True(t, x.Manual)
				return ""
			})
		}
		for _, id := range []string{"x", "", "x@2026-01-01T00:00:00Z", "@", "!"} {
			_, err := w.rules.GetRun(t.Context(), id)
			require.ErrorIs(t, err, model.ErrNotFound, id)
		}
	})
}

// A list of runs reads what it shows, however many records there are.
func TestListsOfRunsReadNoMoreThanTheyShow(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		statuses := []schedule.RunStatus{schedule.RunSuccess, schedule.RunSkipped, schedule.RunFailed, schedule.RunScheduled}
		var runs []*schedule.Run
		for i := range 2000 {
			at := clock.Millis(time.Now()).Add(time.Duration(i) * time.Second)
			runs = append(runs, &schedule.Run{ID: fmt.Sprintf("r%d@%d", i%3, i), RuleID: fmt.Sprint("r", i%3), Nominal: at, Status: statuses[i%len(statuses)], Rev: 1})
		}
		for some := range slices.Chunk(runs, 500) {
			held, err := x.store.Runs.Put(t.Context(), some)
			require.NoError(t, err)
			require.Empty(t, held)
		}
		const page = 20
		for _, f := range []store.RunFilter{
			{}, {RuleID: "r1"}, {Statuses: []schedule.RunStatus{schedule.RunScheduled}}, {Statuses: []schedule.RunStatus{schedule.RunSuccess, schedule.RunSkipped}},
		} {
			for _, span := range []store.Span{{}, {At: runs[1000].Nominal, ID: runs[1000].ID}, {Oldest: true}, {Oldest: true, At: runs[1000].Nominal, ID: runs[1000].ID}} {
				x.explain("find", func() {
					span.Limit = page
					found, _, err := x.store.Runs.List(t.Context(), f, span)
					require.NoError(t, err)
					require.Len(t, found, page)
				}).within(t, page+20, page+5) // a range for each status is entered
			}
		}
	})
}
