package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func TestCallbacksOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.secret = strings.Repeat("5c", 32)
	var mu sync.Mutex
	var ids []string
	heard := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return ids
	}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := callback.Verify(r, callback.Key{AccessKey: "shop", Secret: "hunter2"})
		if err != nil {
			w.WriteHeader(callback.Status(err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, d.ID)
	}))
	defer hook.Close()
	said := `{"success": {"url": "` + hook.URL + `/done?token=hunter2"}, "security": {"type": "aksk", "keys": [{"ak": "shop", "sk": "hunter2"}]}}`
	file := filepath.Join(t.TempDir(), "callback.json")
	require.NoError(t, os.WriteFile(file, []byte(said), 0o600))

	s.worker()
	s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", "k", "--callback", "@"+file)
	shown := func() string { return s.ok("task", "show", "exec/k").stdout }
	s.eventually("the callback's delivery", func() bool {
		return strings.Contains(shown(), "Success, the receiver answered 200") && strings.Contains(s.ok("task", "show", "exec/k", "-o", "json").stdout, `"status":"Success"`)
	})
	text := shown()
	require.Contains(t, text, "POST "+hook.URL+"/done?token=***, signed with [shop:***]")
	require.Contains(t, text, "mscheduler.callback/"+heard()[0])
	for _, out := range []string{text, s.ok("task", "show", "exec/k", "-o", "json").stdout, s.ok("task", "list", "-o", "json").stdout} {
		require.Contains(t, out, "***")
		require.NotContains(t, out, "hunter2")
		require.NotContains(t, out, "mss1.", "not even the sealed one is shown")
	}

	require.Contains(t, s.ok("task", "explain", "exec/k").stdout, "Its callback was delivered at")
	r := s.ok("task", "redeliver", "exec/k")
	require.Contains(t, r.stdout, "mscheduler.callback/"+heard()[0])
	delivered := func(n int) func() bool { // a delivery that runs is not redelivered
		return func() bool {
			return len(heard()) == n && strings.Contains(s.ok("task", "show", "mscheduler.callback/"+heard()[0]).stdout, "Success")
		}
	}
	s.eventually("the second delivery", delivered(2))
	require.Equal(t, heard()[0], heard()[1], "receivers can drop it")

	var life struct{ Generation int64 }
	s.ok("task", "show", "exec/k", "-o", "json").json(&life)
	s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", "k", "--existing", "restart-succeeded", "--held")
	s.fails(ExitRefused, []string{"only an ended task"}, "task", "redeliver", "exec/k")
	r = s.ok("task", "redeliver", lifeName("exec/k", life.Generation))
	require.Contains(t, r.stdout, "mscheduler.callback/"+heard()[0], "an older life")
	s.eventually("the third delivery", delivered(3))
	require.Equal(t, heard()[0], heard()[2])
	s.fails(ExitNotFound, []string{"no such task"}, "task", "redeliver", lifeName("exec/k", 1))

	require.Contains(t, s.ok("task", "redeliver", "--history", "--type", "exec", "--status", "Success", "--yes").stdout, "1 task redelivered")
	s.eventually("the delivery by filter", delivered(4))

	s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", "quiet")
	s.eventually("the end of one that tells nobody", func() bool { return strings.Contains(s.ok("task", "show", "exec/quiet").stdout, "Success") })
	require.Contains(t, s.ok("task", "redeliver", "--type", "exec", "--status", "Success", "--yes").stdout, "1 skipped: the task has no callback for this status")
	s.ok("pause", input.CallbackType)
	s.eventually("a delivery that waits", func() bool {
		return strings.Contains(s.ok("task", "redeliver", lifeName("exec/k", life.Generation)).stdout, "New, due now")
	})
}

func TestCallbacksWhoseSecretNoWorkerCanOpenAreNamed(t *testing.T) {
	s := newSession(t)
	s.secret = strings.Repeat("5c", 32)
	for _, key := range []string{"k1", "k2"} {
		s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", key, "--callback",
			`{"success": {"url": "http://127.0.0.1:1/"}, "security": {"type": "aksk", "keys": [{"ak": "shop", "sk": "hunter2"}]}}`)
	}
	s.secret = strings.Repeat("6d", 32)
	_, errs, _ := s.worker()
	s.eventually("both deliveries", func() bool {
		return strings.Contains(s.ok("doctor").stdout, "2 callbacks wait for a worker with the secret key of id bda2c930, which no worker that tried them has")
	})
	out := s.ok("doctor").stdout
	require.Contains(t, out, "warn  callbacks")
	require.Contains(t, out, "start a worker that has this key in MSCHEDULER_SECRET_KEY")
	require.Equal(t, 1, strings.Count(errs.String(), "could not read the arguments of a task; leaving it to other workers"), errs)
	require.Contains(t, errs.String(), "key id bda2c930")
}

