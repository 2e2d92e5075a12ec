package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/server"
)

// visitor is a browser without scripts, which keeps cookies.
type visitor struct {
	t      *testing.T
	base   string
	client *http.Client
}

func (w *world) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	return &visitor{w.t, w.url + "/ui", &http.Client{Jar: jar}}
}

// got is an answer.
type got struct {
	StatusCode int
	Header     http.Header
	At         *url.URL       // the page, after redirects
	Location   string         // where it leads, if redirects are not followed
	Set        []*http.Cookie // by the redirect to the page
}

func (v *visitor) send(method, path, body string, header ...string) (got, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	require.NoError(v.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := v.client.Do(r)
	require.NoError(v.t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	require.NoError(v.t, res.Body.Close())
	out := got{StatusCode: res.StatusCode, Header: res.Header, At: res.Request.URL, Location: res.Header.Get("Location")}
	if before := res.Request.Response; before != nil {
		out.Set = before.Cookies()
	}
	return out, string(text)
}

func (v *visitor) signIn(token, to string) (got, string) {
	v.t.Helper()
	return v.send(http.MethodPost, "/sign-in", url.Values{"token": {token}, "to": {to}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// token makes a token; the first one is made while none is needed.
func (w *world) token(role string, tenants ...string) string {
	w.t.Helper()
	body := map[string]any{"name": role, "role": role}
	if len(tenants) > 0 {
		body["tenants"] = tenants
	}
	return w.call(http.MethodPost, "/tokens", body)["token"].(string)
}

// closed is another server of the database, which wants a token from everybody.
func (w *world) closed() *world {
	w.t.Helper()
	return newWorld(w.t, func(c *server.Config) { c.Database, c.NoTokens = w.db, false })
}

func TestWhoHasNoTokenSignsInAndComesBackToThePage(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "a"})
	viewer := w.token("viewer")
	v := w.closed().visitor()

	res, text := v.send(http.MethodGet, "/tasks?type=mail", "")
	require.Equal(t, "/ui/sign-in", res.At.Path)
	require.Equal(t, "/ui/tasks?type=mail", res.At.Query().Get("to"))
	require.NotContains(t, text, "-/mail/a", "what is not for strangers")

	res, text = v.signIn("ms_wrong_wrong", "/ui/tasks?type=mail")
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
	require.Contains(t, text, "The token is not valid")
	require.Empty(t, res.Header.Values("Set-Cookie"))

	res, text = v.signIn(viewer, "/ui/tasks?type=mail")
	require.Equal(t, "/ui/tasks", res.At.Path)
	require.Contains(t, text, "-/mail/a")

	set := res.Set[0]
	require.True(t, set.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, set.SameSite)
	require.Equal(t, "/ui/", set.Path)

	res, _ = v.send(http.MethodPost, "/sign-out", "")
	require.Equal(t, "/ui/sign-in", res.At.Path)
	res, _ = v.send(http.MethodGet, "/tasks", "")
	require.Equal(t, "/ui/sign-in", res.At.Path)
}

func TestSignInLeadsToPagesOfTheDashboardOnly(t *testing.T) {
	w := newWorld(t)
	token := w.token("viewer")
	for _, to := range []string{"", "https://example.org/", "//example.org/", "/ui//example.org", "/ui/..", "/ui/../\\example.org", "/ui/..%2F%5Cexample.org", "/ui/a\\b", "/ui/%2e%2e/x", "/ui/a/%2E%2e/%2e./x", "/api/v1/tasks", "javascript:alert(1)"} {
		v := w.visitor()
		v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		res, _ := v.signIn(token, to)
		require.Equal(t, http.StatusSeeOther, res.StatusCode, to)
		at, err := url.Parse(res.Location)
		require.NoError(t, err)
		require.Empty(t, at.Host, to)
		require.True(t, strings.HasPrefix(at.Path, "/ui/"), "%s leads to %s", to, at)
		require.NotContains(t, res.Location, "\\", to)
	}
}

func TestSignInLeadsBackToAnIdWithSlashesAndDots(t *testing.T) {
	w := newWorld(t)
	token := w.token("viewer")
	for _, to := range []string{"/ui/tasks/-/t/a%2F%2Fb", "/ui/tasks/-/t/a%2F..%2Fb?generation=1", "/ui/", "/ui/tasks/-/t/%2e%2Eb"} {
		v := w.visitor()
		v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		res, _ := v.signIn(token, to)
		require.Equal(t, to, res.Location)
	}
}

// What a role may not do is not offered, and refused.
func TestARoleIsOfferedWhatItMayDo(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "a"})
	tokens := map[string]string{}
	for _, role := range []string{"viewer", "operator", "admin"} {
		tokens[role] = w.token(role)
	}
	w = w.closed()
	for role, may := range map[string]bool{"viewer": false, "operator": true, "admin": true} {
		v := w.visitor()
		v.signIn(tokens[role], "/ui/")
		for page, offer := range map[string]string{"/tasks": "Send a task", "/tasks/-/mail/a": `data-opens="cancel"`} {
			res, text := v.send(http.MethodGet, page, "")
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, may, strings.Contains(text, offer), "%s, %s: %s", role, page, offer)
		}
		res, text := v.send(http.MethodPost, "/api/tasks", `{"type":"mail","key":"`+role+`"}`, "Content-Type", "application/json")
		require.Equal(t, may, res.StatusCode == http.StatusCreated, text)
		if !may {
			require.Equal(t, http.StatusForbidden, res.StatusCode, text)
		}
	}
}

