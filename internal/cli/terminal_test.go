package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile is what a terminal would take for orders: a new title, an empty screen, and a line
// that is none of ours.
const hostile = "\x1b]0;pwned\a\x1b[2J\u202e\n-/x/y  Success"

// raw finds what a terminal takes for more than text and lines.
const raw = `[\x00-\x08\x0b-\x1f\x7f-\x9f\x{202a}-\x{202e}]`

func TestWhatATargetAnswersReachesNoTerminalRaw(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, hostile)
	}))
	t.Cleanup(target.Close)
	s.worker()
	r := s.run("send", "http", "--key", "k", "--args", `{"url": "`+target.URL+`"}`, "--max-errors", "1", "--wait")
	require.Equal(t, ExitFailed, r.code, r.stderr)
	require.Contains(t, r.stdout, `\x1b]0;pwned\a\x1b[2J`)
	for _, args := range [][]string{{"wait", "http/k"}, {"show", "http/k"}, {"explain", "http/k"}, {"history", "http/k"}, {"list"}} {
		r := s.run(append([]string{"task"}, args...)...)
		require.NotRegexp(t, raw, r.stdout+r.stderr, args)
		require.NotRegexp(t, `(?m)^x/y`, r.stdout, args)
	}
	require.Contains(t, s.ok("task", "show", "http/k", "-o", "json").stdout, `\u001b]0;pwned\u0007`)
}

func TestNamesThatProducersChooseReachNoTerminalRaw(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", hostile, "--category", hostile, "--creator", hostile, "--held")
	id := "t/" + hostile
	for _, args := range [][]string{
		{"list"}, {"show", id}, {"explain", id}, {"cancel", id, "--remark", hostile}, {"show", id}, {"cancel", id}, {"history", id},
		{"list", "--limit", "1"}, {"show", id + "x"},
	} {
		r := s.run(append([]string{"task"}, args...)...)
		require.NotRegexp(t, raw, r.stdout+r.stderr, args)
	}
	require.Len(t, strings.Split(strings.TrimSpace(s.ok("task", "list").stdout), "\n"), 2, "a heading and a task")
}

func TestOfATextALineStaysALineAndATabATab(t *testing.T) {
	for text, want := range map[string]string{
		"a\r\n\tb\n":           "a\n\tb\n",
		"a\rb":                 `a\rb`,
		"\x1b[2J":              `\x1b[2J`,
		"\u009b2J":             `\u009b2J`,
		"ab\u202edc":           `ab\u202edc`,
		"夜批 – نهایی 🌙 \"x\" '": "夜批 – نهایی 🌙 \"x\" '",
	} {
		require.Equal(t, want, linesOnTerminal(text))
	}
}
