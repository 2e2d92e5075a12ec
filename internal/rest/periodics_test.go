package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
)

const (
	periodics = "/api/v1/periodics"
	nightly   = periodics + "/-/nightly"
	// secretKey is for tests.
	secretKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

// sealed is a world that can store secrets.
func sealed(t *testing.T) *world {
	return newWorld(t, func(c *rest.Config) { c.SecretKey = secretKey })
}

// pages reads a list to its end and returns the values at a path of each of its things.
func (w *world) pages(path, things, value string) (all []any) {
	w.t.Helper()
	for token := ""; ; {
		page := w.ok("GET", path+"&page_token="+token, "")
		for _, thing := range page[things].([]any) {
			all = append(all, at(thing, value))
		}
		next, more := page["next"].(string)
		if !more {
			return all
		}
		token = next
	}
}

func TestARuleIsCreatedReadChangedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(http.StatusNotFound, "GET", nightly, "")
	created := w.do("POST", periodics, `{"name": "nightly", "cron": "0 30 2 * * *", "type": "report", "args": {"to": "ann"}, "jitter": "10s"}`)
	require.Equal(t, http.StatusCreated, created.status, created.text)
	require.Equal(t, `"1"`, created.header.Get("ETag"))
	require.Equal(t, "new", created.body["status"], "it is not enabled")
	require.EqualValues(t, 10_000, created.body["jitter_ms"])
	require.Equal(t, created.text, w.do("GET", nightly, "").text)
	require.Contains(t, w.fails(http.StatusConflict, "POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "report"}`)[""], "already exists")

	w.fails(http.StatusPreconditionRequired, "PUT", nightly, `{"cron": "@hourly", "type": "report"}`)
	changed := w.as("If-Match", `"1"`).do("PUT", nightly, `{"cron": "@hourly", "type": "report", "enabled": true}`)
	require.Equal(t, http.StatusOK, changed.status, changed.text)
	require.Equal(t, `"2"`, changed.header.Get("ETag"))
	require.Equal(t, "online", changed.body["status"])
	require.NotEmpty(t, changed.body["next_fire_at"])
	require.NotContains(t, changed.body, "jitter_ms", "the body describes the rule completely")
	w.as("If-Match", `"1"`).fails(http.StatusPreconditionFailed, "PUT", nightly, `{"cron": "@daily", "type": "report"}`)
	same := w.as("If-Match", `"2"`).do("PUT", nightly, `{"cron": "@hourly", "type": "report"}`)
	require.Equal(t, `"2"`, same.header.Get("ETag"), "what changes nothing is no edit")
	require.Equal(t, "online", same.body["status"], "without enabled it stays as it is")

	renamed := w.as("If-Match", "*").do("PUT", nightly, `{"name": "hourly", "cron": "@hourly", "type": "report", "enabled": false}`)
	require.Equal(t, http.StatusOK, renamed.status, renamed.text)
	require.Equal(t, "hourly", renamed.body["name"])
	require.Equal(t, "offline", renamed.body["status"])
	w.as("If-Match", "*").fails(http.StatusNotFound, "PUT", nightly, `{"cron": "@daily", "type": "report"}`)

	const hourly = periodics + "/-/hourly"
	w.fails(http.StatusPreconditionRequired, "DELETE", hourly, "")
	w.as("If-Match", `"1"`).fails(http.StatusPreconditionFailed, "DELETE", hourly, "")
	deleted := w.as("If-Match", renamed.header.Get("ETag")).do("DELETE", hourly, "")
	require.Equal(t, http.StatusNoContent, deleted.status, deleted.text)
	w.fails(http.StatusNotFound, "GET", hourly, "")
}

func TestEachWrongFieldOfARuleIsNamedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, fields := range map[string][]string{
		`{}`: {"body.name", "body.cron", "body.type"},
		`{"name": "n", "cron": "61 * * * * *", "type": "a b", "priority": 12, "overlap": "NEVER"}`:                  {"body.cron", "body.type", "body.priority", "body.overlap"},
		`{"name": "n", "cron_expr": "@daily", "type": "t"}`:                                                         {"body.cron_expr"},
		`{"name": "n", "cron": "@daily", "http": {"url": "ftp://example.org"}}`:                                     {"body.http.url"},
		`{"name": "n", "cron": "@daily", "type": "t", "version": 3}`:                                                {"body.version"},
		`{"name": "n", "cron": "@daily", "http": {"url": "https://example.org", "keys": [{"ak": "a", "sk": "s"}]}}`: {"body.http.keys[0].sk"},
		`{"name": "n", "cron": "@daily", "type": "t", "tenant": "a b"}`:                                             {"body.tenant"},
		`{"name": "n", "cron": "@daily", "type": "http", "args": {"url": "ftp://example.org"}}`:                     {"body.args.url"},
	} {
		for _, path := range []string{periodics, periodics + "/preview"} {
			errs := w.fails(http.StatusUnprocessableEntity, "POST", path, body)
			for _, field := range fields {
				require.Contains(t, errs, field, "%s: %v", body, errs)
			}
		}
	}
	require.Empty(t, w.ok("GET", periodics, "")["rules"])
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "t"}`)
	put := w.as("If-Match", "*")
	require.Contains(t, put.fails(http.StatusUnprocessableEntity, "PUT", nightly, `{"cron": "@daily", "type": "t", "tenant": "acme"}`), "body.tenant")
	require.Contains(t, put.fails(http.StatusUnprocessableEntity, "PUT", nightly, `{"cron": "@daily", "type": "t", "version": 1}`), "body.version")
	require.Contains(t, put.fails(http.StatusUnprocessableEntity, "PUT", nightly, `{"cron": "never", "type": "t"}`), "body.cron")
	require.Contains(t, w.as("If-Match", "1").fails(http.StatusUnprocessableEntity, "PUT", nightly, `{}`), "header.If-Match")
	require.EqualValues(t, 1, w.ok("GET", nightly, "")["version"])
}

func TestTheSecretsOfARuleAreStoredButNotShown(t *testing.T) {
	w := sealed(t)
	const target = `{"name": "nightly", "cron": %q, "http": {"url": "https://example.org/x", "headers": {"Authorization": %q}, "keys": [{"ak": "a", "sk": %q}]}}`
	created := w.do("POST", periodics, fmt.Sprintf(target, "@daily", "Bearer hush", "hush"))
	require.Equal(t, http.StatusCreated, created.status, created.text)
	stored := func() bson.Raw {
		raw, err := w.db.Collection("periodic_rules").FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		return raw.Lookup("task", "args").Document()
	}
	before := stored()
	edited := w.as("If-Match", `"1"`).do("PUT", nightly, fmt.Sprintf(target, "@hourly", "***", "***"))
	require.Equal(t, http.StatusOK, edited.status, edited.text)
	require.Equal(t, before.String(), stored().String(), "*** is the stored secret")
	for _, text := range []string{created.text, edited.text, before.String()} {
		require.NotContains(t, text, "hush")
	}
}

func TestTheDefinitionOfARuleIsWhatStoresItAgain(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	w.fails(http.StatusNotFound, "GET", nightly+"/definition", "")
	w.ok("POST", periodics, `{"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "jitter": "90s", "enabled": true, "catch_up": {"mode": "FULL", "window": "2h"},
		"http": {"url": "https://example.org/x", "headers": {"Authorization": "Bearer hush"}}, "options": {"timeout": "1m"}}`)
	definition := w.do("GET", nightly+"/definition", "")
	require.Equal(t, `"1"`, definition.header.Get("ETag"))
	require.NotContains(t, definition.text, "hush")
	require.Equal(t, "1m30s", definition.body["jitter"])
	require.Equal(t, true, definition.body["enabled"])
	require.Equal(t, "unchanged", w.ok("POST", periodics+"/preview", definition.text)["result"])
	same := w.as("If-Match", definition.header.Get("ETag")).do("PUT", nightly, definition.text)
	require.Equal(t, http.StatusOK, same.status, same.text)
	require.Equal(t, `"1"`, same.header.Get("ETag"), "nothing has changed")
}

func TestRulesAreListedPageByPageAlsoWhereOneCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d/e f"} {
		w.ok("POST", periodics, fmt.Sprintf(`{"name": %q, "cron": "@daily", "type": "t"}`, name))
		w.ok("POST", periodics, fmt.Sprintf(`{"name": %q, "cron": "@daily", "type": "t", "tenant": "acme"}`, name))
	}
	_, err := w.db.Collection("periodic_rules").UpdateOne(t.Context(), bson.D{{Key: "living", Value: "-/b"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "runs", Value: "many"}}}})
	require.NoError(t, err)
	for _, limit := range []string{"1", "2", "100"} {
		require.Equal(t, []any{"a", "c", "d/e f"}, w.pages(periodics+"?tenant=-&limit="+limit, "rules", "name"), limit)
		require.Len(t, w.pages(periodics+"?limit="+limit, "rules", "name"), 7)
	}
	unread := w.ok("GET", periodics, "")["unreadable"]
	require.Equal(t, "b", at(unread, "0.name"))
	require.NotEmpty(t, at(unread, "0.error"))
	require.NotContains(t, w.ok("GET", periodics+"?tenant=acme", ""), "unreadable")
	require.Equal(t, "d/e f", w.ok("GET", periodics+"/acme/"+url.PathEscape("d/e f"), "")["name"])
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", periodics+"?page_token=x", ""), "page_token")
}

func TestARuleIsEnabledAndDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "t"}`)
	w.as("If-Match", `"7"`).fails(http.StatusPreconditionFailed, "POST", nightly+"/enable", "")
	require.Equal(t, "online", w.ok("POST", nightly+"/enable", "")["status"])
	require.Equal(t, "online", w.as("If-Match", `"1"`).ok("POST", nightly+"/enable", "")["status"])
	off := w.ok("POST", nightly+"/disable", `{"note": "moving house"}`)
	require.Equal(t, "offline", off["status"])
	require.Equal(t, "moving house", off["pause_note"])
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", nightly+"/disable", `{"note": "`+strings.Repeat("x", 5000)+`"}`), "body.note")
	w.fails(http.StatusNotFound, "POST", periodics+"/-/none/enable", "")
}

