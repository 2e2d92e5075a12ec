package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// runJobs runs the bulk jobs that were started.
func (w *world) runJobs() {
	w.t.Helper()
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(w.t, err)
	p, err := producer.New(producer.Config{Database: w.db})
	require.NoError(w.t, err)
	c, err := consumer.New(consumer.Config{Database: w.db})
	require.NoError(w.t, err)
	require.NoError(w.t, bulk.Register(c, bulk.New(p, admin.New(p), st)))
	mstest.Drain(w.t, c)
	require.NoError(w.t, p.Close(w.t.Context()))
}

func TestManyTasksAreCountedThenChangedByAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "%d", "held": true}`, i))
	}
	const what = `"action": "release", "filter": {"type": "mail"}`
	require.EqualValues(t, 3, w.ok("POST", "/api/v1/bulk", `{`+what+`, "dry_run": true}`)["matched"])
	a := w.as("Idempotency-Key", "once").do("POST", "/api/v1/bulk", `{`+what+`}`)
	require.Equal(t, http.StatusAccepted, a.status, a.text)
	job := a.header.Get("Location")
	require.Equal(t, "/api/v1/bulk/-/once", job)
	require.Equal(t, "New", a.body["status"])
	require.Equal(t, "once", w.as("Idempotency-Key", "once").ok("POST", "/api/v1/bulk", `{`+what+`}`)["id"], "the same job")
	require.Len(t, w.ok("GET", "/api/v1/bulk", "")["jobs"], 1)
	require.Equal(t, false, w.ok("GET", job, "")["counted"])

	w.runJobs()
	done := w.ok("GET", job, "")
	require.Equal(t, "Success", done["status"])
	require.EqualValues(t, 3, done["matched"])
	require.EqualValues(t, 3, done["changed"])
	require.EqualValues(t, 0, done["failed"])
	require.Equal(t, "New", w.ok("GET", "/api/v1/tasks/-/mail/1", "")["status"])
	w.fails(http.StatusConflict, "POST", job+"/stop", `{"remark": "too late"}`)
	w.fails(http.StatusNotFound, "GET", "/api/v1/bulk/-/none", "")
}

// The key outlives the answer that is kept for it, and other tokens may have used it.
func TestAKeyStartsNoSecondJobAndIsForNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for key, c := range map[string]struct {
		job    string
		others []string
	}{
		"plain": {`{"action": "cancel", "filter": {"type": "mail"}, "remark": "why"}`, []string{
			`{"action": "cancel", "filter": {"type": "mail"}}`,
			`{"action": "cancel", "filter": {"type": "post"}, "remark": "why"}`,
			`{"action": "cancel", "filter": {"type": "mail", "created_before": "2020-01-01"}, "remark": "why"}`,
			`{"action": "cancel", "filter": {"type": "mail", "created_after": "-2h"}, "remark": "why"}`,
			`{"action": "resolve", "filter": {"type": "mail"}, "remark": "why"}`,
		}},
		"step": {`{"action": "retry", "filter": {"type": "mail"}, "step": "a"}`, []string{`{"action": "retry", "filter": {"type": "mail"}, "step": "b"}`}},
		"past": {`{"action": "cancel", "filter": {"created_before": "2020-01-01", "created_after": "-9000d"}}`, []string{
			`{"action": "cancel", "filter": {"created_before": "2020-01-02", "created_after": "-9000d"}}`,
			`{"action": "cancel", "filter": {"created_before": "2020-01-01", "created_after": "-9001d"}}`,
			`{"action": "cancel", "filter": {"created_before": "2020-01-01"}}`,
		}},
		"update": {`{"action": "update", "filter": {"type": "mail", "created_before": "-1h"}, "change": {"in": "5m", "args": {"a": 1.5}, "options": {"expires_at": "2h"}}}`, []string{
			`{"action": "update", "filter": {"type": "mail", "created_before": "-2h"}, "change": {"in": "5m", "args": {"a": 1.5}, "options": {"expires_at": "2h"}}}`,
			`{"action": "update", "filter": {"type": "mail", "created_before": "-1h"}, "change": {"in": "5m", "args": {"a": 1.25}, "options": {"expires_at": "2h"}}}`,
			`{"action": "update", "filter": {"type": "mail", "created_before": "-1h"}, "change": {"in": "5m", "args": {"a": 1.5}, "options": {"expires_at": "3h"}}}`,
		}},
	} {
		post := func(body string) answer {
			_, err := w.db.Collection("answers").DeleteMany(t.Context(), bson.D{})
			require.NoError(t, err)
			return w.as("Idempotency-Key", key).do("POST", "/api/v1/bulk", body)
		}
		first := post(c.job)
		require.Equal(t, http.StatusAccepted, first.status, first.text)
		again := post(c.job)
		require.Equal(t, http.StatusAccepted, again.status, again.text)
		require.Equal(t, first.body, again.body)
		for _, other := range c.others {
			a := post(other)
			require.Equal(t, http.StatusConflict, a.status, other)
			require.Equal(t, "another job has this key", a.body["detail"])
		}
	}
}

func TestAJobThatNobodyRunsYetIsStopped(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	id := w.ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}}`)["id"].(string)
	require.Equal(t, "Cancelled", w.ok("POST", "/api/v1/bulk/-/"+id+"/stop", `{"remark": "a mistake"}`)["status"])
	w.runJobs()
	require.Equal(t, "New", w.ok("GET", "/api/v1/tasks/-/mail/k", "")["status"])
}

func TestMistakesOfAJobNameTheirFields(t *testing.T) {
	w := newWorld(t)
	for body, location := range map[string]string{
		`{"filter": {"type": "t"}}`:                                  "body.action",
		`{"action": "cancel"}`:                                       "body.filter",
		`{"action": "cancel", "filter": {"status": ["Success"]}}`:    "body.filter.status",
		`{"action": "cancel", "filter": {"kind": "t"}}`:              "body.filter.kind",
		`{"action": "cancel", "filter": {"type": "t"}, "change": 1}`: "body.change",
	} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/bulk", body), location, body)
	}
}
