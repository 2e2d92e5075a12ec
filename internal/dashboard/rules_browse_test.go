package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/periodic"
)

// decide runs an engine of periodic rules until the test ends.
func (w *world) decide() {
	w.t.Helper()
	p, err := periodic.New(periodic.Config{Database: w.db})
	require.NoError(w.t, err)
	w.runs(p.Run)
}

// runsAre waits until a rule has runs of a status.
func (w *world) runsAre(rule, status string, n int) []any {
	w.t.Helper()
	doc := w.await("/periodics/"+rule+"/runs?status="+status, func(doc map[string]any) bool { return len(doc["runs"].([]any)) >= n })
	return doc["runs"].([]any)
}

func (w *world) seedRules() {
	w.t.Helper()
	w.work()
	w.decide()
	for _, rule := range []map[string]any{
		{"name": "nightly report", "description": "sends the figures of the day", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "type": "report", "args": map[string]any{"kind": "sales"}, "enabled": true},
		{"name": "reminders", "cron": "0 9 * * mon-fri", "timezone": "America/New_York", "type": "mail", "options": map[string]any{"retry": map[string]any{"strategy": "none"}}, "enabled": true},
		{"name": "crawler", "cron": "0 */2 * * *", "type": "crawl", "max_concurrency": 1, "enabled": true},
		{"name": "<b>old</b>", "tenant": "acme", "cron": "*/5 * * * *", "type": "report"},
	} {
		w.call(http.MethodPost, "/periodics", rule)
	}
	w.call(http.MethodPost, "/periodics/-/nightly%20report/backfill", map[string]any{"from": "-480h"})
	w.call(http.MethodPost, "/periodics/-/reminders/backfill", map[string]any{"from": "-240h"})
	w.call(http.MethodPost, "/periodics/-/crawler/backfill", map[string]any{"from": "-9h"})
	w.runsAre("-/nightly%20report", "SUCCESS", 19)
	w.runsAre("-/reminders", "FAILED", 5)
	w.runsAre("-/crawler", "RUNNING", 1)
}

func TestTheRulePagesLookRightAndTheirActionsWork(t *testing.T) {
	w, b := browse(t)
	w.seedRules()
	b.looks("rules", w.url+"/ui/periodics")
	b.looks("rule", w.url+"/ui/periodics/-/nightly%20report")
	b.looks("runs", w.url+"/ui/runs")
	failed := w.runsAre("-/reminders", "FAILED", 1)[0].(map[string]any)
	b.looks("run", w.url+"/ui/runs/-/"+url.PathEscape(failed["id"].(string)))

	page := w.url + "/ui/periodics/-/nightly%20report"
	b.visit(page)
	b.opensDialog("disable")
	b.run(chromedp.SendKeys("#disable-note", "moving <b>house</b>"), chromedp.Click("#disable button.primary"))
	b.awaits(`document.querySelector('[data-part=head]').textContent.includes("moving <b>house</b>")`)
	require.Equal(t, "moving <b>house</b>", w.call(http.MethodGet, "/periodics/-/nightly%20report", nil)["pause_note"])
	b.run(chromedp.Click(`form[data-call$="/enable"] button`))
	b.awaits(`document.querySelector('[data-part=head] .badge').textContent.includes("enabled") && document.querySelector('[data-opens="disable"]') !== null`)
	b.opensDialog("trigger")
	b.run(chromedp.Click("#trigger button.primary"))
	b.awaits(`document.querySelector('[data-part=runs]').textContent.includes("by hand")`)
	b.opensDialog("backfill")
	b.run(chromedp.SendKeys("#backfill-from", "-1000000h"), chromedp.Click("#backfill button.primary"), chromedp.WaitVisible("#backfill .error"))
	b.run(chromedp.Evaluate(`document.querySelector("#backfill").close()`, nil))
	b.opensDialog("delete")
	b.run(chromedp.Click("#delete button.danger"), chromedp.WaitVisible(`[data-part="rules"]`))
	status, _ := w.do(http.MethodGet, "/api/v1/periodics/-/nightly%20report", nil)
	require.Equal(t, http.StatusNotFound, status)

	b.visit(w.url + "/ui/runs?status=SCHEDULED,QUEUED,RUNNING,WAITING_CALLBACK")
	queued := w.runsAre("-/crawler", "QUEUED", 1)[0].(map[string]any)
	run := "/runs/-/" + url.PathEscape(queued["id"].(string))
	b.visit(w.url + "/ui" + run)
	b.run(chromedp.Click(`form[data-call$="/cancel"] button`), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	b.awaits(`document.querySelector('[data-part=run] .badge').textContent.includes("CANCELED")`)
	require.Equal(t, "CANCELED", w.call(http.MethodGet, run, nil)["status"])
}

func TestTheListsOfRunsAreFiltered(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/periodics", map[string]any{"name": "nightly", "tenant": "acme", "cron": "@daily", "type": "report", "max_concurrency": 1})
	w.call(http.MethodPost, "/periodics/acme/nightly/backfill", map[string]any{"from": "2026-01-01T00:00:00Z", "to": "2026-01-04T00:00:00Z"})
	for query, wanted := range map[string][]string{
		"?status=QUEUED": {"2026-01-02", "2026-01-03"}, "?status=FAILED": {"No run matches"}, "?from=2026-01-03T00:00": {"2026-01-03"},
	} {
		for _, list := range []string{"/runs", "/periodics/acme/nightly"} {
			status, text := w.page(list + query)
			require.Equal(t, http.StatusOK, status)
			for _, s := range wanted {
				require.Contains(t, text, s, list+query)
			}
		}
	}
	_, err := w.db.Collection("periodic_runs").UpdateOne(t.Context(), bson.M{"nominal": time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, bson.M{"$set": bson.M{"late_ms": 90_000}})
	require.NoError(t, err)
	_, late := w.page("/runs?late=yes")
	require.Contains(t, late, "2026-01-02")
	require.NotContains(t, late, "2026-01-03")
	status, csv := w.page("/download/runs.csv?tenant=acme&status=QUEUED")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, csv, "2026-01-03")
	require.NotContains(t, csv, "2026-01-01")
	status, _ = w.page("/periodics/acme/none")
	require.Equal(t, http.StatusNotFound, status)
}
