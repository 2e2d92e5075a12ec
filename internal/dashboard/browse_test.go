package dashboard_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func (w *world) seedTasks() {
	w.t.Helper()
	w.work()
	send := func(typ, key string, body map[string]any) {
		task := map[string]any{"type": typ, "key": key, "args": map[string]any{"to": "ann@example.org", "lines": []any{1, 2, 3}}}
		for k, v := range body {
			task[k] = v
		}
		w.call(http.MethodPost, "/tasks", task)
	}
	for i := range 12 {
		send("report", fmt.Sprintf("2026-%02d", i+1), nil)
	}
	send("mail", "welcome-17", map[string]any{"options": map[string]any{"retry": map[string]any{"strategy": "fixed", "interval": "1ms", "max_errors": 2}}})
	send("mail", "invoice-4", map[string]any{"options": map[string]any{"need_manual": true, "retry": map[string]any{"strategy": "none"}}})
	send("crawl", "example.org", nil)
	send("report", "later", map[string]any{"in": "3h"})
	w.await("/tasks/-/mail/welcome-17", hasStatus("Failure"))
	w.await("/tasks/-/mail/invoice-4", hasStatus("Pending"))
	w.await("/tasks/-/crawl/example.org", hasStatus("Executing"))
	w.await("/tasks/-/report/2026-12", hasStatus("Success"))
}

func TestTheTaskPagesLookRightAndTheirActionsWork(t *testing.T) {
	w, b := browse(t)
	w.seedTasks()
	b.looks("tasks", w.url+"/ui/tasks")
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "report", "key": "while it is shown"})
	b.awaits(`document.querySelector('[data-part=tasks]').textContent.includes("while it is shown")`) // without a reload
	b.looks("task", w.url+"/ui/tasks/-/mail/welcome-17")

	b.visit(w.url + "/ui/tasks/-/mail/invoice-4")
	b.run(chromedp.Click(`[data-opens="resolve"]`), chromedp.SendKeys("#resolve-remark", "sent by hand"), chromedp.Click(`#resolve button.primary`))
	b.awaits(`document.querySelector('[data-part=head] .badge').textContent.includes("ManuallyProcessed")`)
	require.Equal(t, "sent by hand", w.call(http.MethodGet, "/tasks/-/mail/invoice-4", nil)["remark"])
	b.quiet()
}
