package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/server"
)

const (
	benchWorkers = 1000 // each holds a task
	benchNodes   = 1000
	benchStreams = 50  // with a node that may run
	benchEnded   = 500 // nodes of each stream, in the last hour
)

// benchPages are the pages among what [testdb.Fill] and the bench have stored.
var benchPages = []string{
	"/", "/tasks", "/tasks?sort=-id", "/tasks?type=mail", "/tasks?status=Failure", "/tasks?status=Pending&type=mail", "/tasks?status=New", "/tasks?tenant=t5&type=mail&sort=-id",
	"/tasks?error=nobody", "/tasks?key=k0000005", "/tasks?key=k00000&type=mail", "/find?q=k0000005", "/tasks?arg=to.name%3Dnobody", "/tasks?creator=nobody", "/tasks?history=also", "/tasks/t5/mail/k0000005", "/find?q=t5/mail/k0000005",
	"/periodics", "/periodics?tenant=t5", "/periodics/t5/k0000005", "/runs", "/runs?status=SUCCESS", "/flows", "/flows?status=RUNNING", "/flows/-/big", "/flows/-/big?view=gantt", "/flows/-/big?node=n0500",
	"/streams", "/streams?all=true", "/streams/busy/07", "/plans", "/plans?over=true", "/plans/t5/k0000005", "/plans/t5/k0000005?month=2026-03", "/plans/t5/k0000005?month=2030-01", "/types", "/types/mail", "/workers", "/workers?state=dead", "/workers/worker-0500",
	"/waiting", "/events", "/audit", "/audit?tenant=t5", "/access", "/system", "/bulk",
	"/tasks?worker_id=worker-0500", "/tasks?status=Pending&status=Failure", "/tasks/t5/report/held-0500", "/tasks/new", "/periodics?name=k000&tenant=t5", "/periodics/t5/k0000005?month=2026-03", "/periodics/t5/k0000005/edit", "/periodics/new",
	"/runs?late=yes", "/runs/t5/r0000005@k0000005", "/flows?key=k000&tenant=t5", "/flows/new", "/flows/-/big?status=WAIT", "/streams/s/k0000005", "/plans?plan_id=k000&tenant=t5", "/plans/new",
	"/workers?type=mail", "/workers?q=worker-05", "/edit-type?type=mail", "/?window=week", "/types/mail?window=week", "/design",
}

// heavyPages are those that give a browser most to do.
var heavyPages = []string{"/", "/tasks", "/types", "/workers", "/periodics", "/flows/-/big", "/flows/-/big?view=gantt"}