func TestAPreviewShowsTheTicksOfAStoredRule(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", periodics, `{"name": "nightly", "cron": "0 30 2 * * *", "timezone": "America/New_York", "type": "t"}`)
	ticks := w.ok("GET", nightly+"/preview?count=2&from=2100-03-13T12:00:00Z", "")["ticks"].([]any)
	require.Len(t, ticks, 2)
	require.Equal(t, map[string]any{"utc": "2100-03-14T07:00:00.000Z", "local": "2100-03-14T03:00:00-04:00", "fires": true, "note": "02:30:00 does not exist that day: fires after the gap"}, ticks[0])
	w.fails(http.StatusUnprocessableEntity, "GET", nightly+"/preview?count=0", "")
	w.fails(http.StatusNotFound, "GET", periodics+"/-/none/preview", "")
}

func TestADryRunChecksADefinitionAndWritesNothing(t *testing.T) {
	w := newWorld(t)
	const dry = periodics + "/preview"
	fresh := w.ok("POST", dry+"?count=3", `{"name": "nightly", "cron": "@hourly", "type": "t", "enabled": true}`)
	require.Equal(t, "created", fresh["result"])
	require.Len(t, fresh["ticks"], 3)
	require.Contains(t, fresh["changes"], "+ enabled: true")
	require.NotContains(t, fresh, "forecast")
	require.Empty(t, w.ok("GET", periodics, "")["rules"])

	w.ok("POST", periodics, `{"name": "nightly", "cron": "@hourly", "type": "t"}`)
	before := w.do("GET", nightly, "").text
	require.Equal(t, "unchanged", w.ok("POST", dry, `{"name": "nightly", "cron": "@hourly", "type": "t"}`)["result"])
	changed := w.ok("POST", dry+"?forecast_days=2&run_takes_ms=1000", `{"name": "nightly", "cron": "0 0,30 * * * *", "type": "t"}`)
	require.Equal(t, "changed", changed["result"])
	require.Equal(t, []any{"- cron: 0 0 * * * *", "+ cron: 0 0,30 * * * *"}, changed["changes"])
	require.EqualValues(t, 48, at(changed, "forecast.next.stored.ticks"))
	require.EqualValues(t, 96, at(changed, "forecast.next.changed.ticks"))
	require.EqualValues(t, 1000, at(changed, "forecast.run_takes_ms"))
	require.Equal(t, before, w.do("GET", nightly, "").text)
}

func TestAViewerChangesNoRule(t *testing.T) {
	w := guarded(t)
	w.with(access.Operator).ok("POST", periodics, `{"name": "nightly", "cron": "@daily", "type": "t"}`)
	viewer := w.with(access.Viewer)
	require.Equal(t, "nightly", viewer.ok("GET", nightly, "")["name"])
	viewer.as("If-Match", "*").fails(http.StatusForbidden, "DELETE", nightly, "")
	viewer.fails(http.StatusForbidden, "POST", nightly+"/trigger", "")
	require.Len(t, viewer.ok("GET", periodics, "")["rules"], 1)
}
