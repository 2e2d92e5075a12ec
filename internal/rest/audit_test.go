package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// audit lists entries, when all that was noted so far is written.
func (w *world) audit(query string) (entries []any) {
	w.t.Helper()
	require.NoError(w.t, w.api.AuditWritten(w.t.Context()))
	return w.ok("GET", "/api/v1/audit"+query, "")["entries"].([]any)
}

// sample is a request of an audited operation that its handler sees.
var samples = map[string]string{
	"send-task": `{"type": "mail"}`, "send-tasks": `{"tasks": [{"type": "mail"}]}`, "update-task": `{"priority": 9}`, "put-type": `{"max_running": 3}`,
	"create-periodic": `{"name": "n", "cron": "@daily", "type": "mail"}`, "put-periodic": `{"cron": "@daily", "type": "mail"}`, "backfill-periodic": `{"from": "2026-01-01T00:00:00Z"}`,
	"publish-plan": `{"station": "mail", "plan_type": "none", "messages": [1]}`, "publish-plans": `{"plans": [{"station": "mail", "plan_type": "none", "messages": [1]}]}`,
	"start-flow": `{"nodes": [{"id": "a", "type": "mail"}]}`, "append-nodes": `{"nodes": [{"type": "mail"}]}`, "resolve-node-of-flow": `{"status": "SUCCESS"}`,
	"start-bulk": `{"action": "cancel", "filter": {"type": "mail"}}`, "answer-node": `{"values": {"a": 1}}`, "resolve-node-of-stream": `{"status": "SUCCESS"}`,
	"create-token": `{"name": "n", "role": "viewer"}`,
}

// Every operation that changes something leaves an entry, and no other one does. A new one needs no code of
// its own for that, and perhaps a body above.
func TestEveryOperationThatChangesSomethingIsInTheAudit(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	w := guarded(t)
	all := w.with(access.Admin).as("If-Match", "*")
	for _, op := range w.operations() {
		changes := op.method != "GET" && (op.Role == "operator" || op.Role == "admin") &&
			!slices.Contains([]string{"dry-run-periodic", "preview-definition-of-plan"}, op.ID)
		require.Equal(t, changes, op.Audited, op.ID)
		if op.ID == "watch-events" {
			continue
		}
		a := all.do(op.method, op.of("mine"), samples[op.ID])
		entries := all.audit("?operation=" + op.ID)
		if !changes {
			require.Empty(t, entries, op.ID)
			continue
		}
		require.Len(t, entries, 1, "%s: %s", op.ID, a.text)
		e := entries[0].(map[string]any)
		require.Equal(t, "api", e["door"], op.ID)
		require.Regexp(t, "^token/", e["who"], op.ID)
		require.Equal(t, "admin", e["name"], op.ID)
		require.NotEmpty(t, e["from"], op.ID)
		if a.status < 300 {
			require.Equal(t, "ok", e["outcome"], "%s: %v", op.ID, e)
		} else {
			require.Equal(t, "refused", e["outcome"], "%s: %v", op.ID, e)
			require.EqualValues(t, a.status, e["status"], op.ID)
			require.NotEmpty(t, e["reason"], op.ID)
		}
		if op.Tenants == "path" {
			require.Equal(t, "mine", e["tenant"], op.ID)
			require.NotEmpty(t, e["resource"], op.ID)
		}
	}
}

func TestTheAuditSaysWhatAChangeHasChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "priority": 3, "start_time": "2100-01-01T00:00:00Z", "args": {"text": "dear"}}`)
	w.as("If-Match", "*").ok("PATCH", "/api/v1/tasks/-/mail/k", `{"priority": 7}`)
	e := w.audit("?resource=-/mail/k&operation=update-task")[0]
	require.Equal(t, "task", at(e, "kind"))
	require.Equal(t, "-", at(e, "tenant"))
	require.Equal(t, "anybody", at(e, "who"))
	require.EqualValues(t, 3, at(e, "before.priority"))
	require.EqualValues(t, 7, at(e, "after.priority"))
	require.Nil(t, at(e, "before.args"), "what stays as it was is not told")
	require.EqualValues(t, 7, at(e, "request.priority"))

	sent := w.audit("?operation=send-task")[0]
	require.Equal(t, "-/mail/k", at(sent, "resource"))
	require.Equal(t, true, at(sent, "after.created"))
	require.Equal(t, "(15 bytes)", at(sent, "request.args"), "payloads are in the task")

	w.ok("POST", "/api/v1/tasks/batch", `{"tasks": [{"type": "mail"}, {"type": "mail"}]}`)
	require.EqualValues(t, 2, at(w.audit("?operation=send-tasks")[0], "count"))

	w.as("If-None-Match", "*").ok("PUT", "/api/v1/types/mail", `{"max_running": 3}`)
	created := w.audit("?resource=mail")[0]
	require.EqualValues(t, 3, at(created, "after.max_running"))
	w.as("If-Match", "*").do("DELETE", "/api/v1/types/mail", "")
	deleted := w.audit("?resource=mail&operation=delete-type")[0]
	require.EqualValues(t, 3, at(deleted, "before.max_running"))
	require.Nil(t, at(deleted, "after.max_running"))

	w.ok("POST", "/api/v1/types/mail/pause", "")
	paused := w.audit("?operation=pause-type")[0]
	require.Equal(t, []any{false, true}, []any{at(paused, "before.paused"), at(paused, "after.paused")})
	w.ok("POST", "/api/v1/pauses/pause", "")
	require.Equal(t, true, at(w.audit("?operation=pause-all")[0], "after.all"))

	w.fails(http.StatusConflict, "POST", "/api/v1/tasks/-/mail/k/redeliver", "")
	refused := w.audit("?outcome=refused")
	require.Len(t, refused, 1)
	require.EqualValues(t, http.StatusConflict, at(refused[0], "status"))
	require.Nil(t, at(refused[0], "before"))
}

// The id of a job is what its caller chose, and may be the name of another tenant.
func TestTheAuditOfAJobIsThatOfItsTenant(t *testing.T) {
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Admin, "mine")
	const job = `{"action": "cancel", "filter": {"type": "mail", "tenant": "mine"}}`
	mine.as("Idempotency-Key", "other").ok("POST", "/api/v1/bulk", job)
	all.as("Idempotency-Key", "all").ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}}`)
	entries := mine.audit("")
	require.Len(t, entries, 1)
	require.Equal(t, []any{"bulk", "mine/other", "mine"}, []any{at(entries[0], "kind"), at(entries[0], "resource"), at(entries[0], "tenant")})
	require.Empty(t, all.audit("?tenant=other"))
	require.Equal(t, "-/all", at(all.audit("?operation=start-bulk")[0], "resource"))
}

// A job over all tenants has the path of a thing without a tenant.
func TestTheAuditOfAJobOverAllTenantsIsForTokensOfAllTenants(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, none := w.with(access.Admin), w.with(access.Admin, model.NoTenant)
	all.as("Idempotency-Key", "all").ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "secret.type"}}`)
	all.as("Idempotency-Key", "own").ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail", "tenant": "-"}}`)
	for _, key := range []string{"all", "own"} {
		all.ok("POST", "/api/v1/bulk/-/"+key+"/stop", "")
		all.do("POST", "/api/v1/tasks/-/mscheduler.bulk/"+key+"/retry", "")
		all.do("POST", "/api/v1/tasks/-/mscheduler.bulk/"+key+"/release", "")
		none.do("POST", "/api/v1/bulk/-/"+key+"/stop", "") // of a job over all tenants it is not found
	}
	shown := none.audit("")
	require.Len(t, shown, 5, "%v", shown)
	for _, e := range shown {
		require.Contains(t, []any{"-/own", "-/mscheduler.bulk/own"}, at(e, "resource"))
		require.Equal(t, "-", at(e, "tenant"))
	}
	require.NotContains(t, fmt.Sprint(shown), "secret.type")
	require.Len(t, all.audit("?tenant=-"), 5)
	entries := all.audit("?resource=-/all")
	require.Len(t, entries, 3)
	require.Len(t, all.audit("?resource=-/mscheduler.bulk/all"), 2)
	for _, e := range entries {
		require.Nil(t, at(e, "tenant"))
	}
}

func TestDryRunsAreNotInTheAudit(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}, "dry_run": true}`)
	require.Empty(t, w.audit(""))
	w.ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}, "dry_run": false}`)
	require.Len(t, w.audit(""), 1)
}

