package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shown waits until a process says where something is.
func (s *session) shown(errs *lockedBuffer, what string) (url string) {
	s.t.Helper()
	at := regexp.MustCompile(what + ` are at (http://[^/]+)`)
	s.eventually(what, func() bool {
		found := at.FindStringSubmatch(errs.String())
		if found != nil {
			url = found[1]
		}
		return found != nil
	})
	return url
}

func TestServeShowsMetricsAtAnAddressOfTheirOwn(t *testing.T) {
	s := newSession(t)
	api, errs, stop := s.serving("--metrics-bind", "127.0.0.1:0", "--profile-bind", "localhost:0", "--no-worker")
	status, _ := s.request(http.MethodPost, api+"/api/v1/tasks", "", `{"type": "mail"}`)
	require.Equal(t, http.StatusCreated, status)
	side := s.shown(errs, "metrics")
	status, text := s.request(http.MethodGet, side+"/metrics", "", "")
	require.Equal(t, http.StatusOK, status, text)
	for _, line := range []string{
		`mscheduler_tasks{state="due",type="mail"} 1`, // although no worker runs
		`mscheduler_claims_won_total 0`, `mscheduler_database_command_seconds_count{command="insert"}`, "go_goroutines", "process_cpu_seconds_total",
	} {
		require.Contains(t, text, line)
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusOK, "/api/v1/tasks": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		status, _ := s.request(http.MethodGet, side+path, "", "")
		require.Equal(t, want, status, path)
	}
	status, _ = s.request(http.MethodGet, api+"/metrics", "", "")
	require.Equal(t, http.StatusNotFound, status, "the API has none")

	profiles := s.shown(errs, "profiles")
	status, text = s.request(http.MethodGet, profiles+"/debug/pprof/", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "goroutine")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, profiles+"/debug/pprof/", nil)
	require.NoError(t, err)
	r.Host = "rebound.example.org"
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusForbidden, res.StatusCode)

	require.Equal(t, ExitOK, stop().code)
	_, err = http.Get(side + "/livez") //nolint:noctx,bodyclose // nobody answers
	require.Error(t, err)
}

func TestAWorkerShowsWhetherItLives(t *testing.T) {
	s := newSession(t)
	_, errs, _ := s.worker("--metrics-bind", "127.0.0.1:0")
	side := s.shown(errs, "metrics")
	status, text := s.request(http.MethodGet, side+"/readyz", "", "")
	require.Equal(t, http.StatusOK, status, text)
	s.eventually("a worker that is measured", func() bool {
		_, text := s.request(http.MethodGet, side+"/metrics", "", "")
		return regexp.MustCompile(`(?m)^mscheduler_process_slots 100$`).MatchString(text)
	})
	s.fails(ExitUsage, []string{"--metrics-bind"}, "work", "--metrics-bind", "nowhere.invalid:x")
	s.fails(ExitUsage, []string{"--profile-bind", "loopback"}, "work", "--profile-bind", "0.0.0.0:0")
}

func TestAProcessIsNotReadyFromTheBeginningOfItsStop(t *testing.T) {
	s := newSession(t)
	_, errs, stop := s.worker("--metrics-bind", "127.0.0.1:0", "--shutdown-timeout", "60s")
	side := s.shown(errs, "metrics")
	s.ok("health", side+"/readyz")
	runs, done := filepath.Join(s.dir, "runs"), filepath.Join(s.dir, "done")
	s.ok("send", "exec", "--key", "k", "--args", `{"argv": ["sh", "-c", "touch `+runs+`; while [ ! -e `+done+` ]; do sleep 0.05; done"]}`)
	s.eventually("a task that runs", func() bool { _, err := os.Stat(runs); return err == nil })
	ended := make(chan result, 1)
	go func() { ended <- stop() }()
	s.eventually("not ready", func() bool {
		status, text := s.request(http.MethodGet, side+"/readyz", "", "")
		return status == http.StatusServiceUnavailable && text == "the process is stopping\n"
	})
	s.ok("health", side+"/livez")
	s.fails(ExitFailed, []string{"503 Service Unavailable: the process is stopping"}, "health", side+"/readyz")
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.Equal(t, ExitOK, (<-ended).code)
	s.fails(ExitFailed, []string{"asking the process"}, "health", side+"/livez")
	s.fails(ExitUsage, []string{`URL is "127.0.0.1"`}, "health", "127.0.0.1")
}

// A probe asks the process that runs, and the file may be that of the next one.
func TestHealthNeedsNoConfiguration(t *testing.T) {
	s := newSession(t)
	_, errs, _ := s.worker("--metrics-bind", "127.0.0.1:0")
	url := s.shown(errs, "metrics") + "/livez"
	s.env.Config = s.settings("workers: 1")
	s.fails(ExitUsage, []string{"workers is not known here"}, "version")
	s.ok("health", url)
	s.env.Config = filepath.Join(s.dir, "none.yaml")
	s.ok("health", url)
	s.ok("health", url, "--config", s.env.Config)
	s.env.Config, s.secret, s.env.LogLevel = "", "short", "loud"
	require.Contains(t, s.ok("health", url, "-o", "json").stdout, `"answer"`)
	s.fails(ExitUsage, []string{`--output is "xml"`}, "health", url, "-o", "xml")
}

func TestServeAnswersRequestsForItsShutdownDelay(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for delay := time.Second; !s.answersFor(delay); delay *= 2 { // this machine took longer than that for two requests
		require.Less(t, delay, 20*time.Second)
	}
	s.fails(ExitUsage, []string{"--shutdown-delay is 2m; want 0 to 1m"}, "serve", "--shutdown-delay", "2m")
	for _, command := range []string{"serve", "dev"} {
		s.fails(ExitUsage, []string{`--trace-url is "javascript:x{trace_id}"; want an http or https address`}, command, "--trace-url", "javascript:x{trace_id}")
	}
}

// answersFor stops serve, and requires that it answers the request of a client that connects after /readyz has
// failed. It is false where the delay was over before that came about.
func (s *session) answersFor(delay time.Duration) bool {
	s.t.Helper()
	url, _, stop := s.serving("--no-worker", "--no-engines", "--shutdown-delay", delay.String())
	from := time.Now()
	ended := make(chan result, 1)
	go func() { ended <- stop() }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := func(path string) int {
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url+path, nil)
		require.NoError(s.t, err)
		res, err := client.Do(r)
		if err != nil {
			require.GreaterOrEqual(s.t, time.Since(from), delay, "within the delay: %v", err)
			return 0
		}
		require.NoError(s.t, res.Body.Close())
		return res.StatusCode
	}
	ready := http.StatusOK
	for ready == http.StatusOK {
		ready = status("/readyz")
	}
	answered := false
	if ready != 0 {
		require.Equal(s.t, http.StatusServiceUnavailable, ready)
		tasks := status("/api/v1/tasks")
		answered = tasks == http.StatusOK
		require.True(s.t, answered || tasks == 0, "%d", tasks)
	}
	require.Equal(s.t, ExitOK, (<-ended).code)
	require.GreaterOrEqual(s.t, time.Since(from), delay)
	return answered
}
