package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestCredentialsInTheArgumentsOfARuleAreHiddenAndKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rule = `{"name": "nightly", "cron": %q, "type": "http", "args": {"url": %q, "headers": {"Authorization": %q, "X-Other": "seen"}}}`
	w.ok("POST", periodics, fmt.Sprintf(rule, "@daily", "https://example.org/x", "Bearer hush"))
	definition := w.do("GET", nightly+"/definition", "")
	require.Equal(t, "***", at(definition.body, "args.headers.Authorization"))
	require.Equal(t, "seen", at(definition.body, "args.headers.X-Other"))
	require.Equal(t, "unchanged", w.ok("POST", periodics+"/preview", definition.text)["result"])
	require.Equal(t, "unchanged", w.ok("POST", periodics+"/preview", fmt.Sprintf(rule, "@daily", "https://example.org/x", "Bearer hush"))["result"])
	changed := w.do("POST", periodics+"/preview", fmt.Sprintf(rule, "@daily", "https://example.org/x", "Bearer other"))
	require.Equal(t, []any{"+ args.headers: the secret of Authorization"}, changed.body["changes"])
	require.NotContains(t, changed.text, "other")

	put := w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(rule, "@hourly", "https://example.org/y", "***"))
	require.Equal(t, http.StatusOK, put.status, put.text)
	raw, err := w.db.Collection("periodic_rules").FindOne(t.Context(), bson.D{}).Raw()
	require.NoError(t, err)
	require.Equal(t, "Bearer hush", raw.Lookup("task", "args", "headers", "Authorization").StringValue())
	require.Equal(t, "https://example.org/y", raw.Lookup("task", "args", "url").StringValue())
	for _, a := range []answer{definition, changed, put} {
		require.NotContains(t, a.text, "hush")
	}
	refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", nightly, fmt.Sprintf(rule, "@daily", "https://evil.org/x", "***"))
	require.Equal(t, `body.args.headers.Authorization is "***": give the secret itself for a new host`, refused["body.args.headers.Authorization"])
	refused = w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", nightly, `{"cron": "@daily", "type": "other", "args": {"headers": {"Authorization": "***"}}}`)
	require.Contains(t, refused["body.args.headers.Authorization"], "give the secret itself")
}

// An operator who may change a rule must not learn its secrets by sending them to another host.
func TestAHiddenCredentialGoesToNoOtherHost(t *testing.T) {
	t.Parallel()
	w := sealed(t)
	const target = `{"name": "nightly", "cron": "@daily", "http": {"url": %q, "headers": {"Authorization": %q}}}`
	w.ok("POST", periodics, fmt.Sprintf(target, "https://example.org/x", "Bearer hush"))
	for _, url := range []string{"https://evil.org/x", "http://example.org/x", "https://example.org:8443/x", "https://example.org.evil.org/"} {
		refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", nightly, fmt.Sprintf(target, url, "***"))
		require.Equal(t, `body.http.headers.Authorization is "***": give the secret itself for a new host`, refused["body.http.headers.Authorization"], url)
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", periodics+"/preview", fmt.Sprintf(target, url, "***")), "body.http.headers.Authorization", url)
	}
	for _, url := range []string{"https://EXAMPLE.org:443/y?run={{run_id}}", "https://example.org/{{ run_id }}"} {
		require.Equal(t, http.StatusOK, w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(target, url, "***")).status, url)
	}
	require.Equal(t, http.StatusOK, w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(target, "https://other.org/x", "Bearer own")).status)
}

