package rest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/rest"
)

// found are the findings of an examination, by their checks.
func found(body map[string]any) map[string]string {
	out := map[string]string{}
	for _, c := range body["checks"].([]any) {
		out[at(c, "check").(string)] = at(c, "state").(string) + ": " + at(c, "detail").(string)
	}
	return out
}

func TestTheDeploymentIsExamined(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "lonely"}`)
	w.ok("POST", "/api/v1/types/mail/pause", `{"note": "the relay is down"}`)
	first := w.ok("GET", "/api/v1/doctor", "")
	require.Equal(t, first, w.ok("GET", "/api/v1/doctor", ""), "ten seconds have not passed")
	checks := found(first)
	require.Equal(t, true, first["ok"])
	require.Regexp(t, `^ok: version \d+, up to date, all indexes are there$`, checks["schema"])
	require.Equal(t, "warn: no live worker", checks["workers"])
	require.Contains(t, checks["due tasks"], "warn: no live worker handles lonely")
	require.Contains(t, checks["pauses"], "claiming is paused for mail (mail: the relay is down)")
	require.NotContains(t, checks, "writing", "it writes nothing")
	require.Contains(t, checks["clock"], "the server's machine differs from the database by")
	require.GreaterOrEqual(t, at(first, "control.signal"), 0.)
	names, err := w.db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NotContains(t, names, "doctor_probe")

	w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "py-1", "categories": ["figures"]}`)
	pulled := newWorld(t, func(c *rest.Config) { c.Database = w.db }) // which has examined nothing yet
	checks = found(pulled.ok("GET", "/api/v1/doctor", ""))
	require.Contains(t, checks["workers"], "ok: 1 live worker")
	require.Contains(t, checks["due tasks"], "warn: no live worker of type lonely takes")

	require.NoError(t, w.db.Collection("tasks").Indexes().DropAll(t.Context()))
	other := newWorld(t, func(c *rest.Config) { c.Database = w.db }) // which has examined nothing yet
	again := other.ok("GET", "/api/v1/doctor", "")
	require.Equal(t, false, again["ok"])
	require.Equal(t, "fail: indexes are missing; run: mscheduler db migrate", found(again)["schema"])
}
