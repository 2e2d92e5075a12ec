package periodic_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A token is made of an execution's id, which every target is told.
func TestNoCompletionEndsARunOfASyncTarget(t *testing.T) {
	h := newHooks(t)
	type said struct {
		status int
		answer completionAnswer
	}
	answers := make(chan said, 1)
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		token := base64.RawURLEncoding.EncodeToString([]byte(r.Header.Get("Mscheduler-Execution-Id")))
		status, a := post(t, h.url+token, `{"result": "said early"}`)
		answers <- said{status, a}
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := h.start(&schedule.HTTPTarget{URL: url})
	got := <-answers
	require.Equal(t, 404, got.status, got.answer)
	require.Equal(t, "unknown", got.answer.Reason)
	require.Contains(t, got.answer.Error, "waits for no completion", "the token is right")
	require.Contains(t, h.ends(r, schedule.RunFailed).Error, "answered 500")
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
	got := <-elsewhere
	require.NotEmpty(t, got.Get("Idempotency-Key"))
	require.Empty(t, got.Get("Webhook-Signature"), "what is signed for one host is not for another")

	to.URL = url + "/on"
	r := h.start(&to)
	status, a := post(t, (<-own).Get("Mscheduler-Callback-Url"), "")
	require.Equal(t, 200, status, a)
	h.ends(r, schedule.RunSuccess)
}

func TestTokensOfOtherTasksCompleteNoRun(t *testing.T) {
	h := newHooks(t)
	for _, token := range []string{"x", input.Handle{TaskID: "-/http/k", Generation: 1, ExecID: "e"}.String(), input.Handle{TaskID: "-/mscheduler.http/k", Generation: 1, ExecID: "e"}.String()} {
		status, a := post(t, h.url+token, "")
		require.Equal(t, 404, status)
		require.Equal(t, "unknown", a.Reason)
	}
}
