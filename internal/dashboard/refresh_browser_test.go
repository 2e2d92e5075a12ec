package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// shownTask makes the stub have one task.
func (s *stub) shownTask(status, args string) {
	s.says("GET /tasks/-/mail/a", `{"id": "-/mail/a", "type": "mail", "key": "a", "status": "`+status+`", "created_at": "2020-01-01T00:00:00Z", "args": `+args+`}`)
	s.says("GET /tasks/-/mail/a/lives", `{"tasks": []}`)
	s.says("PATCH /tasks/-/mail/a", `{}`)
}

// What somebody has left in a dialog is not sent over what somebody else has changed meanwhile.
func TestADialogForgetsWhatWasNotSent(t *testing.T) {
	s, b := stubbed(t, "")
	s.shownTask("New", `{"n": 1}`)
	b.visit(s.url + "/tasks/-/mail/a")
	b.opensDialog("edit")
	b.fill("#edit-args", `{"n": 2}`)
	b.press("Close")
	s.shownTask("New", `{"n": 3}`)
	b.reads()
	b.opensDialog("edit")
	require.JSONEq(t, `{"n": 3}`, b.value("#edit-args"))
	b.fill("#edit-priority", "7")
	b.press("Save")
	b.awaits(`!document.querySelector("#edit").open`)
	b.reads()
	b.opensDialog("edit")
	require.Empty(t, b.value("#edit-priority"), "it has been sent")
	s.fails("PATCH /tasks/-/mail/a", http.StatusConflict, `{"status": 409, "title": "Conflict", "detail": "not now"}`)
	b.fill("#edit-start", "2100-01-01T00:00:00Z")
	b.press("Save")
	require.Equal(t, "not now", b.text("#edit .error"))
	b.press("Close")
	b.awaits(`!document.querySelector("#edit .error")`)
	s.shownTask("New", `{"n": 3}`)
	b.opensDialog("edit")
	b.fill("#edit-start", "2100-01-01T00:00:00Z")
	b.press("Save")
	b.awaits(`!document.querySelector("#edit").open`)
	b.heard("status 409")
	require.Equal(t, []string{`PATCH /tasks/-/mail/a {"priority":7}`, `PATCH /tasks/-/mail/a {"start_time":"2100-01-01T00:00:00Z"}`, `PATCH /tasks/-/mail/a {"start_time":"2100-01-01T00:00:00Z"}`}, s.changes())
	b.quiet()
}

// A form is not taken away while somebody is asked for a confirmation, and what is refused can be read.
func TestARefusalIsReadWhateverThePageHasLearnedMeanwhile(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /tasks", `{"tasks": [{"id": "-/mail/a", "type": "mail", "status": "Pending"}, {"id": "-/mail/b", "type": "mail", "status": "Pending"}]}`)
	s.says("GET /flows", `{"flows": []}`)
	s.says("GET /streams", `{"streams": []}`)
	s.fails("POST /tasks/-/mail/a/resolve", http.StatusConflict, `{"status": 409, "title": "Conflict", "detail": "it waits for nobody"}`)
	b.visit(s.url + "/waiting")
	b.run(chromedp.Evaluate(`window.told = ""; new MutationObserver(() => { window.told += document.body.innerText; }).observe(document.body, {childList: true, subtree: true}); 0`, nil))
	b.run(chromedp.Click(`form[data-call="POST /tasks/-/mail/a/resolve"] button`), chromedp.WaitVisible("#confirm-yes"))
	s.says("GET /tasks", `{"tasks": [{"id": "-/mail/b", "type": "mail", "status": "Pending"}]}`)
	b.reads()
	b.awaits(`document.querySelector('form[data-call="POST /tasks/-/mail/a/resolve"]')`)
	b.run(chromedp.Click("#confirm-yes"))
	b.awaits(`!document.querySelector('form[data-call="POST /tasks/-/mail/a/resolve"]')`) // the page catches up
	b.awaits(`window.told.includes("it waits for nobody")`)
	b.heard("status 409")

	s.fails("POST /tasks/-/mail/b/retry", http.StatusConflict, `{"status": 409, "title": "Conflict", "detail": "not now"}`)
	b.run(chromedp.Click(`form[data-call="POST /tasks/-/mail/b/retry"] button`))
	require.Equal(t, "not now", b.text("form .error"))
	s.says("GET /tasks", `{"tasks": [{"id": "-/mail/b", "type": "mail", "status": "Pending", "error_info": "anew"}]}`)
	b.reads()
	b.shows("anew")
	require.Equal(t, "not now", b.text(`form[data-call="POST /tasks/-/mail/b/retry"] .error`), "at the form that the page has now")
	b.heard("status 409")
	b.quiet()
}

