package dashboard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/dashboard"
	"github.com/mscheduler/mscheduler/model"
)

// everyPage are the pages of what [world.full] has made.
var everyPage = []string{
	"/", "/?window=week", "/tasks", "/tasks?status=Failure", "/tasks/-/sell/shown", "/tasks/-/sell/waits", "/tasks/-/sell/held", "/tasks/-/sell/done", "/tasks/new", "/tasks/new?again=-/sell/shown", "/find?q=shown",
	"/bulk", "/periodics", "/periodics/-/nightly", "/periodics/-/off", "/periodics/new", "/periodics/-/nightly/edit", "/runs", "/flows", "/flows/-/asks", "/flows/-/asks?view=gantt", "/flows/-/asks?node=boss", "/flows/-/asks?node=next", "/flows/new",
	"/streams", "/streams/s/g", "/streams/s/g?node=p", "/plans", "/plans?over=true", "/plans/-/bill", "/plans/new", "/plans/new?like=-/bill", "/types", "/types/sell", "/types/mail", "/edit-type?type=sell", "/workers", "/workers/lost", "/workers/courier",
	"/waiting", "/events", "/audit", "/access", "/system", "/system?checks=1", "/design",
}

// full makes one of each thing, with a text in each field that people fill in, or programs.
func (w *world) full(text string) {
	w.t.Helper()
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "courier", Version: "1"})
	require.NoError(w.t, err)
	require.NoError(w.t, consumer.Handle(c, model.NewType[map[string]string, map[string]string]("sell"), func(_ context.Context, task *consumer.Task[map[string]string]) (map[string]string, error) {
		if task.Args["as"] == "shown" {
			return nil, consumer.Fatal(errors.New(text))
		}
		return task.Args, nil
	}))
	w.runs(c.Run)
	w.engine()
	w.step()
	send := func(key string, more map[string]any) {
		task := map[string]any{"type": "sell", "key": key, "args": map[string]any{"as": key, "text": text, text: text}, "creator": text, "category": text}
		for name, value := range more {
			task[name] = value
		}
		w.call(http.MethodPost, "/tasks", task)
	}
	send("shown", map[string]any{"options": map[string]any{"callback": map[string]any{"error": map[string]any{"url": "http://127.0.0.1:9/"}}}})
	send("done", nil)
	send("held", map[string]any{"held": true})
	send("waits", map[string]any{"in": "1h"})
	w.await("/tasks/-/sell/shown", hasStatus("Failure"))
	w.await("/tasks/-/sell/done", hasStatus("Success"))
	w.call(http.MethodPost, "/bulk", map[string]any{"action": "cancel", "filter": map[string]any{"type": "none", "creator": text}, "remark": text})
	for _, name := range []string{"nightly", "off"} {
		w.call(http.MethodPost, "/periodics", map[string]any{"name": name, "cron": "@yearly", "type": "sell", "description": text, "category": text, "creator": text, "args": map[string]any{text: text}, "enabled": true})
	}
	w.call(http.MethodPost, "/periodics/-/off/disable", map[string]any{"note": text})
	w.call(http.MethodPost, "/flows", map[string]any{"key": "asks", "description": text, "creator": text, "nodes": []any{
		map[string]any{"id": "boss", "ask": map[string]any{"title": text, "fields": []any{map[string]any{"name": "why", "kind": "string", "help": text}}}}, node("next", "sell", "boss"),
	}})
	w.awaitNode("/flows/-/asks", "boss", "PENDING")
	w.call(http.MethodPost, "/streams/s/g/nodes", map[string]any{"nodes": []any{node("p", "none")}})
	w.awaitNode("/streams/s/g", "p", "READY")
	w.call(http.MethodPost, "/plans", map[string]any{"plan_id": "bill", "station": "none", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "description": text, "caller": text, "messages": []any{map[string]any{text: text}}})
	w.call(http.MethodPost, "/types/mail/pause", map[string]any{"note": text})
	now := time.Now()
	for coll, docs := range map[string][]any{
		"workers":    {bson.D{{Key: "_id", Value: "lost"}, {Key: "host", Value: text}, {Key: "version", Value: text}, {Key: "types", Value: bson.A{"sell"}}, {Key: "heartbeat_at", Value: now.Add(time.Hour)}, {Key: "concurrency", Value: 1}}},
		"task_types": {bson.D{{Key: "_id", Value: "sell"}, {Key: "name", Value: text}, {Key: "description", Value: text}, {Key: "category", Value: text}, {Key: "version", Value: int64(1)}}},
		"periodic_runs": {bson.D{{Key: "_id", Value: "r@1"}, {Key: "rule_id", Value: "r"}, {Key: "rule_name", Value: text}, {Key: "status", Value: "FAILED"}, {Key: "reason", Value: text}, {Key: "error_info", Value: text},
			{Key: "nominal", Value: now}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: now}}},
	} {
		_, err := w.db.Collection(coll).InsertMany(w.t.Context(), docs)
		require.NoError(w.t, err)
	}
	w.call(http.MethodPost, "/workers/lost/drain", map[string]any{"note": text})
}

