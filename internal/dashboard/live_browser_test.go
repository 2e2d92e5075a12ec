package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/dashboard"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// The first token closes the server to the page that shows it.
func TestATokenStaysShownWhenTheSessionEnds(t *testing.T) {
	w, b := browse(t)
	b.visit(w.url + "/ui/access")
	b.opensDialog("new-token")
	b.run(chromedp.SendKeys("#token-name", "first"), chromedp.SetValue("#token-role", "admin"), chromedp.Click("#create-token button.primary"), chromedp.WaitVisible("#minted"))
	token := b.value("#minted-text")
	require.NotEmpty(t, token)
	v := w.visitor()
	v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	testdb.Eventually(t, "strangers must sign in", func() bool {
		res, _ := v.send(http.MethodGet, "/access", "")
		return res.StatusCode == http.StatusSeeOther
	})
	b.run(chromedp.Evaluate(`document.dispatchEvent(new Event("visibilitychange"))`, nil))
	require.Contains(t, b.text("#signed-out"), "You are signed out.")
	require.Equal(t, token, b.value("#minted-text"))
	var to string
	b.run(chromedp.Evaluate(`document.querySelector("#signed-out a").pathname`, &to))
	require.Equal(t, "/ui/sign-in", to)
	b.reads()
	b.awaits(`document.querySelectorAll("#signed-out").length === 1`)
	b.accessible()
	b.quiet()
}

func TestAPageThatPollsSaysWhenItIsStale(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /bulk", `{"jobs": []}`)
	b.visit(s.url + "/bulk")
	require.Equal(t, "live", b.text("#live"))
	s.fails("GET /bulk", http.StatusServiceUnavailable, `{"status": 503, "title": "Not available"}`)
	b.reads()
	require.Equal(t, "not live", b.text("#live"))
	s.says("GET /bulk", `{"jobs": []}`)
	b.reads()
	require.Equal(t, "live", b.text("#live"))
	b.heard("status 503")
	b.quiet()
}

// A page that follows events and also polls is live again by its stream, not by a read.
func TestAPageThatFollowsEventsIsLiveByItsStream(t *testing.T) {
	s, b := stubbed(t, "")
	s.fails("GET /events", http.StatusServiceUnavailable, `{"status": 503, "title": "Not available"}`)
	s.says("GET /periodics", `{"rules": []}`)
	b.visit(s.url + "/periodics")
	b.awaits(`document.querySelector("#live").textContent === "not live"`)
	b.reads()
	require.Equal(t, "not live", b.text("#live"))
	s.says("GET /events", ": here\n\n")
	b.awaits(`document.querySelector("#live").textContent === "live"`)
	b.heard("status 503")
	b.quiet()
}

func TestEventsThatAreRefusedAreAskedForAgain(t *testing.T) {
	s, b := stubbed(t, "")
	s.fails("GET /events", http.StatusServiceUnavailable, `{"status": 503, "title": "Not available", "detail": "change streams are not available."}`)
	b.visit(s.url + "/events")
	b.awaits(`document.querySelector("#events-none").textContent === "Events cannot be followed: change streams are not available. Trying again every 10 s."`)
	require.Equal(t, "not live", b.text("#events-state"))
	b.accessible()
	s.says("GET /events", "event: sent\ndata: {\"kind\": \"sent\", \"task_id\": \"-/mail/a//b\", \"status\": \"New\"}\n\n")
	b.awaits(`document.querySelector("#events tbody a")?.getAttribute("href") === "/ui/tasks/-/mail/a%2F%2Fb"`)
	require.Equal(t, "live", b.text("#events-state"))
	b.awaits(`document.querySelector("#events-none").hidden && document.querySelector("#events-none").textContent.startsWith("Nothing has happened")`)
	b.heard("status 503")
	b.quiet()
}

// Whether streams of events are there or not, the list of tasks is not older than a quarter of a minute.
func TestTheListOfTasksIsReadAgainWithoutEvents(t *testing.T) {
	w := newWorld(t)
	_, text := w.page("/tasks")
	require.Contains(t, text, `data-poll="15"`)
}

// A page that is signed out does not use up the failed sign-ins of its address. It goes on when somebody comes back.
func TestAPageThatIsSignedOutAsksForNothing(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /periodics", `{"rules": []}`)
	b.visit(s.url + "/periodics")
	b.awaits(`source?.readyState === EventSource.OPEN`)
	for _, request := range []string{"GET /me", "GET /events"} {
		s.fails(request, http.StatusUnauthorized, `{"status": 401, "title": "Unauthorized"}`)
	}
	b.reads()
	b.awaits(`document.querySelector("#signed-out") && document.querySelector("#live").textContent === "not live"`)
	b.run(chromedp.Evaluate(`listen(); poll(); 0`, nil))
	b.awaits(`source === null && !reading`)
	s.says("GET /me", `{"name": "ann", "role": "admin"}`)
	s.says("GET /events", ": here\n\n")
	b.run(chromedp.Evaluate(`dispatchEvent(new Event("focus"))`, nil))
	b.awaits(`!document.querySelector("#signed-out") && document.querySelector("#live").textContent === "live"`)

	s.fails("GET /events", http.StatusUnauthorized, `{"status": 401, "title": "Unauthorized"}`)
	b.visit(s.url + "/events?type=a%26b")
	b.awaits(`document.querySelector("#signed-out a")?.getAttribute("href") === "/ui/sign-in?to=%2Fui%2Fevents%3Ftype%3Da%2526b"`)
	s.says("GET /events", "event: sent\ndata: {\"id\": \"x\"}\n\n")
	b.run(chromedp.Evaluate(`dispatchEvent(new Event("focus"))`, nil))
	b.awaits(`!document.querySelector("#signed-out") && document.querySelector("#events tbody tr")`)
	b.heard("status 401")
	b.quiet()
}

func TestAPageThatOnlyFollowsEventsSaysThatItIsSignedOut(t *testing.T) {
	s, b := stubbed(t, "")
	s.says("GET /flows", `{"flows": []}`)
	s.fails("GET /events", http.StatusServiceUnavailable, `{}`)
	b.visit(s.url + "/flows")
	b.awaits(`source === null && !reading`)
	for _, request := range []string{"GET /me", "GET /events"} {
		s.fails(request, http.StatusUnauthorized, `{"status": 401, "title": "Unauthorized"}`)
	}
	b.run(chromedp.Evaluate(`listen(); 0`, nil))
	b.awaits(`document.querySelector("#signed-out")`)
	b.heard("status 401")
	b.heard("status 503")
	b.quiet()
}

func TestEventsTellThatASessionHasEnded(t *testing.T) {
	for status, want := range map[int]int{http.StatusUnauthorized: http.StatusUnauthorized, http.StatusForbidden: http.StatusServiceUnavailable, http.StatusServiceUnavailable: http.StatusServiceUnavailable} {
		r := httptest.NewRecorder()
		api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		dashboard.New(dashboard.Config{API: api}).ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ui/live", nil))
		require.Equal(t, want, r.Code)
	}
}
