package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A first task is made by the form and the YAML beside it, and errors of the API are at their fields.
func TestATaskIsSentByFormAndYAML(t *testing.T) {
	w, b := browse(t)
	b.looks("send", w.url+"/ui/tasks/new")
	b.visit(w.url + "/ui/tasks/new?type=mail")
	b.awaits(`document.getElementById("f-type").value === "mail"`)
	b.press("More")
	b.run(chromedp.SendKeys("#f-priority", "12"))
	b.awaits(`document.getElementById("source").value.includes("priority: 12")`)
	b.run(chromedp.Click("form#editor button.primary"))
	require.Contains(t, b.text("#f-priority + .error"), "want 0 to 9")
	b.heard("status 422")

	b.fill("#source", "type: mail\nkey: a b/c\nargs: {to: ann, n: [1, 2]}\npriority: 3\n")
	b.awaits(`document.getElementById("f-key").value === "a b/c"`)
	b.run(chromedp.Click("form#editor button.primary"))
	b.awaits(`location.pathname === "/ui/tasks/-/mail/a%20b/c"`)
	task := w.call(http.MethodGet, "/tasks/-/mail/a%20b%2Fc", nil)
	require.EqualValues(t, 3, task["priority"])
	require.Equal(t, map[string]any{"to": "ann", "n": []any{1.0, 2.0}}, task["args"])
	b.quiet()
}

func TestABrokenYAMLIsToldWithItsLine(t *testing.T) {
	w := newWorld(t)
	status, out := w.raw(http.MethodPost, "/ui/text/json", "type: mail\nargs: [1, 2\nkey: a\n")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, out["error"], "line 3: ")
	_, out = w.raw(http.MethodPost, "/ui/text/json", "# nothing yet\n")
	require.Equal(t, "{}", out["text"])
	_, out = w.raw(http.MethodPost, "/ui/text/json", "a: 1\n---\nb: 2\n")
	require.Contains(t, out["error"], "a second document begins here")
	_, out = w.raw(http.MethodPost, "/ui/text/yaml", `{"type":"mail","args":{"z":1,"a":"yes"}}`)
	require.Equal(t, "type: mail\nargs:\n  z: 1\n  a: \"yes\"\n", out["text"])
}

// A rule is edited after its dry run, and not over an edit that somebody else has made meanwhile.
func TestARuleIsEditedAfterADryRun(t *testing.T) {
	w, b := browse(t)
	w.call(http.MethodPost, "/periodics", map[string]any{"name": "night ly", "cron": "0 3 * * *", "type": "report", "enabled": true})
	at := w.url + "/ui/periodics/-/night%20ly/edit"
	b.looks("rule-edit", at)
	b.visit(at)
	b.awaits(`document.getElementById("f-cron").value !== ""`)
	b.fill("#f-cron", "15 4 * * *")
	b.awaits(`document.getElementById("source").value.includes("15 4 * * *")`)
	b.run(chromedp.Click("#editor-preview"))
	require.Contains(t, b.text("#previewed-title"), "It would be changed")
	require.Contains(t, b.text("#previewed-text"), "15 4 * * *")
	require.NotContains(t, w.call(http.MethodGet, "/periodics/-/night%20ly", nil)["cron"], "15 4", "a dry run stores nothing")

	w.call(http.MethodPut, "/periodics/-/night%20ly", map[string]any{"name": "night ly", "cron": "0 5 * * *", "type": "report", "enabled": true})
	b.run(chromedp.Click("form#editor button.primary"), chromedp.WaitVisible("#editor-errors li"))
	b.heard("status 412")
	b.visit(at)
	b.awaits(`document.getElementById("f-cron").value !== ""`)
	b.fill("#f-cron", "15 4 * * *")
	b.awaits(`document.getElementById("source").value.includes("15 4 * * *")`)
	b.run(chromedp.Click("form#editor button.primary"))
	b.awaits(`location.pathname === "/ui/periodics/-/night%20ly"`)
	require.Contains(t, w.call(http.MethodGet, "/periodics/-/night%20ly", nil)["cron"], "15 4 * * *")
	b.quiet()
}
