package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts . and .. are taken out of paths, so nothing gets a name that would have no address.
func TestNothingIsNamedByDots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, dots := range []string{".", ".."} {
		for _, c := range []struct{ field, path, body string }{
			{"key", "/tasks", `{"type": "t", "key": %q}`},
			{"type", "/tasks", `{"type": %q, "key": "k"}`},
			{"tenant", "/tasks", `{"type": "t", "key": "k", "tenant": %q}`},
			{"key", "/flows", `{"key": %q, "nodes": [{"id": "a", "type": "t"}]}`},
			{"tenant", "/flows", `{"key": "k", "tenant": %q, "nodes": [{"id": "a", "type": "t"}]}`},
			{"plan_id", "/plans", `{"plan_id": %q, "station": "t", "plan_type": "none", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`},
			{"name", "/periodics", `{"name": %q, "cron": "@daily", "type": "t"}`},
		} {
			fields := w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1"+c.path, fmt.Sprintf(c.body, dots))
			require.Contains(t, fields["body."+c.field], "part of an address", c.path)
		}
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "t", "key": %q}`, dots+"."+dots))
	}
	for path, field := range map[string]string{"/streams/%2E%2E/g/nodes": "scene", "/streams/s/%2E/nodes": "group"} {
		require.Contains(t, fmt.Sprint(w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1"+path, `{"nodes": [{"type": "t"}]}`)), field)
	}
}
