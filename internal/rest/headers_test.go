package rest_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// One answer of each kind: whoever writes it, a browser neither guesses its type, keeps it, shows it in a
// frame, nor tells others where it came from.
func TestEachAnswerHasTheHeadersThatProtectBrowsers(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	w := &world{t: t, db: testdb.New(t)}
	api, err := rest.New(rest.Config{Database: w.db, Mount: "/scheduler"})
	require.NoError(t, err)
	t.Cleanup(func() { api.Stop(); require.NoError(t, api.Close(context.Background())) })
	token := w.with(access.Admin).token
	for _, c := range []struct {
		kind, method, path, token string
		header                    map[string]string
		status                    int
	}{
		{"an answer", "GET", "/api/v1/tasks", token, nil, 200},
		{"an error of an operation", "GET", "/api/v1/tasks/-/mail/k", token, nil, 404},
		{"a wrong request", "GET", "/api/v1/tasks?limit=x", token, nil, 422},
		{"the description", "GET", "/api/v1/openapi.yaml", token, nil, 200},
		{"events", "GET", "/api/v1/events?kind=none", token, nil, 422},
		{"no token", "GET", "/api/v1/tasks", "", nil, 401},
		{"nothing there", "GET", "/nowhere", "", nil, 404},
		{"another mount", "GET", "/elsewhere/livez", "", nil, 404},
		{"another method", "DELETE", "/livez", "", nil, 405},
		{"another origin", "POST", "/api/v1/tasks", token, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a completion", "POST", "/api/v1/callbacks/x", "", nil, 404},
		{"health", "GET", "/livez", "", nil, 200},
		{"the page", "GET", "/docs/", "", nil, 200},
		{"its script", "GET", "/docs/page.js", "", nil, 200},
		{"a redirect", "GET", "/docs", "", nil, 302},
		{"a path that is made clean", "GET", "/docs/../livez", "", nil, 307},
	} {
		for _, name := range []string{"http://api.example.org", "https://api.example.org", "https://localhost:8080"} {
			path := "/scheduler" + c.path
			if c.kind == "another mount" {
				path = c.path
			}
			r := httptest.NewRequest(c.method, name+path, nil)
			for name, value := range c.header {
				r.Header.Set(name, value)
			}
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			a := httptest.NewRecorder()
			api.ServeHTTP(a, r)
			h := a.Result().Header
			require.Equal(t, c.status, a.Code, "%s: %s", c.kind, a.Body)
			require.Equal(t, []string{"nosniff"}, h.Values("X-Content-Type-Options"), c.kind)
			require.Equal(t, []string{"no-store"}, h.Values("Cache-Control"), c.kind)
			require.Equal(t, []string{"no-referrer"}, h.Values("Referrer-Policy"), c.kind)
			require.Len(t, h.Values("Content-Security-Policy"), 1, c.kind)
			require.Regexp(t, `default-src 'none'.*frame-ancestors 'none'`, h.Get("Content-Security-Policy"), c.kind)
			require.Empty(t, h.Get("Access-Control-Allow-Origin"), c.kind)
			want := ""
			if name == "https://api.example.org" {
				want = "max-age=31536000"
			}
			require.Equal(t, want, h.Get("Strict-Transport-Security"), "%s at %s", c.kind, name)
		}
	}
}
