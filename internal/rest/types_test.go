package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTypesAreStoredReadPausedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const mail = "/api/v1/types/mail"
	w.fails(http.StatusNotFound, "GET", mail, "")
	w.fails(http.StatusPreconditionRequired, "PUT", mail, `{"max_running": 2}`)
	w.as("If-Match", "*").fails(http.StatusNotFound, "PUT", mail, `{"max_running": 2}`)
	created := w.as("If-None-Match", "*").do("PUT", mail, `{"name": "E-mails", "max_running": 2, "retention": "7d", "callback": {"success": {"url": "https://example.org/x"}, "security": {"type": "none"}}}`)
	require.Equal(t, http.StatusOK, created.status, created.text)
	etag := created.header.Get("ETag")
	require.NotEmpty(t, etag)
	require.Equal(t, "mail", created.body["code"])
	require.EqualValues(t, 604_800_000, at(created.body, "options.retention_ms"))
	w.as("If-None-Match", "*").fails(http.StatusPreconditionFailed, "PUT", mail, `{}`)

	changed := w.as("If-Match", etag).do("PUT", mail, `{"max_running": 3}`)
	require.Equal(t, http.StatusOK, changed.status, changed.text)
	require.NotContains(t, changed.body, "name", "the body describes the type completely")
	w.as("If-Match", etag).fails(http.StatusPreconditionFailed, "PUT", mail, `{"max_running": 4}`)
	w.fails(http.StatusPreconditionRequired, "DELETE", mail, "")
	w.as("If-Match", etag).fails(http.StatusPreconditionFailed, "DELETE", mail, "")
	require.EqualValues(t, 3, w.ok("GET", mail, "")["max_running"])

	errs := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", mail, `{"max_running": -1, "rate_limit": {"count": 0, "per": "1s"}}`)
	require.Contains(t, errs, "body.max_running", "%v", errs)
	require.Contains(t, w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", mail, `{"code": "sms"}`), "body.code")
	require.Contains(t, w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", mail, `{"paused": true}`), "body.paused")

	require.Equal(t, []any{"mail"}, w.ok("POST", mail+"/pause", "")["types"])
	require.Equal(t, true, w.ok("GET", mail, "")["paused"])
	require.Equal(t, true, w.ok("POST", "/api/v1/pauses/pause", "")["all"])
	require.Equal(t, []any{"mail"}, w.ok("POST", "/api/v1/pauses/resume", "")["types"])
	require.Empty(t, w.ok("POST", mail+"/resume", "")["types"])
	require.Len(t, w.ok("GET", "/api/v1/types", "")["types"], 1)

	w.ok("POST", "/api/v1/types/b.c/pause", `{"note": "the relay is down"}`)
	paused := w.ok("POST", "/api/v1/pauses/pause", `{"note": "the database moves"}`)
	for path, want := range map[string]any{"pauses.0.type": nil, "pauses.0.note": "the database moves", "pauses.0.by": "anybody", "pauses.1.type": "b.c", "pauses.1.note": "the relay is down"} {
		require.Equal(t, want, at(paused, path), path)
	}
	require.IsType(t, "", at(paused, "pauses.1.at"))
	require.Equal(t, "the move is over", at(w.ok("POST", "/api/v1/types/b.c/pause", `{"note": "the move is over"}`), "pauses.1.note"), "the later one counts")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/types/b.c/pause", fmt.Sprintf(`{"note": %q}`, strings.Repeat("x", 5000)))["body.note"], "5000 bytes")
	w.ok("POST", "/api/v1/pauses/resume", "")
	w.ok("POST", "/api/v1/types/b.c/resume", "")
	require.NotContains(t, at(w.ok("POST", "/api/v1/types/b.c/pause", ""), "pauses.0"), "note", "that of the pause before is gone")
	w.ok("POST", "/api/v1/types/b.c/resume", "")

	deleted := w.as("If-Match", w.do("GET", mail, "").header.Get("ETag")).do("DELETE", mail, "")
	require.Equal(t, http.StatusNoContent, deleted.status, deleted.text)
	require.Empty(t, deleted.text)
	require.Empty(t, w.ok("GET", "/api/v1/types", "")["types"])
}
