package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
)

func TestACompletionNeedsOnlyItsOwnToken(t *testing.T) {
	w := guarded(t)
	for _, method := range []string{"POST", "PUT"} {
		for _, token := range []string{"x", "LS9tYWlsL29yZGVyLTE3QDE3OTU0ODQ0NjA0ODBAY2VjZjRjOGQ0NThiMzQ3N2VjMjQ3NzI4MmZiMWIzYWI"} {
			a := w.do(method, "/api/v1/callbacks/"+token, `{"result": 1}`)
			require.Equal(t, http.StatusNotFound, a.status, a.text)
			require.Equal(t, "unknown", a.body["reason"])
		}
	}
	a := w.do("GET", "/api/v1/callbacks/x", "")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "POST, PUT", a.header.Get("Allow"))
}

func TestEachPartOfTheServerCanBeLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *rest.Config) { c.NoTokens, c.NoAPI = false, true })
	require.Equal(t, http.StatusNotFound, w.with(access.Admin).do("GET", "/api/v1/tasks", "").status)
	require.Equal(t, http.StatusNotFound, w.do("GET", "/docs/", "").status)
	require.Equal(t, "unknown", w.do("POST", "/api/v1/callbacks/x", "").body["reason"])
	w.ready()

	w = newWorld(t, func(c *rest.Config) { c.NoCallbacks = true })
	w.ok("GET", "/api/v1/tasks", "")
	require.Nil(t, w.do("POST", "/api/v1/callbacks/x", "").body["reason"])
	require.Equal(t, http.StatusNotFound, w.do("POST", "/api/v1/callbacks/x", "").status)
	for _, op := range w.operations() {
		require.NotEqual(t, "token", op.Tenants, "what is not there is not described")
	}
}