func TestSecretsWithoutAKeyAndBadKeysAreWrongUsage(t *testing.T) {
	s := newSession(t)
	said := `{"success": {"url": "http://example.org"}, "security": {"type": "aksk", "keys": [{"ak": "shop", "sk": "hunter2"}]}}`
	r := s.fails(ExitUsage, []string{"callback.security.keys[0].sk", "MSCHEDULER_SECRET_KEY"}, "send", "t", "--callback", said)
	require.NotContains(t, r.stderr, "hunter2")
	require.Empty(t, collections(t, s), "nothing was written")
	for _, bad := range []string{`{"succeeded": {}}`, `{"success": "http://example.org"}`, `nothing`} {
		s.fails(ExitUsage, []string{"--callback"}, "send", "t", "--callback", bad)
	}
	for bad, want := range map[string]string{
		"{": "--callback:1:2: not JSON: it ends too early", "": "not JSON", `{"x": 1}`: "x is not known in a callback",
		`{"error": {"url": "http://h", "url": "http://i"}}`: "error.url is given twice",
	} {
		s.fails(ExitUsage, []string{want}, "send", "t", "--callback", bad)
	}
	s.fails(ExitUsage, []string{"callback.success.url"}, "send", "t", "--callback", `{"success": {"url": "example.org"}}`)
	s.secret = "letmein"
	r = s.fails(ExitUsage, []string{"MSCHEDULER_SECRET_KEY", "32 bytes"}, "task", "list")
	require.NotContains(t, r.stderr, "letmein")
}

func TestTheExplanationOfACompletedTaskNamesItsDelivery(t *testing.T) {
	s := newSession(t)
	s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", "k", "--callback", `{"success": {"url": "http://169.254.169.254/"}}`)
	s.worker()
	s.eventually("the delivery's failure", func() bool {
		return strings.Contains(s.ok("task", "show", "exec/k").stdout, "link-local")
	})
	out := s.ok("task", "explain", "exec/k").stdout
	require.Contains(t, out, "Its callback could not be delivered. The delivery has been in status Failure since")
	require.Contains(t, out, ""+input.CallbackType+"/")
	require.Contains(t, out, "task redeliver 'exec/k'")
}

func TestTheListOfWhatMayBeCalledHoldsForCallbacksAsForCalls(t *testing.T) {
	s := newSession(t)
	s.ok("send", "exec", "--args", `{"argv": ["true"]}`, "--key", "k", "--callback", `{"success": {"url": "http://127.0.0.1:1/"}}`)
	s.ok("send", "http", "--args", `{"url": "http://127.0.0.1:1/"}`, "--key", "k")
	s.worker("--http-allow", "example.org")
	for _, id := range []string{"exec/k", "http/k"} {
		s.eventually(id, func() bool {
			return strings.Contains(s.ok("task", "show", id).stdout, "is not on this worker's allow list (--http-allow")
		})
	}
}

func TestACallbackOnPendingInFilesAndFlags(t *testing.T) {
	s := newSession(t)
	s.ok("type", "apply", "-f", s.file("code: t\nneed_manual: true\ncallback: {error: {url: 'http://h/'}, on_pending: true}\n"))
	require.Contains(t, s.ok("type", "show", "t", "-o", "yaml").stdout, "on_pending: true")
	require.Contains(t, s.ok("type", "list").stdout, "failures, pending")
	s.ok("type", "apply", "-f", s.file(s.ok("type", "show", "t", "-o", "yaml").stdout))
	s.ok("send", "t", "--key", "k", "--callback", `{"error": {"url": "http://own/"}, "on_pending": true}`)
	var task struct {
		Options struct{ Callback model.Callback }
	}
	s.ok("task", "show", "t/k", "-o", "json").json(&task)
	require.True(t, task.Options.Callback.OnPending)
	s.fails(ExitUsage, []string{"callback.on_pending is set, but callback.error is missing"}, "send", "t", "--callback", `{"on_pending": true}`)
	s.fails(ExitUsage, []string{"callback.on_pending is set, but callback.error is missing"}, "type", "apply", "-f", s.file("code: u\ncallback: {on_pending: true}\n"))
}
