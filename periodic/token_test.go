package periodic_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A token is made of an exec_id, which whoever reads the database knows.
func TestNoCompletionEndsARunOfASyncTarget(t *testing.T) {
	h := newHooks(t)
	type said struct {
		status int
		answer completionAnswer
	}
	answers := make(chan said, 1)
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		task, err := h.prod.Get(r.Context(), r.Header.Get("Mscheduler-Task-Id"))
		if err != nil {
			answers <- said{answer: completionAnswer{Error: err.Error()}}
			return
		}
		status, a := post(t, h.url+input.HandleOf(task, task.WorkerStates[0].ExecID).String(), `{"result": "said early"}`)
		answers <- said{status, a}
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := h.start(&schedule.HTTPTarget{URL: url})
	got := testdb.Receive(t, answers)
	require.Equal(t, 404, got.status, got.answer)
	require.Equal(t, "unknown", got.answer.Reason)
	require.Contains(t, got.answer.Error, "waits for no completion", "the token is right")
	require.Contains(t, h.ends(r, schedule.RunFailed).Error, "answered 500")
}

func TestWhatATargetIsToldOfItsExecutionMakesNoToken(t *testing.T) {
	h := newHooks(t)
	ids := make(chan string, 1)
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		ids <- r.Header.Get("Mscheduler-Execution-Id")
		_, _ = io.WriteString(w, `{"told": "`+r.Header.Get("Mscheduler-Callback-Url")+`"}`)
	})
	r := h.start(&schedule.HTTPTarget{URL: url, Mode: schedule.HTTPAsync})
	status, a := post(t, h.url+base64.RawURLEncoding.EncodeToString([]byte(testdb.Receive(t, ids))), "")
	require.Equal(t, 404, status, a)
	run := h.ends(r, schedule.RunWaiting)
	task, err := h.prod.Get(t.Context(), run.TaskID)
	require.NoError(t, err)
	token := input.HandleOf(task, task.WorkerStates[0].ExecID).String()
	kept := string(codec.ValueJSON(task.Checkpoint))
	require.Contains(t, kept, h.url+"***", "a target that repeats its request")
	require.NotContains(t, kept, token)
	status, a = post(t, h.url+token, "")
	require.Equal(t, 200, status, a)
	h.ends(r, schedule.RunSuccess)
}

// Whoever knows the token may end the run.
func TestARedirectTellsNoOtherHostOfTheToken(t *testing.T) {
	h := newHooks(t)
	elsewhere := make(chan http.Header, 10)
	other := target(t, func(_ http.ResponseWriter, r *http.Request) { elsewhere <- r.Header.Clone() })
	own := make(chan http.Header, 10)
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		case "/on":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case "/here":
			own <- r.Header.Clone()
		}
	})
	to := schedule.HTTPTarget{Mode: schedule.HTTPAsync, Method: http.MethodGet, Keys: []callback.Key{{AccessKey: "ak", Secret: "hunter2"}}}
	to.URL = url + "/away?back={{callback_url}}"
	require.Contains(t, h.ends(h.start(&to), schedule.RunFailed).Error, "answered 307")
	require.Empty(t, elsewhere)

	sync := schedule.HTTPTarget{URL: url + "/away", Keys: to.Keys}
	h.ends(h.start(&sync), schedule.RunSuccess)
	got := testdb.Receive(t, elsewhere)
	require.NotEmpty(t, got.Get("Idempotency-Key"))
	require.Empty(t, got.Get("Webhook-Signature"), "what is signed for one host is not for another")

	to.URL = url + "/on"
	r := h.start(&to)
	status, a := post(t, testdb.Receive(t, own).Get("Mscheduler-Callback-Url"), "")
	require.Equal(t, 200, status, a)
	h.ends(r, schedule.RunSuccess)
}

func TestTokensOfOtherTasksCompleteNoRun(t *testing.T) {
	h := newHooks(t)
	for _, token := range []string{"x", input.HandleOf(&model.Task{ID: "-/http/k", Generation: 1}, "e").String(), input.HandleOf(&model.Task{ID: "-/mscheduler.http/k", Generation: 1}, "e").String()} {
		status, a := post(t, h.url+token, "")
		require.Equal(t, 404, status)
		require.Equal(t, "unknown", a.Reason)
	}
}
