package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/dashboard"
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
	b.awaits(`location.pathname === "/ui/tasks/-/mail/a%20b%2Fc"`)
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

// A number that JavaScript cannot hold is sent as it was typed.
func TestArgumentsAreEditedDigitByDigit(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /tasks/-/mail/a", `{"id": "-/mail/a", "type": "mail", "status": "New", "args": {"id": 9007199254740993, "to": "ann"}}`)
	s.says("GET /tasks/-/mail/a/lives", `{"tasks": []}`)
	s.says("PATCH /tasks/-/mail/a", `{}`)
	b.visit(s.url + "/tasks/-/mail/a")
	b.opensDialog("edit")
	b.fill("#edit-args", `{"id": 9007199254740993, "to": "bob", "most": 1e400, "dq": "\""}`)
	b.fill("#edit-priority", "7")
	b.run(chromedp.Click("#edit button.primary"))
	b.awaits(`!document.querySelector("#edit").open`)
	require.Equal(t, []string{`PATCH /tasks/-/mail/a {"priority":7,"args":{"id": 9007199254740993, "to": "bob", "most": 1e400, "dq": "\""}}`}, s.changes())
	b.opensDialog("edit")
	b.fill("#edit-args", `{"id": 1`)
	b.run(chromedp.Click("#edit button.primary"))
	require.Contains(t, b.text("#edit-args + .error"), "is no JSON")
	require.Len(t, s.changes(), 1)
	for text, want := range map[string]bool{
		`[123456789012345, 0.000000000000000001, 1e300, "9007199254740993", "\"1e400", 0e9]`: false,
		`{"a": 9007199254740993}`: true, `[1e400]`: true, `-1e-400`: true, `0.12345678901234567`: true, `"\\", 1234567890123456`: true,
	} {
		var is bool
		b.run(chromedp.Evaluate("tooLarge("+strconv.Quote(text)+")", &is))
		require.Equal(t, want, is, text)
	}
	b.quiet()
}

// Slashes and dots in the last part of an id are part of it.
func TestWhatIsSentIsShownWhateverItsKey(t *testing.T) {
	for _, mount := range []string{"", "/scheduler"} {
		t.Run("below "+mount, func(t *testing.T) {
			s, b := stubbed(t, mount)
			s.says("GET /workers", `{"workers": []}`)
			for _, key := range []string{"https://e.org/x", "a/../b", "./c"} {
				id := "-/mail/" + key
				at := "/tasks/-/mail/" + url.PathEscape(key)
				s.says("POST /tasks", `{"id": "`+id+`"}`)
				s.says("GET "+at, `{"id": "`+id+`", "type": "mail", "key": "`+key+`", "status": "New"}`)
				s.says("GET "+at+"/lives", `{"tasks": []}`)
				b.visit(s.url + "/tasks/new?type=mail")
				b.awaits(`document.getElementById("f-type").value === "mail"`)
				b.run(chromedp.Click("form#editor button.primary"))
				b.awaits(`location.pathname.includes("/tasks/-/") && document.querySelector("h1")?.textContent === "` + id + `"`)
			}
			b.quiet()
		})
	}
}

func TestAPathThatIsNotCleanStaysBelowTheMount(t *testing.T) {
	d := dashboard.New(dashboard.Config{API: answers{}, Mount: "/scheduler"})
	for from, to := range map[string]string{"/scheduler/ui/tasks//x?a=%2F": "/scheduler/ui/tasks/x?a=%2F", "/scheduler/ui/./tasks": "/scheduler/ui/tasks", "/scheduler/ui/a%2F%2Fb//c/": "/scheduler/ui/a%2F%2Fb/c"} {
		r := httptest.NewRecorder()
		d.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, from, nil))
		require.Equal(t, http.StatusMovedPermanently, r.Code, from)
		require.Equal(t, to, r.Header().Get("Location"))
	}
}

func TestTheEditorTellsThatTheSessionHasEnded(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /workers", `{"workers": []}`)
	s.says("POST /tasks", `{"id": "-/mail/a"}`)
	s.shownTask("New", `{}`)
	b.visit(s.url + "/tasks/new?type=mail")
	b.awaits(`document.getElementById("f-type").value === "mail"`)
	s.fails("GET /me", http.StatusUnauthorized, `{"status": 401, "title": "Unauthorized", "detail": "a token is required"}`)
	b.fill("#source", "type: mail\nkey: a\n")
	b.awaits(`document.querySelector("#source-error").textContent.includes("signed out") && document.querySelector("#signed-out")`)
	b.run(chromedp.Click("form#editor button.primary"))
	require.Contains(t, b.text("#editor-errors"), "signed out")
	b.accessible()
	s.fails("GET /me", http.StatusServiceUnavailable, `{"status": 503, "title": "Not available", "detail": "the database does not answer"}`)
	b.run(chromedp.Click("form#editor button.primary"))
	b.awaits(`document.querySelector("#editor-errors").textContent.includes("the database does not answer")`)
	b.fill("#f-in", "5m")
	b.awaits(`document.querySelector("#source-error").textContent.includes("the database does not answer")`)
	require.Empty(t, s.changes())

	s.says("GET /me", ann)
	b.run(chromedp.Click("form#editor button.primary"))
	b.awaits(`location.pathname === "/ui/tasks/-/mail/a"`)
	require.Equal(t, []string{`POST /tasks {"type":"mail","key":"a","in":"5m"}`}, s.changes())
	b.heard("status 401")
	b.heard("status 503")
	b.quiet()
}

func TestAFirstTextNamesTheTenant(t *testing.T) {
	api := answers{"/api/v1/me": `{"name": "ann", "role": "operator", "tenants": ["acme", "blue"]}`, "/api/v1/workers": `{"workers": []}`}
	for _, page := range []string{"/tasks/new", "/periodics/new", "/flows/new", "/plans/new"} {
		require.Contains(t, api.shown(t, page+"?tenant=blue"), "tenant: &#34;blue&#34;\n", page)
		require.Contains(t, api.shown(t, page), "tenant: &#34;acme&#34;\n", page)
	}
	api["/api/v1/me"] = ann
	for _, page := range []string{"/tasks/new", "/periodics/new?tenant=-"} {
		require.NotContains(t, api.shown(t, page), "tenant: ", page)
	}
}