func TestATokenOfATenantSeesNothingOfOthers(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "ours", "tenant": "acme"})
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "theirs", "tenant": "other"})
	token := w.token("operator", "acme")
	v := w.closed().visitor()
	v.signIn(token, "/ui/")
	for _, page := range []string{"/", "/tasks", "/bulk"} {
		res, text := v.send(http.MethodGet, page, "")
		require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", page, text)
		require.NotContains(t, text, "theirs")
	}
	_, text := v.send(http.MethodGet, "/tasks", "")
	require.Contains(t, text, "acme/mail/ours")
	res, _ := v.send(http.MethodGet, "/tasks/other/mail/theirs", "")
	require.Equal(t, http.StatusNotFound, res.StatusCode)
	res, text = v.send(http.MethodGet, "/download/tasks.jsonl", "")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, 1, strings.Count(text, "\n"), text)
}

// listLinks are the links to lists and to the overview.
var listLinks = regexp.MustCompile(`href="((?:/ui/(?:|tasks|bulk|periodics|runs|flows|plans|waiting|events|audit))?(?:\?[^"]*)?)"`)

func TestATokenOfSeveralTenantsSeesOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	for _, tenant := range []string{"acme", "blue"} {
		w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "of-" + tenant, "tenant": tenant})
		for status, typ := range map[string]string{"Pending": "mail", "Failure": "mscheduler.callback"} {
			_, err := w.db.Collection("tasks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: tenant + "/" + typ + "/" + status}, {Key: "tenant", Value: tenant}, {Key: "type", Value: typ}, {Key: "key", Value: status}, {Key: "status", Value: status}, {Key: "rev", Value: int64(1)}, {Key: "finished_at", Value: time.Now()}})
			require.NoError(t, err)
		}
	}
	token := w.token("viewer", "acme", "blue")
	v := w.closed().visitor()
	v.signIn(token, "/ui/")
	for query, want := range map[string]string{"": "of-acme", "?tenant=blue": "of-blue"} {
		res, text := v.send(http.MethodGet, "/tasks"+query, "")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Contains(t, text, want)
		res, _ = v.send(http.MethodGet, "/"+query, "")
		require.Equal(t, http.StatusOK, res.StatusCode)
		_, text = v.send(http.MethodGet, "/download/tasks.csv"+query, "")
		require.Contains(t, text, want)
		for _, page := range []string{"/", "/tasks", "/bulk", "/periodics", "/runs", "/flows", "/plans", "/waiting", "/events", "/find"} {
			res, text := v.send(http.MethodGet, page+query, "")
			require.Equal(t, http.StatusOK, res.StatusCode, "%s: %s", page, text)
			if query != "" {
				require.Contains(t, text, `<a href="/ui/tasks?tenant=blue"`, "%s: the navigation keeps the tenant", page)
				_, main, _ := strings.Cut(text, "<main")
				for _, link := range listLinks.FindAllStringSubmatch(main, -1) {
					require.Contains(t, link[1], "tenant=blue", "%s: links to lists keep the tenant", page)
				}
			}
			for _, live := range regexp.MustCompile(`data-live="[^"]*"`).FindAllString(text, -1) {
				require.Contains(t, live, "tenant="+strings.TrimPrefix(want, "of-"), "%s follows what it shows", page)
			}
		}
	}
	_, text := v.send(http.MethodGet, "/?tenant=blue", "")
	for _, need := range []string{`href="/ui/tasks?status=Pending&amp;tenant=blue"`, `href="/ui/tasks?status=Failure&amp;tenant=blue&amp;type=mscheduler.callback"`} {
		require.Contains(t, text, need)
	}
	_, text = v.send(http.MethodGet, "/tasks/blue/mail/of-blue", "")
	require.Contains(t, text, `<a href="/ui/flows?tenant=blue"`, "the tenant of what the page is about")
}