// A server of several sites, or a proxy, gives the call to the host of the header.
func TestHiddenSecretsGoToNoOtherSiteByTheHeaderHost(t *testing.T) {
	t.Parallel()
	const first, second = "https://example.org/x?token=hush", "https://example.org/x?token=***"
	for _, c := range []struct{ field, rule string }{
		{"http", `{"name": "nightly", "cron": "@daily", "http": {"url": %q, "headers": {"Authorization": %q, %q: %q}}}`},
		{"args", `{"name": "nightly", "cron": "@daily", "type": "http", "args": {"url": %q, "headers": {"Authorization": %q, %q: %q}}}`},
	} {
		w := sealed(t)
		w.ok("POST", periodics, fmt.Sprintf(c.rule, first, "Bearer hush", "Host", "site.example"))
		for name, host := range map[string]string{"Host": "evil.example", "hOST": "site.example:8443", "X-Other": "seen", "host": ""} {
			refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", nightly, fmt.Sprintf(c.rule, second, "***", name, host))
			require.Equal(t, "body."+c.field+`.headers.Authorization is "***": give the secret itself for a new host`, refused["body."+c.field+".headers.Authorization"], name)
			require.Contains(t, refused["body."+c.field+".url"], "give the whole address", name)
			require.NotEmpty(t, w.fails(http.StatusUnprocessableEntity, "POST", periodics+"/preview", fmt.Sprintf(c.rule, second, "***", name, host)))
		}
		for name, host := range map[string]string{"hoSt": "SITE.example", "Host": "site.example"} {
			put := w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(c.rule, second, "***", name, host))
			require.Equal(t, http.StatusOK, put.status, put.text)
		}
		put := w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(c.rule, first, "Bearer hush", "Host", "example.org"))
		require.Equal(t, http.StatusOK, put.status, put.text)
		put = w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(c.rule, second, "***", "X-Other", "seen"))
		require.Equal(t, http.StatusOK, put.status, "the host of the URL, named or not: %s", put.text)
		raw, err := w.db.Collection("periodic_rules").FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		require.Equal(t, first, raw.Lookup("task", "args", "url").StringValue())
	}
}

func TestCredentialsThatAJobSetsAreHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := w.as("Idempotency-Key", "once").do("POST", "/api/v1/bulk", `{"action": "update", "filter": {"type": "http"}, "change": {"args": {"url": "https://example.org", "headers": {"Authorization": "Bearer hush"}}}}`)
	require.Equal(t, http.StatusAccepted, started.status, started.text)
	require.Equal(t, "***", at(started.body, "change.args.headers.Authorization"))
	for _, path := range []string{"/api/v1/bulk/-/once", "/api/v1/bulk", "/api/v1/tasks/-/mscheduler.bulk/once", "/api/v1/tasks?type=mscheduler.bulk"} {
		text := w.do("GET", path, "").text
		require.Contains(t, text, "https://example.org", path)
		require.NotContains(t, text, "hush", path)
	}
}

func TestTheMaskOfACredentialIsNoArgumentOfATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const args = `{"url": "https://example.org", "headers": {"Authorization": %q}}`
	w.ok("POST", "/api/v1/tasks", `{"type": "http", "key": "k", "args": `+fmt.Sprintf(args, "Bearer hush")+`}`)
	shown, err := json.Marshal(w.ok("GET", "/api/v1/tasks/-/http/k", "")["args"])
	require.NoError(t, err)
	for _, of := range []struct{ method, path, body, field string }{
		{"POST", "/api/v1/tasks", `{"type": "http", "args": %s}`, "body.args.headers.Authorization"},
		{"POST", "/api/v1/tasks/batch", `{"tasks": [{"type": "http", "args": %s}]}`, "body.tasks[0].args.headers.Authorization"},
		{"PATCH", "/api/v1/tasks/-/http/k", `{"args": %s}`, "body.args.headers.Authorization"},
		{"POST", "/api/v1/bulk", `{"action": "update", "filter": {"type": "http"}, "change": {"args": %s}}`, "body.change.args.headers.Authorization"},
	} {
		refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, of.method, of.path, fmt.Sprintf(of.body, shown))
		require.Contains(t, refused[of.field], "give the secret itself", of.path)
	}
}

