package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A viewer of two tenants chooses one; each link, filter and search is about it from then on.
func TestAViewerFiltersByNameWithinTheChosenTenant(t *testing.T) {
	w, b := browse(t)
	for _, tenant := range []string{"acme", "blue"} {
		for _, name := range []string{"order-" + tenant, "other-" + tenant} {
			w.call(http.MethodPost, "/tasks", map[string]any{"type": "report", "key": name, "tenant": tenant})
			w.call(http.MethodPost, "/flows", map[string]any{"key": name, "tenant": tenant, "nodes": []any{node("a", "report")}})
			w.call(http.MethodPost, "/periodics", map[string]any{"name": name, "tenant": tenant, "cron": "@yearly", "type": "report"})
			w.call(http.MethodPost, "/plans", map[string]any{"plan_id": name, "tenant": tenant, "station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": []any{1}})
		}
	}
	token := w.token("viewer", "acme", "blue")
	w = w.closed()
	b.visit(w.url + "/ui/")
	b.run(chromedp.WaitVisible("[name=token]"), chromedp.SendKeys("[name=token]", token), chromedp.Click("form[action$=sign-in] button"), chromedp.WaitVisible("#tenant-of-page"))
	b.run(chromedp.SetValue("#tenant-of-page", "blue")) // which submits
	b.awaits(`location.search.includes("tenant=blue")`)
	for _, x := range []struct{ page, key, field string }{{"Tasks", "t", "key"}, {"Periodic", "r", "name"}, {"Flows", "f", "key"}, {"Plans", "p", "plan_id"}} {
		page, field := x.page, x.field
		b.run(chromedp.Click(`body > nav a[data-key="` + x.key + `"][href$="tenant=blue"]`))
		b.awaits(`document.querySelector("h1")?.textContent.startsWith("` + page + `") && location.search.includes("tenant=blue")`)
		b.fill(`form.filters [name="`+field+`"]`, "order")
		b.run(chromedp.Click("form.filters button.primary"))
		b.awaits(`location.search.includes("` + field + `=order") && document.querySelector("tbody")`)
		text := b.text("tbody")
		require.Contains(t, text, "order-blue", page)
		require.NotContains(t, text, "acme", page)
		require.NotContains(t, text, "other", page)
		b.accessible()
	}
	b.run(chromedp.SendKeys("#find", "order\r"))
	b.awaits(`location.pathname.endsWith("/find")`)
	found := b.text("main")
	require.Equal(t, 5, strings.Count(found, "order-blue"), "%s: a task, a rule, a flow, a plan and the task of its step", found)
	require.NotContains(t, found, "acme")
	b.accessible()
	b.size(1440, 900, false)
	b.picture("find")
	b.run(chromedp.Click(`main a[href*="/flows/blue/"]`, chromedp.ByQuery))
	b.awaits(`location.pathname.endsWith("/flows/blue/order-blue") && document.querySelector("body > nav a[data-key=t]").href.endsWith("tenant=blue")`)
	b.quiet()
}