// A part that is read again leaves people where they were.
func TestARefreshKeepsFocusRowScrollAndSearch(t *testing.T) {
	s, b := stubbed(t, "")
	tasks := func(status string) {
		rows := make([]string, 30)
		for i := range rows {
			rows[i] = fmt.Sprintf(`{"id": "-/mail/%d", "type": "mail", "status": "%s", "updated_at": "2020-01-01T00:00:00Z"}`, i, status)
		}
		s.says("GET /tasks", `{"tasks": [`+strings.Join(rows, ",")+`]}`)
	}
	tasks("New")
	b.size(390, 844, false)
	b.visit(s.url + "/tasks")
	b.run(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"),
		chromedp.Evaluate(`document.querySelector('a[href$="/mail/7"]').focus(); document.querySelector("[data-part=tasks] .scroll").scrollLeft = 60; window.row = document.querySelector("tr.here")`, nil))
	tasks("Error")
	b.reads()
	b.awaits(`!window.row.isConnected && document.querySelector("[data-part=tasks]").innerText.includes("Error")`)
	for _, is := range []string{
		`document.activeElement.getAttribute("href").endsWith("/mail/7")`, `document.querySelector("tr.here a").getAttribute("href").endsWith("/mail/1")`,
		`document.querySelector("[data-part=tasks] .scroll").scrollLeft === 60`,
	} {
		var holds bool
		b.run(chromedp.Evaluate(is, &holds))
		require.True(t, holds, is)
	}

	lines := strings.Repeat(`"x", `, 25) + `"needle", ` + strings.Repeat(`"needle in hay", `, 60)
	s.shownTask("New", `[`+lines+`0]`)
	b.visit(s.url + "/tasks/-/mail/a")
	b.fill("#search-Arguments", "needle")
	b.run(chromedp.Evaluate(`document.activeElement.blur(); document.querySelector(".tree").scrollTop = 40; window.tree = document.querySelector(".tree"); window.words = document.querySelector("time").firstChild; showTimes(); window.words.isConnected`, nil))
	var kept bool
	b.run(chromedp.Evaluate(`window.words.isConnected`, &kept))
	require.True(t, kept, "a time that reads as before is not written again")
	s.shownTask("New", `[`+lines+`1]`)
	b.reads()
	b.awaits(`!window.tree.isConnected`)
	for _, is := range []string{`document.querySelector(".tree li").hidden`, `document.querySelectorAll(".tree li.found").length === 61`, `document.querySelector(".tree").scrollTop === 40`} {
		var holds bool
		b.run(chromedp.Evaluate(is, &holds))
		require.True(t, holds, is)
	}
	b.quiet()
}

// Over plain HTTP, away from localhost, browsers have no clipboard for pages.
func TestAValueIsSelectedWhereItCannotBeCopied(t *testing.T) {
	s, b := stubbed(t, "")
	s.shownTask("New", `{"to": "ann & bob <ab@example.org>"}`)
	b.visit(s.url + "/tasks/-/mail/a")
	b.run(chromedp.Evaluate(`Object.defineProperty(navigator, "clipboard", {value: undefined}); 0`, nil), chromedp.Click("[data-copy]"))
	b.awaits(`document.activeElement.matches(".source") && getSelection().toString().includes('"ann & bob <ab@example.org>"')`)
	b.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.awaits(`document.querySelector(".source").hidden`)
	b.fill("#search-Arguments", "ann & bob <")
	b.awaits(`document.querySelectorAll(".tree li.found").length === 1`)
	b.quiet()
}
