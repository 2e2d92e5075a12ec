package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
)

const runs = "/api/v1/runs"

// runAt is the path of a run of a tenant.
func runAt(tenant string, id any) string {
	return runs + "/" + tenant + "/" + url.PathEscape(id.(string))
}

func TestATriggerStartsOneRunForEachRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "max_concurrency": 1, "concurrency": "SKIP"}`)
	first := w.as("Idempotency-Key", "request-1").ok("POST", nightly+"/trigger", "")
	require.Equal(t, "SCHEDULED", first["status"])
	require.NotEmpty(t, first["task_id"])
	require.Equal(t, first, w.as("Idempotency-Key", "request-1").ok("POST", nightly+"/trigger", ""), "a repetition gets the first answer")
	require.Equal(t, first, w.ok("POST", nightly+"/trigger", `{"request": "request-1"}`))
	second := w.ok("POST", nightly+"/trigger", `{"request": "request-2"}`)
	require.Equal(t, "SKIPPED", second["status"], "the rule has reached its limit")
	require.Equal(t, "concurrency", second["reason"])
	require.Equal(t, "SCHEDULED", w.ok("POST", nightly+"/trigger", `{"force": true}`)["status"])

	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", nightly+"/trigger", `{"request": "a b"}`), "body.request")
	require.Contains(t, w.as("Idempotency-Key", "a b").fails(http.StatusUnprocessableEntity, "POST", nightly+"/trigger", ""), "header.Idempotency-Key")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", nightly+"/trigger", `{"args": 1}`), "body.args")
	w.fails(http.StatusNotFound, "POST", periodics+"/-/none/trigger", "")
}

func TestABackfillRunsPastTicksOncePerRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "max_concurrency": 1}`)
	const days = `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-04T00:00:00Z"}`
	done := w.as("Idempotency-Key", "january").ok("POST", nightly+"/backfill", days)
	require.EqualValues(t, 3, done["runs"])
	require.Equal(t, "2026-01-01T00:00:00.000Z", done["from"])
	require.Equal(t, done, w.as("Idempotency-Key", "january").ok("POST", nightly+"/backfill", days))
	named := `{"request": "january", ` + days[1:]
	require.EqualValues(t, 0, w.ok("POST", nightly+"/backfill", named)["runs"], "each tick has one run for the request")
	all := w.ok("GET", nightly+"/runs", "")["runs"].([]any)
	require.Len(t, all, 3)
	require.Equal(t, "QUEUED", at(all, "0.status"))
	require.Equal(t, "SCHEDULED", at(all, "2.status"), "the oldest runs first")
	for body, field := range map[string]string{
		`{}`:                               "body.from",
		`{"from": "soon"}`:                 "body.from",
		`{"from": "-1h", "to": "1h"}`:      "body.to",
		`{"from": "-1h", "request": "/"}`:  "body.request",
		`{"from": "1000-01-01T00:00:00Z"}`: "body.from",
	} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", nightly+"/backfill", body), field, body)
	}
}

func TestRunsAreListedByFiltersAndPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tenant := range []string{"a", "b"} {
		w.ok("POST", periodics, fmt.Sprintf(`{"name": "nightly", "cron": "@daily", "type": "report", "tenant": %q}`, tenant))
		w.ok("POST", periodics+"/"+tenant+"/nightly/backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-06T00:00:00Z"}`)
	}
	rule := w.ok("GET", periodics+"/a/nightly", "")["id"].(string)
	const list = periodics + "/a/nightly/runs"
	newest := []any{"2026-01-05T00:00:00.000Z", "2026-01-04T00:00:00.000Z", "2026-01-03T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-01T00:00:00.000Z"}
	for _, limit := range []string{"1", "2", "5", "100"} {
		require.Equal(t, newest, w.pages(list+"?limit="+limit, "runs", "nominal"), limit)
		require.Equal(t, newest, w.pages(runs+"?tenant=a&limit="+limit, "runs", "nominal"), limit)
		require.Len(t, w.pages(runs+"?limit="+limit, "runs", "nominal"), 10)
	}
	require.Equal(t, newest[1:3], w.pages(list+"?from=2026-01-03T00:00:00Z&to=2026-01-05T00:00:00Z", "runs", "nominal"))
	require.Len(t, w.pages(list+"?status=SCHEDULED,RUNNING", "runs", "id"), 5)
	require.Empty(t, w.pages(list+"?status=FAILED", "runs", "id"))
	w.fails(http.StatusUnprocessableEntity, "GET", list+"?status=ODD", "")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", list+"?page_token=x", ""), "page_token")

	done := w.as("If-Match", "*").do("DELETE", periodics+"/a/nightly", "")
	require.Equal(t, http.StatusNoContent, done.status, done.text)
	w.fails(http.StatusNotFound, "GET", list, "")
	require.Len(t, w.pages(runs+"?limit=2&rule_id="+rule, "runs", "id"), 5, "the runs of a deleted rule stay")
	require.Empty(t, w.pages(runs+"?tenant=b&rule_id="+rule, "runs", "id"))
}

func TestARunIsReadAndCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "max_concurrency": 1}`)
	first := w.ok("POST", nightly+"/trigger", "")["run"]
	second := w.ok("POST", nightly+"/trigger", "")["run"]
	got := w.ok("GET", runAt("-", first), "")
	require.Equal(t, "nightly", got["rule"])
	require.Equal(t, true, got["manual"])
	require.Equal(t, "QUEUED", w.ok("GET", runAt("-", second), "")["status"])
	require.Equal(t, "CANCELED", w.ok("POST", runAt("-", second)+"/cancel", "")["status"])
	require.Contains(t, w.fails(http.StatusConflict, "POST", runAt("-", second)+"/cancel", "")[""], "neither runs nor waits")
	w.ok("POST", runAt("-", first)+"/cancel", "")
	require.Equal(t, "CANCELED", w.ok("GET", runAt("-", first), "")["status"])
	for _, id := range []string{"none@2026-01-01T00:00:00Z", "none", first.(string) + "x"} {
		w.fails(http.StatusNotFound, "GET", runAt("-", id), "")
	}
	w.fails(http.StatusNotFound, "POST", runAt("-", "none!x")+"/cancel", "")
	w.fails(http.StatusNotFound, "POST", runAt("-", "none")+"/cancel", "")
}

func TestARunOfARuleWithoutRecordsIsReadFromItsTaskAndCancelled(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "max_concurrency": 1, "log": "none"}`)
	first := w.ok("POST", nightly+"/trigger", "")
	require.Equal(t, "SCHEDULED", first["status"])
	require.Equal(t, "SCHEDULED", w.ok("GET", runAt("-", first["run"]), "")["status"])
	second := w.ok("POST", nightly+"/trigger", "")
	require.Equal(t, "QUEUED", second["status"])
	require.Equal(t, "CANCELED", w.ok("POST", runAt("-", second["run"])+"/cancel", "")["status"])
	require.Equal(t, "SCHEDULED", w.ok("GET", runAt("-", first["run"]), "")["status"])
}

// A run is found only under the tenant of its rule, whoever asks.
func TestARunOfAnotherTenantIsNotFound(t *testing.T) {
	w := guarded(t)
	all := w.with(access.Admin)
	all.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report", "tenant": "other"}`)
	run := all.ok("POST", periodics+"/other/nightly/trigger", "")["run"]
	rule := all.ok("GET", periodics+"/other/nightly", "")["id"].(string)
	mine := w.with(access.Operator, "mine")
	for _, tenant := range []string{"mine", "other"} {
		mine.fails(http.StatusNotFound, "GET", runAt(tenant, run), "")
		mine.fails(http.StatusNotFound, "POST", runAt(tenant, run)+"/cancel", "")
	}
	require.Empty(t, mine.ok("GET", runs+"?rule_id="+rule, "")["runs"])
	require.Equal(t, "SCHEDULED", all.ok("GET", runAt("other", run), "")["status"])
	require.WithinDuration(t, time.Now(), nominalOf(t, all.ok("GET", runAt("other", run), "")), time.Minute)
}

func nominalOf(t *testing.T, run map[string]any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, run["nominal"].(string))
	require.NoError(t, err)
	return at
}