// BenchmarkPages asks for each page of the dashboard among MSCHEDULER_BENCH_TASKS tasks (100,000 if it is not set), as
// many past lives, 10,000 rules, flows, plans and streams, 1,000 workers that each hold a task, a flow of 1,000 nodes, and
// 50 streams of which 500 nodes have ended within an hour. It tells the median and the 99th percentile at the server. Below
// 100 ms is wanted; docs/performance.md has the numbers.
//
// Then it opens the heaviest of them in a browser, if there is one. interactive-ms is from the start of the navigation until
// the scripts have run and something is painted, and browser-cpu-ms the processor time of the page in the browser.
func BenchmarkPages(b *testing.B) {
	n := testdb.BenchTasks(b)
	db := testdb.New(b)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(b, err)
	require.NoError(b, st.Ready(b.Context()))
	testdb.Fill(b, db, n, 10_000)
	s, err := server.New(server.Config{Database: db, NoTokens: true, Version: "bench"})
	require.NoError(b, err)
	b.Cleanup(func() {
		s.Stop()
		require.NoError(b, s.Close(context.Background()))
	})
	ask := func(method, path string, body []byte) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), method, "http://127.0.0.1"+path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = "127.0.0.1:1234"
		s.ServeHTTP(w, r)
		require.Less(b, w.Code, 400, "%s: %s", path, w.Body)
		return w
	}
	nodes := make([]map[string]any, benchNodes) // a first one, rows of ten, a last one
	name := func(i int) string { return fmt.Sprintf("n%04d", i) }
	for i := range nodes {
		after := []string{}
		switch {
		case i == benchNodes-1:
			for k := i - 10; k < i; k++ {
				after = append(after, name(k))
			}
		case i > 10:
			after = []string{name(i - 10), name(i - 9)}[:1+i%2]
		case i > 0:
			after = []string{name(0)}
		}
		nodes[i] = map[string]any{"id": name(i), "type": "mail", "after": after}
	}
	flow, err := json.Marshal(map[string]any{"key": "big", "nodes": nodes})
	require.NoError(b, err)
	ask(http.MethodPost, "/api/v1/flows", flow)
	now, err := st.ServerTime(b.Context())
	require.NoError(b, err)
	var workers, held []any
	for i := range benchWorkers {
		id := fmt.Sprintf("worker-%04d", i)
		at := now.Add(time.Hour) // they live as long as it runs
		if i%10 == 9 {
			at = now.Add(-time.Hour)
		}
		workers = append(workers, bson.D{
			{Key: "_id", Value: id}, {Key: "host", Value: fmt.Sprintf("host-%d", i%50)}, {Key: "pid", Value: i}, {Key: "version", Value: "bench"}, {Key: "types", Value: bson.A{"mail", "report", fmt.Sprintf("type-%d", i%20)}},
			{Key: "concurrency", Value: 100}, {Key: "running", Value: 1}, {Key: "stream", Value: "polling"}, {Key: "started_at", Value: now}, {Key: "heartbeat_at", Value: at},
		})
		key := fmt.Sprintf("held-%04d", i)
		held = append(held, bson.D{
			{Key: "_id", Value: "t5/report/" + key}, {Key: "type", Value: "report"}, {Key: "key", Value: key}, {Key: "tenant", Value: "t5"}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(2)}, {Key: "priority", Value: 5},
			{Key: "status", Value: "Executing"}, {Key: "created_at", Value: now}, {Key: "updated_at", Value: now}, {Key: "start_time", Value: now}, {Key: "lapse_at", Value: now.Add(time.Hour)},
			{Key: "worker_states", Value: bson.A{bson.D{{Key: "exec_id", Value: "x"}, {Key: "worker_id", Value: id}, {Key: "claimed_at", Value: now}, {Key: "ping_expire_time", Value: now.Add(time.Hour)}, {Key: "attempt", Value: 1}}}},
		})
	}
	var streams, ended []any
	for i := range benchStreams {
		id := fmt.Sprintf("busy/%02d", i)
		for k := range benchEnded {
			at := now.Add(-time.Duration(benchEnded-k) * 7 * time.Second)
			ended = append(ended, bson.D{{Key: "_id", Value: fmt.Sprintf("%s/n%d", id, k)}, {Key: "flow_id", Value: id}, {Key: "node", Value: fmt.Sprintf("n%d", k)}, {Key: "position", Value: int64(k + 1)}, {Key: "status", Value: "SUCCESS"}, {Key: "at", Value: at}, {Key: "rev", Value: int64(1)}})
		}
		streams = append(streams, bson.D{
			{Key: "_id", Value: id}, {Key: "kind", Value: "stream"}, {Key: "key", Value: id}, {Key: "scene", Value: "busy"}, {Key: "group", Value: id[5:]}, {Key: "status", Value: "RUNNING"}, {Key: "rev", Value: int64(1)},
			{Key: "created_at", Value: now}, {Key: "updated_at", Value: now}, {Key: "trimmed", Value: benchEnded}, {Key: "nodes", Value: bson.A{bson.D{{Key: "id", Value: "now"}, {Key: "type", Value: "mail"}}}}, {Key: "states", Value: bson.A{bson.D{{Key: "s", Value: "READY"}, {Key: "at", Value: now}}}},
		})
	}
	for coll, docs := range map[string][]any{"workers": workers, "tasks": held, "flows": streams, "flow_nodes": ended} {
		_, err := db.Collection(coll).InsertMany(b.Context(), docs)
		require.NoError(b, err)
	}
	for _, page := range benchPages {
		b.Run(page, func(b *testing.B) {
			testdb.Timed(b, func() { ask(http.MethodGet, "/ui"+page, nil) })
		})
	}
	h := httptest.NewServer(s)
	b.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	for _, page := range heavyPages {
		b.Run("browser"+page, func(b *testing.B) {
			tab := open(b)
			tab.size(1440, 900, false)
			took, cpu := make([]float64, 0, b.N), 0.
			for range b.N {
				interactive, busy := tab.opens(h.URL + "/ui" + page)
				took, cpu = append(took, interactive), cpu+busy
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "interactive-ms")
			b.ReportMetric(took[len(took)*99/100], "interactive-p99-ms")
			b.ReportMetric(cpu/float64(b.N), "browser-cpu-ms")
		})
	}
}

// opens opens a page. It returns the milliseconds until the page is interactive, and those of the processor that the page
// has taken.
func (b *browser) opens(url string) (interactive, cpu float64) {
	b.t.Helper()
	b.run(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks))
	b.visit(url)
	b.run(chromedp.Evaluate(`new Promise((done) => {
		const ready = () => {
			const n = performance.getEntriesByType("navigation")[0], p = performance.getEntriesByName("first-contentful-paint")[0];
			if (n.domContentLoadedEventEnd && p) done(Math.max(n.domContentLoadedEventEnd, p.startTime)); else setTimeout(ready, 5);
		};
		ready();
	})`, &interactive, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return interactive, b.metric("TaskDuration") * 1000 // since the navigation
}

func (b *browser) metric(name string) (value float64) {
	b.t.Helper()
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		all, err := performance.GetMetrics().Do(ctx)
		for _, m := range all {
			if m.Name == name {
				value = m.Value
			}
		}
		return err
	}))
	return value
}