func TestTheAuditHasNoSecrets(t *testing.T) {
	w := newWorld(t, func(c *rest.Config) { c.SecretKey = strings.Repeat("ab", 32) })
	const secret = "hunter2"
	w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k", "start_time": "2100-01-01T00:00:00Z", "args": {"headers": {"Authorization": %[1]q}}, "options": {"callback": {
		"success": {"url": "https://example.org/?t=%[2]s"}, "security": {"type": "aksk", "keys": [{"ak": "a", "sk": %[1]q}]}}}}`, secret, secret))
	w.ok("POST", "/api/v1/periodics", fmt.Sprintf(`{"name": "n", "cron": "@daily", "type": "http", "args": {"url": "https://example.org", "headers": {"Authorization": "Bearer %s", "X-Api-Key": %q}}}`, secret, secret))
	w.as("If-Match", "*").ok("PATCH", "/api/v1/tasks/-/mail/k", fmt.Sprintf(`{"options": {"callback": {"success": {"url": "https://example.org"}, "security": {"type": "aksk", "keys": [{"ak": "a", "sk": "%s2"}]}}}}`, secret))
	w.as("If-Match", "*").ok("PATCH", "/api/v1/tasks/-/mail/k", fmt.Sprintf(`{"args": {"headers": {"Authorization": "%s3"}}}`, secret))
	entries := w.audit("")
	require.Len(t, entries, 4)
	require.NotContains(t, fmt.Sprint(entries), secret)
	require.NotContains(t, fmt.Sprint(entries), "mss1.")
	require.NotNil(t, at(entries[1], "before.options"), "that a secret has changed is told")
	require.Contains(t, at(entries[0], "after.args"), "bytes)", "payloads are in the task")
}

// Without an entry there is no change.
func TestNothingIsChangedThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	p := testdb.Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(p.URI()))
	require.NoError(t, err)
	testdb.Closes(t, client.Disconnect)
	w := newWorld(t, func(c *rest.Config) { c.Database = client.Database(c.Database.Name()) })
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "before"}`)
	require.Len(t, w.audit(""), 1)
	p.Set(proxy.Rule{Command: "insert", Collection: "audit", Times: -1, Do: proxy.CutBefore})
	a := w.do("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.text)
	w.do("POST", "/api/v1/tasks/-/mail/before/cancel", "")
	p.Clear()
	require.Eventually(t, func() bool { return w.do("GET", "/api/v1/tasks/-/mail/k", "").status == http.StatusNotFound }, testdb.Patience, 10*time.Millisecond)
	require.Equal(t, "New", w.ok("GET", "/api/v1/tasks/-/mail/before", "")["status"])
	require.Len(t, w.audit(""), 1)

	p.Set(proxy.Rule{Command: "update", Collection: "audit", Times: -1, Do: proxy.CutBefore})
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	require.NoError(t, w.api.AuditWritten(t.Context()))
	p.Clear()
	require.Eventually(t, func() bool { return w.do("GET", "/api/v1/audit", "").status == http.StatusOK }, testdb.Patience, 10*time.Millisecond)
	require.Equal(t, "unknown", at(w.audit("")[0], "outcome"), "its end is not known to the audit")
}

func TestWhoMayNotChangeIsRecordedOnceAMinute(t *testing.T) {
	w := guarded(t)
	all, viewer := w.with(access.Admin), w.with(access.Viewer)
	for range 3 {
		viewer.fails(http.StatusForbidden, "POST", "/api/v1/tasks", `{"type": "mail"}`)
	}
	viewer.fails(http.StatusForbidden, "GET", "/api/v1/audit", "")
	entries := all.audit("")
	require.Len(t, entries, 1)
	require.Equal(t, "refused", at(entries[0], "outcome"))
	require.EqualValues(t, http.StatusForbidden, at(entries[0], "status"))
	require.Equal(t, "viewer", at(entries[0], "name"))
}

func TestATokenReadsTheAuditOfItsTenantsOnly(t *testing.T) {
	w := guarded(t)
	all, mine := w.with(access.Admin), w.with(access.Admin, "mine")
	for _, tenant := range []string{"mine", "other"} {
		all.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k", "tenant": %q}`, tenant))
	}
	all.ok("POST", "/api/v1/pauses/pause", "")
	mine.ok("POST", "/api/v1/tasks/batch", `{"tasks": [{"type": "mail"}, {"type": "mail"}]}`)
	mine.fails(http.StatusNotFound, "POST", "/api/v1/tasks/other/mail/k/cancel", "")
	mine.fails(http.StatusForbidden, "GET", "/api/v1/audit?tenant=other", "")
	entries := mine.audit("")
	require.Len(t, entries, 2)
	for _, e := range entries {
		require.Equal(t, "mine", at(e, "tenant"))
	}
	require.Len(t, all.audit(""), 5)
	require.Empty(t, mine.audit("?resource=other/mail/k"))
	require.Len(t, all.audit("?resource=other/mail/k&outcome=refused"), 1)
	require.Len(t, all.audit("?who="+at(entries[0], "who").(string)), 2, "what it did and what it may not do")
}

func TestTheAuditIsReadByPageAndTime(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.ok("POST", "/api/v1/tasks", fmt.Sprintf(`{"type": "mail", "key": "k%d"}`, i))
	}
	var seen []string
	for query := "?limit=3"; ; {
		require.NoError(t, w.api.AuditWritten(t.Context()))
		page := w.ok("GET", "/api/v1/audit"+query, "")
		for _, e := range page["entries"].([]any) {
			seen = append(seen, at(e, "resource").(string))
		}
		if page["next"] == nil {
			break
		}
		query = "?limit=3&page_token=" + page["next"].(string)
	}
	require.Equal(t, []string{"-/mail/k6", "-/mail/k5", "-/mail/k4", "-/mail/k3", "-/mail/k2", "-/mail/k1", "-/mail/k0"}, seen)
	third := at(w.audit("?resource=-/mail/k3")[0], "at").(string)
	earlier := 0 // several may be of one millisecond
	for _, e := range w.audit("") {
		if at(e, "at").(string) < third {
			earlier++
		}
	}
	require.Empty(t, w.audit("?after=2100-01-01T00:00:00Z"))
	require.Len(t, w.audit("?before="+third+"&outcome=ok"), earlier)
	require.Len(t, w.audit("?after="+third+"&outcome=ok"), 7-earlier)
	require.Empty(t, w.audit("?outcome=failed"))
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/audit?page_token=x", "")
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/audit?outcome=perhaps", "")
}