func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	w := newWorld(t)
	v := w.visitor()
	for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		res, _ := v.send(http.MethodPost, "/api/tasks", `{"type":"mail"}`, append(header, "Content-Type", "application/json")...)
		require.Equal(t, http.StatusForbidden, res.StatusCode, header)
		res, _ = v.send(http.MethodPost, "/sign-in", "token=x", append(header, "Content-Type", "application/x-www-form-urlencoded")...)
		require.Equal(t, http.StatusForbidden, res.StatusCode, header)
	}
	require.Empty(t, w.call(http.MethodGet, "/tasks", nil)["tasks"])
	res, _ := v.send(http.MethodGet, "/", "")
	require.Contains(t, res.Header.Get("Content-Security-Policy"), "script-src 'self'")
	require.NotContains(t, res.Header.Get("Content-Security-Policy"), "unsafe")
}

// Nobody without a token has the server read a large form, or convert texts.
func TestStrangersMakeNoWork(t *testing.T) {
	w := newWorld(t)
	w.token("admin")
	v := w.closed().visitor()
	res, _ := v.send(http.MethodPost, "/sign-in", "token="+strings.Repeat("x", 1<<20), "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	res, _ = v.send(http.MethodPost, "/text/json", "a: 1")
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
}

// A proxy that signs people in sends a token of its own, which an old cookie does not displace.
func TestATokenOfAProxyGoesBeforeTheCookie(t *testing.T) {
	w := newWorld(t)
	viewer, admin := w.token("viewer"), w.token("admin")
	v := w.closed().visitor()
	v.signIn(viewer, "/ui/")
	_, text := v.send(http.MethodGet, "/tasks", "", "Authorization", "Bearer "+admin)
	require.Contains(t, text, "Send a task")
	_, text = v.send(http.MethodGet, "/tasks", "", "Authorization", "Basic eDp5")
	require.NotContains(t, text, "Send a task", "the cookie, where the proxy sends something else")
}

func TestAPastLifeOffersNoAction(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "a"})
	first := w.call(http.MethodPost, "/tasks/-/mail/a/cancel", nil)
	w.call(http.MethodPost, "/tasks/-/mail/a/retry", nil)
	_, text := w.page("/tasks?history=only&type=mail")
	require.Contains(t, text, "past life")
	require.NotContains(t, text, `name="row"`)
	require.NotContains(t, text, `data-call="POST /bulk"`)
	_, text = w.page(fmt.Sprintf("/tasks/-/mail/a?generation=%.0f", first["generation"]))
	require.NotContains(t, text, `data-opens`)
	require.NotContains(t, text, "What happens next", "that is the newest life's")
}

// Text that looks like HTML stays text, in every field.
func TestTextThatLooksLikeHTMLStaysText(t *testing.T) {
	w := newWorld(t)
	evil := `<script>alert(1)</script>"><img src=x onerror=alert(2)>`
	w.call(http.MethodPost, "/tasks", map[string]any{
		"type": "mail", "key": evil, "creator": evil, "category": evil, "args": map[string]any{evil: evil}, "held": true,
	})
	w.call(http.MethodPost, "/tasks/-/mail/"+url.PathEscape(evil)+"/cancel", map[string]any{"remark": evil})
	for _, page := range []string{"/", "/tasks", "/tasks/-/mail/" + url.PathEscape(evil), "/tasks?type=" + url.QueryEscape(evil), "/find?q=" + url.QueryEscape(evil), "/" + url.PathEscape(evil), "/sign-in?to=" + url.QueryEscape(evil), "/tasks/new?type=" + url.QueryEscape(evil)} {
		_, text := w.page(page)
		require.NotContains(t, text, "<script>alert", page)
		require.NotContains(t, text, "<img src=x", page)
	}
	_, text := w.page("/tasks/-/mail/" + url.PathEscape(evil))
	require.Contains(t, text, "&lt;script&gt;alert(1)", "the page shows it")
}
