package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/dashboard"
)

// Sentences around a relative time read on: "5 min ago" comes in its place.
func TestSentencesReadOnWithARelativeTime(t *testing.T) {
	const when = `<time datetime="2026-01-01T00:00:00Z">2026-01-01T00:00:00Z</time>`
	s := &stub{answers: map[string]answer{}}
	d := dashboard.New(dashboard.Config{API: http.StripPrefix("/api/v1", s)})
	page := func(path string) string {
		r := httptest.NewRecorder()
		d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui"+path, nil))
		return r.Body.String()
	}
	s.says("GET /me", `{"name": "ann", "role": "operator"}`)
	for request, answer := range map[string]string{
		"GET /stats": `{"ended": {"complete": false, "from": "2026-01-01T00:00:00Z"}}`, "GET /pauses": `{}`, "GET /series": `{}`, "GET /series/types": `{}`, "GET /tasks": `{"tasks": [], "next": "x"}`, "GET /flows": `{}`, "GET /runs": `{}`,
		"GET /workers": `{}`, "GET /executions": `{}`, "GET /workers/w": `{"id": "w", "alive": false, "heartbeat_at": "2026-01-01T00:00:00Z"}`,
		"GET /periodics/-/r": `{"name": "r", "cron": "@yearly", "status": "offline", "paused_at": "2026-01-01T00:00:00Z", "task": {"type": "mail"}}`, "GET /periodics/-/r/preview": `{}`, "GET /periodics/-/r/runs": `{}`,
		"GET /streams/a/b": `{"stream": "a/b", "node": "n", "since": "2026-01-01T00:00:00Z"}`, "GET /streams/a/b/nodes": `{}`,
	} {
		s.says(request, answer)
	}
	for path, words := range map[string]string{
		"/":              "Too many tasks ended to count them all: the count begins " + when + ".",
		"/workers/w":     "<b>Last heard of " + when + ".</b>",
		"/periodics/-/r": "<b>Disabled " + when + ": it does not fire.</b>",
		"/streams/a/b":   "has its turn; it began " + when,
		"/tasks?type=x":  "The server ends a page when it has looked at 10,000 tasks or read 8 MiB. The next page continues from there.",
	} {
		require.Contains(t, page(path), words, path)
	}
	s.fails("GET /workers/w", http.StatusForbidden, `{"status": 403, "title": "Not allowed", "detail": "not for you"}`)
	require.Contains(t, page("/workers/w"), "Your role is operator.")
	s.fails("GET /me", http.StatusForbidden, `{"status": 403, "title": "Not allowed", "detail": "not for you"}`)
	text := page("/workers/w")
	require.Contains(t, text, "not for you")
	require.NotContains(t, text, "Your role is")
}
