package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Rows that are selected by keys are changed with a progress; everything that matches is counted and then changed by a
// job, which somebody stops.
func TestRowsAndEverythingThatMatchesAreChanged(t *testing.T) {
	w, b := browse(t)
	w.seedTasks()
	b.size(1440, 900, false)
	b.visit(w.url + "/ui/tasks?type=mail")
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	b.awaits(`document.getElementById("chosen-count").textContent === "1 row selected"`)
	life := w.call(http.MethodGet, "/tasks/-/mail/invoice-4", nil)["generation"]
	b.run(chromedp.Click(`[data-each=retry]`), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	b.awaits(`document.getElementById("chosen-progress").textContent === "1 of 1 done"`)
	w.await("/tasks/-/mail/invoice-4", func(doc map[string]any) bool { return doc["generation"] != life && doc["status"] == "Pending" })

	b.visit(w.url + "/ui/tasks?type=mail&status=Failure")
	b.run(chromedp.Click("#everything summary"), chromedp.WaitVisible("[data-count]"), chromedp.Click("[data-count]"))
	b.awaits(`document.getElementById("count").textContent === "1 task matches"`)
	b.accessible()
	b.run(chromedp.SendKeys("#remark", "the relay is <b>up</b>"), chromedp.Click("#everything button.primary"))
	b.awaits(`location.pathname.startsWith("/ui/bulk/-/") && document.querySelector("main h1")`)
	var at string
	b.run(chromedp.Location(&at))
	b.looks("job", at)
	b.visit(at)
	require.Contains(t, b.text("main"), "the relay is <b>up</b>")
	b.run(chromedp.Click(`form[data-call$="/stop"] button`))
	b.awaits(`document.querySelector("#confirm[open]") || document.querySelector("main").innerText.includes("Cancelled")`)
	b.run(chromedp.Evaluate(`document.querySelector("#confirm[open] #confirm-yes")?.click()`, nil))
	b.awaits(`document.querySelector("main").innerText.includes("Cancelled")`)
	b.looks("jobs", w.url+"/ui/bulk")
	b.quiet()
}