// The target of a rule and the arguments of an http task are two ways to call a URL.
func TestTheQueryOfACalledURLIsHiddenAndKept(t *testing.T) {
	t.Parallel()
	const url = "https://example.org/x?token=hush&run={{run_id}}"
	const shown = "https://example.org/x?token=***&run={{run_id}}"
	for _, c := range []struct{ field, rule string }{
		{"http.url", `{"name": "nightly", "cron": %q, "http": {"url": %q, "headers": {"Authorization": "%s"}}}`},
		{"args.url", `{"name": "nightly", "cron": %q, "type": "http", "args": {"url": %q, "headers": {"Authorization": "%s"}}}`},
	} {
		w := sealed(t)
		created := w.do("POST", periodics, fmt.Sprintf(c.rule, "@daily", url, "Bearer word"))
		definition := w.do("GET", nightly+"/definition", "")
		require.Equal(t, shown, at(definition.body, c.field))
		require.Equal(t, "unchanged", w.ok("POST", periodics+"/preview", definition.text)["result"])
		require.Equal(t, "unchanged", w.ok("POST", periodics+"/preview", fmt.Sprintf(c.rule, "@daily", url, "Bearer word"))["result"])
		changed := w.do("POST", periodics+"/preview", fmt.Sprintf(c.rule, "@daily", "https://example.org/x?token=other&run={{run_id}}", "***"))
		require.Equal(t, []any{"+ " + c.field + ": what is not shown of it"}, changed.body["changes"])

		put := w.as("If-Match", "*").do("PUT", nightly, fmt.Sprintf(c.rule, "@hourly", shown, "***"))
		require.Equal(t, http.StatusOK, put.status, put.text)
		raw, err := w.db.Collection("periodic_rules").FindOne(t.Context(), bson.D{}).Raw()
		require.NoError(t, err)
		require.Equal(t, url, raw.Lookup("task", "args", "url").StringValue())
		for _, a := range []answer{created, definition, changed, put, w.do("GET", nightly, ""), w.do("GET", periodics, ""), w.do("GET", "/api/v1/audit", "")} {
			require.NotContains(t, a.text, "hush")
		}
		for _, wrong := range []string{"https://evil.org/x?token=***&run={{run_id}}", "https://example.org/x?other=***"} {
			refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, "PUT", nightly, fmt.Sprintf(c.rule, "@daily", wrong, "Bearer word"))
			require.Equal(t, "body."+c.field+" has *** for a part that is not shown; give the whole address", refused["body."+c.field], wrong)
		}
	}
}

func TestTheQueryOfTheURLOfAnHTTPTaskIsHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, typ := range []string{"http", "crawl"} {
		w.ok("POST", "/api/v1/tasks", `{"type": "`+typ+`", "key": "k", "args": {"url": "https://example.org/?page=1"}}`)
	}
	require.Equal(t, "https://example.org/?page=***", at(w.ok("GET", "/api/v1/tasks/-/http/k", ""), "args.url"))
	require.Equal(t, "https://example.org/?page=1", at(w.ok("GET", "/api/v1/tasks/-/crawl/k", ""), "args.url"), "a field of the caller's own")
	const masked = `{"url": "https://example.org/?page=***"}`
	for _, of := range []struct{ method, path, body, field string }{
		{"POST", "/api/v1/tasks", `{"type": "http", "args": %s}`, "body.args.url"},
		{"PATCH", "/api/v1/tasks/-/http/k", `{"args": %s}`, "body.args.url"},
		{"POST", "/api/v1/bulk", `{"action": "update", "filter": {"type": "http"}, "change": {"args": %s}}`, "body.change.args.url"},
	} {
		refused := w.as("If-Match", "*").fails(http.StatusUnprocessableEntity, of.method, of.path, fmt.Sprintf(of.body, masked))
		require.Contains(t, refused[of.field], "give the whole address", of.path)
	}
	started := w.as("Idempotency-Key", "once").do("POST", "/api/v1/bulk", `{"action": "update", "filter": {"type": "http"}, "change": {"args": {"url": "https://example.org/?page=2"}}}`)
	require.Equal(t, "https://example.org/?page=***", at(started.body, "change.args.url"), started.text)
	require.NotContains(t, w.do("GET", "/api/v1/tasks/-/mscheduler.bulk/once", "").text, "page=2")
}
