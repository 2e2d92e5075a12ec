package dashboard_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
)

// The tables of things that others belong to are files, too: all of them, and only those.
func TestNodesResultsRulesWorkersAndJobsAreFiles(t *testing.T) {
	w := newWorld(t)
	w.seedPlans()
	w.engine()
	w.call(http.MethodPost, "/flows", map[string]any{"key": "a/b", "nodes": []any{node("x", "report"), node("y", "report", "x")}})
	w.call(http.MethodPost, "/streams/s/g%2F1/nodes", map[string]any{"nodes": []any{node("p", "report"), node("q", "crawl")}})
	w.call(http.MethodPost, "/periodics", map[string]any{"name": "nightly", "cron": "@yearly", "type": "report", "tenant": "acme"})
	w.call(http.MethodPost, "/bulk", map[string]any{"action": "cancel", "filter": map[string]any{"type": "none"}})
	w.serves("sell", func(map[string]string) error { return consumer.Fatal(errors.New("no till")) })
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "sell", "key": "a"})
	first := fmt.Sprintf("%.0f", w.await("/tasks/-/sell/a", hasStatus("Failure"))["generation"])
	w.call(http.MethodPost, "/tasks/-/sell/a/retry", nil)
	w.call(http.MethodPost, "/flows", map[string]any{"key": "asks", "nodes": []any{map[string]any{"id": "boss", "ask": "May we?"}}})
	w.awaitNode("/flows/-/asks", "boss", "PENDING")
	for i, rule := range []string{"late", "soon"} {
		_, err := w.db.Collection("periodic_runs").InsertOne(t.Context(), bson.D{{Key: "_id", Value: rule + "@1"}, {Key: "rule_id", Value: rule}, {Key: "rule_name", Value: rule}, {Key: "status", Value: "SUCCESS"}, {Key: "nominal", Value: time.Now()}, {Key: "late_ms", Value: int64(90_000 - 80_000*i)}, {Key: "rev", Value: int64(1)}, {Key: "at", Value: time.Now()}})
		require.NoError(t, err)
	}
	s := w.elsewhere()
	s.Measure.Types.Of("sell").Ended.Of("fatal").Add(3)
	s.Clock.Skip(-30 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	w.awaitNode("/flows/-/a%2Fb", "y", "SUCCESS")
	w.awaitNode("/streams/s/g%2F1", "q", "RUNNING")
	for page, want := range map[string]struct {
		path   string
		column string
		values []string // at the beginning
	}{
		"/flows/-/a%2Fb":                      {"/download/nodes.csv?of=-%2Fa%2Fb", "node", []string{"x", "y"}},
		"/streams/s/g%2F1":                    {"/download/chain.csv?of=s%2Fg%2F1", "node", []string{"p", "q"}},
		"/plans/-/figures":                    {"/download/results.csv?of=-%2Ffigures", "step", []string{"1", "2", "3"}},
		"/periodics?tenant=acme":              {"/download/rules.csv?tenant=acme", "name", []string{"nightly"}},
		"/workers?state=alive":                {"/download/workers.csv?state=alive", "id", []string{"clerk"}},
		"/bulk":                               {"/download/jobs.csv", "action", []string{"cancel"}},
		"/flows/-/a%2Fb?status=SUCCESS":       {"/download/nodes.csv?of=-%2Fa%2Fb&status=SUCCESS", "node", []string{"x", "y"}},
		"/streams/s/g%2F1?status=RUNNING":     {"/download/chain.csv?of=s%2Fg%2F1&status=RUNNING", "node", []string{"q"}},
		"/plans/-/figures?sort=at":            {"/download/results.csv?of=-%2Ffigures&sort=at", "step", []string{"1", "2", "3"}},
		"/workers?q=CLERK":                    {"/download/workers.csv?q=CLERK", "id", []string{"clerk"}},
		"/workers/worker-1":                   {"/download/held.csv?of=worker-1", "type", []string{"crawl"}},
		"/types?q=REPORT&sort=-due":           {"/download/types.csv?q=REPORT&sort=-due", "type", []string{"report"}},
		"/tasks/-/sell/a?generation=" + first: {"/download/executions.csv?generation=" + first + "&of=-%2Fsell%2Fa", "fail_reason", []string{"no till"}},
		"/tasks/-/sell/a":                     {"/download/lives.csv?of=-%2Fsell%2Fa", "generation", []string{}},
		"/types/sell?window=day":              {"/download/series.csv?of=sell&window=day", "failed", []string{"3"}},
		"/system?checks=1":                    {"/download/findings.csv?checks=1", "check", []string{"connection"}},
		"/waiting":                            {"/download/waiting.csv", "node", []string{"boss"}},
		"/runs?late=yes":                      {"/download/runs.csv?late=yes", "rule", []string{"late"}},
	} {
		_, text := w.page(page)
		link := want.path
		if !strings.Contains(link, "?") {
			link += "?"
		}
		require.Contains(t, text, `href="/ui`+html.EscapeString(link)+`"`, page)
		status, file := w.page(want.path)
		require.Equal(t, http.StatusOK, status, file)
		rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
		require.NoError(t, err)
		column := -1
		for i, name := range rows[0] {
			if name == want.column {
				column = i
			}
		}
		require.GreaterOrEqual(t, column, 0, rows[0])
		require.Greater(t, len(rows), len(want.values), page)
		for i, value := range want.values {
			require.Equal(t, value, rows[i+1][column], page)
		}
		_, text = w.page(strings.Replace(want.path, ".csv", ".jsonl", 1))
		least := len(rows) - 1 // steps begin meanwhile
		if page == "/workers/worker-1" {
			least = len(want.values) // steps that it holds end meanwhile, too
		}
		require.GreaterOrEqual(t, strings.Count(text, "\n"), least, page)
	}
	status, _ := w.page("/download/nodes.csv?of=-%2Fnobody")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = w.page("/download/nodes.csv")
	require.Equal(t, http.StatusNotFound, status)
}

