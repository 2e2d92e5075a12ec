package dashboard_test

import (
	"net/http"
	"strings"
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
	b.run(chromedp.SendKeys("#remark", "the relay is <b>up</b>"), chromedp.Click("#everything button.primary"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
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

func TestAJobStartsWhenItsNumberIsConfirmed(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /tasks", `{"tasks": []}`)
	s.says("POST /bulk", `{"matched": 3, "tenant": "-", "id": "j"}`)
	s.says("GET /bulk/-/j", `{"id": "j", "tenant": "-", "status": "New", "action": "cancel", "matched": 0, "changed": 0, "skipped": 0, "failed": 0}`)
	b.size(1440, 900, false)
	b.visit(s.url + "/tasks?type=mail")
	b.run(chromedp.Click("#everything summary"), chromedp.WaitVisible("#remark"), chromedp.SetValue("#action", "cancel"), chromedp.SendKeys("#remark", "too late\r"), chromedp.WaitVisible("#confirm-yes"))
	require.Contains(t, b.text("#confirm-text"), "3 tasks match")
	require.Contains(t, b.text("#confirm-title"), "cancel")
	b.accessible()
	const counted = `POST /bulk {"filter":{ "type": "mail" },"action":"cancel","remark":"too late","dry_run":true}`
	changes := func() (out []string) {
		for _, one := range s.changes() {
			out = append(out, strings.Join(strings.Fields(one), " "))
		}
		return out
	}
	require.Equal(t, []string{counted}, changes())
	b.press("Back")
	b.awaits(`!document.querySelector("#everything button.primary").disabled`) // until then Enter sends nothing
	b.run(chromedp.SendKeys("#remark", "\r"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	b.awaits(`location.pathname === "/ui/bulk/-/j"`)
	require.Equal(t, []string{counted, counted, `POST /bulk {"filter":{ "type": "mail" },"action":"cancel","remark":"too late"}`}, changes())

	s.fails("POST /bulk", http.StatusUnprocessableEntity, `{"status": 422, "title": "Unprocessable", "detail": "too many"}`)
	b.visit(s.url + "/tasks?type=mail")
	b.run(chromedp.Click("#everything summary"), chromedp.WaitVisible("#remark"), chromedp.Click("#everything button.primary"))
	require.Equal(t, "too many", b.text("#everything .error"))
	b.heard("status 422")

	s.fails("POST /bulk", http.StatusServiceUnavailable, `{"status": 503, "title": "Service Unavailable", "detail": "too slow"}`)
	b.visit(s.url + "/tasks?type=mail")
	b.run(chromedp.Click("#everything summary"), chromedp.WaitVisible("#remark"), chromedp.Click("#everything button.primary"), chromedp.WaitVisible("#confirm-yes"))
	require.Contains(t, b.text("#confirm-text"), "cannot be counted in time")
	b.heard("status 503")
	b.quiet()
}

func TestAnEmptyFieldLeavesTheOthersOfItsName(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /tasks", `{"tasks": []}`)
	b.visit(s.url + "/tasks?arg=a%3D1&arg=b%3D2&created_after=2026-01-02T03%3A04%3A00.000Z")
	b.run(chromedp.Evaluate(`document.querySelector('input[name="arg"]').value = ""; 0`, nil), chromedp.Click("form.filters button.primary"))
	b.awaits(`location.search === "?arg=b%3D2&created_after=2026-01-02T03%3A04%3A00.000Z"`)
	b.quiet()
}

func TestAnActionBeginsWithoutTheRefusalsOfTheLastOne(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /tasks", `{"tasks": [{"id": "-/mail/a", "type": "mail", "status": "New"}]}`)
	s.fails("POST /tasks/-/mail/a/retry", http.StatusConflict, `{"status": 409, "title": "Conflict", "detail": "it is New"}`)
	s.says("POST /tasks/-/mail/a/cancel", `{}`)
	b.size(1440, 900, false)
	b.visit(s.url + "/tasks")
	b.run(chromedp.Click(`input[name="row"]`), chromedp.Click("[data-each=retry]"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	require.Equal(t, "-/mail/a: it is New", b.text("#chosen-refused"))
	b.heard("status 409")
	b.run(chromedp.Click("[data-each=cancel]"), chromedp.WaitVisible("#confirm-yes"), chromedp.Click("#confirm-yes"))
	b.awaits(`document.querySelector("#chosen-progress").textContent === "1 of 1 done" && document.querySelector("#chosen-refused").hidden`)
	b.quiet()
}

func TestBulkJobsOfATenantAreFound(t *testing.T) {
	api := answers{
		"/api/v1/bulk":          `{"jobs": []}`,
		"/api/v1/bulk/acme/j-1": `{"id": "j-1", "tenant": "acme", "status": "Success", "action": "retry", "matched": 0, "changed": 0, "skipped": 0, "failed": 0}`,
	}
	require.Contains(t, api.shown(t, "/bulk/acme/j-1"), `href="/ui/bulk?tenant=acme"`)
	text := api.shown(t, "/bulk?tenant=acme")
	require.Contains(t, text, `<input name="tenant" value="acme"`)
	require.Contains(t, text, "No bulk job of this tenant has run.")
	require.Contains(t, api.shown(t, "/bulk"), "No bulk job without a tenant has run.")
}

func TestTheFilterOfAJobIsThatOfTheList(t *testing.T) {
	api := answers{
		"/api/v1/me":    `{"name": "ann", "role": "operator", "tenants": ["acme", "blue"]}`,
		"/api/v1/tasks": `{"tasks": []}`,
	}
	shown := func(path string) string { return strings.Join(strings.Fields(api.shown(t, path)), " ") }
	require.Contains(t, shown("/tasks?arg=&arg=order.id%3D17&type=&tenant=blue"), `value="{ &#34;arg&#34;: [ &#34;order.id=17&#34; ], &#34;tenant&#34;: &#34;blue&#34; }"`)
	require.Contains(t, shown("/tasks?type=mail"), `value="{ &#34;tenant&#34;: &#34;acme&#34;, &#34;type&#34;: &#34;mail&#34; }"`, "what the list shows, where the page names no tenant")
	require.Contains(t, shown("/tasks?type="), "Choose a filter first")
}
