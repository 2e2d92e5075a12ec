package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARuleCallsAURLAndItsCallbackEndsTheRun(t *testing.T) {
	s := newSession(t)
	told := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.URL.Query().Get("back") }))
	defer target.Close()
	file := s.file(`name: sync stats
cron: 0 0 1 1 *
http:
  url: ` + target.URL + `/?back={{callback_url}}
  mode: ASYNC
  expect: [200, "202-204"]
  timeout: 5s
  callback_timeout: 1h
`)
	require.Contains(t, s.ok("periodic", "apply", "-f", file).stdout, "created")
	require.Contains(t, s.ok("periodic", "apply", "-f", file).stdout, "unchanged")
	again := s.file(s.ok("periodic", "list", "-o", "yaml").stdout)
	require.Contains(t, s.ok("periodic", "apply", "-f", again).stdout, "unchanged")

	_, _, stop := s.worker("--periodic", "--callback-addr", "127.0.0.1:0", "--http-allow", "127.0.0.1")
	s.ok("periodic", "trigger", "sync stats")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, <-told, http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	s.eventually("the run to end", func() bool {
		var out struct{ Runs []struct{ Status string } }
		s.ok("periodic", "runs", "sync stats", "-o", "json").json(&out)
		return len(out.Runs) == 1 && out.Runs[0].Status == "SUCCESS"
	})
	require.Equal(t, ExitOK, stop().code)
	bad := s.file("name: bad\ncron: '@daily'\nhttp: {url: 'http://h/{{tick}}', keys: [{ak: a, sk: plain}]}\n")
	s.fails(ExitUsage, []string{`http.url has the placeholder "tick"`, "http.keys[0].sk is not sealed"}, "periodic", "apply", "-f", bad)
	s.fails(ExitUsage, []string{"--callback-url"}, "work", "--callback-url", "ftp://x")
	s.fails(ExitUsage, []string{"--http-allow"}, "work", "--http-allow", "http://x")
}