// A task says what made it, with a link to that.
func TestATaskLeadsToWhatMadeIt(t *testing.T) {
	w := newWorld(t)
	w.engine()
	w.call(http.MethodPost, "/flows", map[string]any{"key": "a/b", "tenant": "acme", "nodes": []any{node("x", "report")}})
	w.call(http.MethodPost, "/streams/s/g/nodes", map[string]any{"nodes": []any{node("p", "report")}})
	w.call(http.MethodPost, "/plans", map[string]any{"plan_id": "bill", "station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": []any{1}})
	w.call(http.MethodPost, "/periodics", map[string]any{"name": "nightly", "cron": "@yearly", "type": "report", "tenant": "acme"})
	w.decide()
	w.call(http.MethodPost, "/periodics/acme/nightly/trigger", nil)
	w.awaitNode("/streams/s/g", "p", "READY")
	seen := map[string]bool{}
	for len(seen) < 4 {
		for _, task := range w.call(http.MethodGet, "/tasks?type=report", nil)["tasks"].([]any) {
			task := task.(map[string]any)
			kind := at(task, "origin", "kind").(string) + " " + at(task, "origin", "id").(string)
			_, text := w.page("/tasks/" + strings.Replace(task["id"].(string), "acme/report/flow:a/b:x", "acme/report/flow:a%2Fb:x", 1))
			for _, link := range []string{`of the flow <a class="id" href="/ui/flows/acme/a%2Fb?node=x">acme/a/b</a>`, `of the stream <a class="id" href="/ui/streams/s/g?node=p">s/g</a>`, `step 1 of the plan <a class="id" href="/ui/plans/-/bill">-/bill</a>`, `of the rule <a class="id" href="/ui/runs/acme/`} {
				if strings.Contains(text, link) {
					seen[kind] = true
				}
			}
			require.True(t, seen[kind], "%s: %s", kind, task["id"])
		}
		require.NoError(t, t.Context().Err())
	}
}