// calls are the operations that a page offers to call.
var calls = regexp.MustCompile(`data-(?:call|sends)="((?:POST|PUT|PATCH|DELETE) [^"]+)"`)

// What a viewer may not do is offered on no page, and each of the operations that an administrator is offered is refused.
func TestAViewerIsOfferedNoChangeOnAnyPage(t *testing.T) {
	w := newWorld(t)
	w.full("a text")
	viewer, admin := w.token("viewer"), w.token("admin")
	w = w.closed()
	v, a := w.visitor(), w.visitor()
	v.signIn(viewer, "/ui/")
	a.signIn(admin, "/ui/")
	offered := map[string]bool{}
	for _, page := range everyPage {
		res, text := a.send(http.MethodGet, page, "")
		require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", page, text)
		for _, m := range calls.FindAllStringSubmatch(text, -1) {
			offered[m[1]] = true
		}
		if page == "/flows/new" { // it checks and draws for everybody
			continue
		}
		res, text = v.send(http.MethodGet, page, "")
		require.Contains(t, []int{http.StatusOK, http.StatusForbidden}, res.StatusCode, page)
		require.Empty(t, calls.FindAllString(text, -1), page)
		for _, opens := range []string{"data-opens=", "data-each=", "data-count", ">Review the changes<", ">Send<"} {
			require.NotContains(t, text, opens, page)
		}
	}
	require.Greater(t, len(offered), 40)
	for call := range offered {
		method, path, _ := strings.Cut(call, " ")
		if strings.Contains(path, "/preview") || strings.Contains(path, "/validate") {
			continue
		}
		res, text := v.send(method, "/api"+path, `{}`, "Content-Type", "application/json", "If-Match", "*")
		require.Equal(t, http.StatusForbidden, res.StatusCode, "%s: %s", call, text)
	}
}

// Text that looks like HTML stays text, in every field of every page.
func TestTextThatLooksLikeHTMLStaysTextOnEveryPage(t *testing.T) {
	w := newWorld(t)
	const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{.}}`
	w.full(evil)
	w.token("admin")
	shows := 0
	for _, page := range append(everyPage, "/types?q="+url.QueryEscape(evil), "/workers?q="+url.QueryEscape(evil)+"&sort="+url.QueryEscape(evil), "/streams/s/g?status="+url.QueryEscape(evil), "/plans/-/bill?sort=at&month="+url.QueryEscape(evil), "/edit-type?type="+url.QueryEscape(evil)) {
		_, text := w.page(page)
		require.NotContains(t, text, "<script>alert", page)
		require.NotContains(t, text, "<img src=x", page)
		if strings.Contains(text, "&lt;script&gt;alert(1)") {
			shows++
		}
	}
	require.Greater(t, shows, 25, "pages show the texts")
}

// failing is an API that refuses one request.
type failing struct {
	http.Handler
	left atomic.Int64 // how many requests are before it
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.left.Add(-1) != -1 {
		f.Handler.ServeHTTP(w, r)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `{"status": 503, "title": "Not available", "detail": "the database is away"}`)
}

// If a read of a page or file fails, the answer is the problem. Nothing is read after it.
func TestAPageOfWhichAnyReadFailsShowsTheProblem(t *testing.T) {
	w := newWorld(t)
	w.full("a text")
	at, err := url.Parse(w.url)
	require.NoError(t, err)
	api := &failing{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}}
	d, failed := dashboard.New(dashboard.Config{API: api}), 0
	for _, page := range append(everyPage, "/find?q=sell", "/find?q=-/sell/done", "/runs?late=yes", "/runs/-/r@1", "/tasks/-/sell/done?generation=0", "/types?state=active", "/types/sell?window=week",
		"/download/types.csv", "/download/waiting.csv", "/download/held.csv?of=courier", "/download/series.csv?of=sell", "/download/findings.csv", "/download/executions.csv?of=-/sell/done") {
		for n := int64(0); ; n++ {
			api.left.Store(n)
			r := httptest.NewRecorder()
			d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui"+page, nil))
			left := api.left.Load()
			if left >= 0 { // it has fewer reads
				require.Less(t, r.Code, http.StatusBadRequest, "%s: %s", page, r.Body)
				break
			}
			failed++
			require.Equal(t, http.StatusServiceUnavailable, r.Code, "%s, read %d", page, n)
			require.Contains(t, r.Body.String(), "the database is away", "%s, read %d", page, n)
			if page != "/periodics" { // it reads its rows at the same time
				require.Equal(t, int64(-1), left, "%s, read %d", page, n)
			}
		}
	}
	require.Greater(t, failed, 2*len(everyPage))
}
