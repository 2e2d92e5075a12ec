package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestATypeIsSetUpWithItsEffectShownAndPausedAndResumed(t *testing.T) {
	w, b := browse(t)
	w.seedSeries()
	w.seedTasks()
	b.looks("types", w.url+"/ui/types")

	b.visit(w.url + "/ui/types")
	b.run(chromedp.Click(`[data-opens="new-type"]`), chromedp.SendKeys("#new-type-name", "mail"), chromedp.Click("#new-type button.primary"), chromedp.WaitVisible("#editor"))
	b.awaits(`document.getElementById("source").value.includes("mail")`)
	for _, x := range [][2]string{{"name", `E-mails <b>x</b>`}, {"max_running", "0"}, {"rate_limit.count", "100"}, {"rate_limit.per", "1m"}, {"timeout", "90s"}} {
		b.run(chromedp.SendKeys(`[data-field="`+x[0]+`"]`, x[1]))
	}
	b.run(chromedp.Click(`[data-field="need_manual"]`))
	b.awaits(`document.getElementById("source").value.includes("need_manual: true")`)
	b.fill("#source", strings.Replace(b.value("#source"), "max_running: 0", "max_running: -5", 1)+"max_lapses: 7\n")
	b.awaits(`document.querySelector('[data-field="max_running"]').value === "-5" && document.querySelector('[data-field="max_lapses"]').value === "7"`)
	b.run(chromedp.Click("#editor button.primary"), chromedp.WaitVisible("#review"), chromedp.Click("#review-save"), chromedp.WaitVisible(`[data-field="max_running"] + .error`))
	b.heard("status 422")
	b.fill(`[data-field="max_running"]`, "5")
	b.awaits(`document.getElementById("source").value.includes("max_running: 5")`)
	b.run(chromedp.Click("#editor button.primary"), chromedp.WaitVisible("#review"))
	changes := b.text("#review-rows")
	require.Contains(t, changes, "Most running at once\tnot set\t5\tApplies to claims from now on.")
	require.Contains(t, changes, "<b>x</b>")
	require.Contains(t, changes, "Lapsed leases that a task survives\tnot set\t7\t")
	require.NotContains(t, changes, "kept for")
	status, _ := w.do(http.MethodGet, "/api/v1/types/mail", nil)
	require.Equal(t, http.StatusNotFound, status, "shown, and not saved")
	b.accessible()
	b.picture("type-review")
	b.run(chromedp.Click("#review-save"), chromedp.WaitVisible(`[data-part="type"]`))
	mail := w.call(http.MethodGet, "/types/mail", nil)
	require.EqualValues(t, 5, mail["max_running"])
	require.Equal(t, map[string]any{"count": 100., "per_ms": 60_000.}, mail["rate_limit"])
	require.Equal(t, map[string]any{"execution_timeout_ms": 90_000., "need_manual": true, "max_lapses": 7.}, mail["options"])

	b.looks("type", w.url+"/ui/types/mail")
	b.looks("type-edit", w.url+"/ui/edit-type?type=mail")
	b.visit(w.url + "/ui/edit-type?type=mail")
	b.awaits(`document.querySelector('[data-field="timeout"]').value === "1m30s"`)
	require.Equal(t, "code: mail\nname: E-mails <b>x</b>\ntimeout: 1m30s\nneed_manual: true\nmax_lapses: 7\nmax_running: 5\nrate_limit:\n  count: 100\n  per: 1m\n", b.value("#source"), "the file of `mscheduler type apply`")
	b.fill(`[data-field="max_running"]`, "0.5")
	b.run(chromedp.Click("#editor button.primary"), chromedp.WaitVisible("#review"))
	require.Equal(t, "Most running at once\t5\t0.5\tApplies to claims from now on. Nothing that runs is stopped; a lower limit is reached as executions end.", b.text("#review-rows"))

	b.visit(w.url + "/ui/types/mail")
	b.run(chromedp.Click(`[data-opens=pause]`), chromedp.SendKeys("#pause-note", "the relay is <b>down</b>"), chromedp.Click("#pause button.danger"))
	b.awaits(`document.querySelector('[data-part=type] .badge').textContent.includes("paused")`)
	require.Contains(t, b.text(`[data-part=type] .card.ask`), "by anybody. the relay is <b>down</b>")
	b.accessible()
	b.picture("type-paused")
	b.visit(w.url + "/ui/system")
	require.Contains(t, b.text("[data-part=system]"), "the relay is <b>down</b>")
	b.visit(w.url + "/ui/types/mail")
	require.Equal(t, []any{"mail"}, w.call(http.MethodGet, "/pauses", nil)["types"])
	b.run(chromedp.Click(`form[data-call$="/resume"] button`))
	b.awaits(`document.querySelector('[data-part=type] .badge').textContent.includes("active")`)
	require.Empty(t, w.call(http.MethodGet, "/pauses", nil)["types"])
	b.visit(w.url + "/ui/types")
	b.run(chromedp.Click(`[data-opens=pause-all]`), chromedp.Click("#pause-all button.danger"))
	b.awaits(`document.querySelector('[data-part=types] .card.ask') !== null`)
	require.Equal(t, true, w.call(http.MethodGet, "/pauses", nil)["all"])
	b.quiet()
}

func TestWorkersShowWhatTheyHold(t *testing.T) {
	w, b := browse(t)
	w.seedTasks()
	w.await("/workers", func(doc map[string]any) bool { return len(doc["workers"].([]any)) == 1 })
	b.looks("workers", w.url+"/ui/workers")
	require.Contains(t, b.text("tbody tr"), "-/crawl/example.org")
	b.looks("worker", w.url+"/ui/workers/worker-1")
	require.Contains(t, b.text("tbody tr"), "-/crawl/example.org")
	b.visit(w.url + "/ui/workers/worker-1")
	b.run(chromedp.Click(`[data-opens=drain]`), chromedp.SendKeys("#drain-note", "a new kernel <b>x</b>"), chromedp.Click("#drain button.danger"))
	b.awaits(`document.querySelector("[data-part=worker] .card.ask")?.textContent.includes("a new kernel <b>x</b>")`)
	w.await("/workers", func(doc map[string]any) bool { return at(doc, "workers", 0, "drain") != nil })
	b.picture("worker-drained")
	b.accessible()
	b.run(chromedp.Click(`form[data-call$="/resume"] button`))
	w.await("/workers", func(doc map[string]any) bool { return at(doc, "workers", 0, "drain") == nil })
	status, text := w.page("/workers/nobody")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, text, "no worker nobody")
	_, text = w.page("/workers?state=dead")
	require.Contains(t, text, "No worker matches.")
	b.quiet()
}
