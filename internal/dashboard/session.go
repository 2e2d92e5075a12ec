package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// cookie has the viewer's token. Scripts cannot read it, other sites cannot use it, and it ends with the browser.
const cookie = "mscheduler_token"

// viewer is who asks for a page.
type viewer struct {
	Name    string
	Role    string
	Tenants []string // nil = every tenant
	Open    bool     // there is no token yet: everybody may do everything
	SignIn  bool     // by this browser
}

// roles from the one that may do least.
var roles = []string{"viewer", "operator", "admin"}

// May reports whether the viewer has the role, or one that includes it.
func (w viewer) May(role string) bool {
	for _, r := range roles {
		if r == role {
			return w.Role != "" && w.Role != "worker"
		}
		if r == w.Role {
			return false
		}
	}
	return false
}

// identify asks the API who the viewer is.
func (v *visit) identify() error {
	me, err := v.get("/me", nil)
	if err != nil {
		return err
	}
	v.who = viewer{Name: text(me["name"]), Role: text(me["role"]), Open: me["open"] == true, SignIn: tokenOf(v.r) != ""}
	for _, t := range list(me["tenants"]) {
		v.who.Tenants = append(v.who.Tenants, text(t))
	}
	return nil
}

// ofTenant is a query about one tenant, where the viewer's token has several and the page names none: its first one.
// Lists and summaries of the API are about one.
func (v *visit) ofTenant(q url.Values) url.Values {
	if len(v.who.Tenants) > 1 && q.Get("tenant") == "" {
		q.Set("tenant", cmp.Or(v.chosenTenant(), v.who.Tenants[0]))
	}
	return q
}

// ofOneTenant is ofTenant for a query that must name a tenant: where the page names none, and the viewer has none, it is
// about what has no tenant.
func (v *visit) ofOneTenant(q url.Values) url.Values {
	if v.ofTenant(q).Get("tenant") == "" {
		q.Set("tenant", append(v.who.Tenants, "-")[0])
	}
	return q
}

// chosenTenant is the tenant that a viewer of several has chosen: by the query of the page, or by what it is about.
// The navigation keeps it.
func (v *visit) chosenTenant() string {
	if len(v.who.Tenants) < 2 {
		return ""
	}
	return cmp.Or(v.r.URL.Query().Get("tenant"), v.r.PathValue("tenant"))
}

// ofChosen is the query of a page that keeps the chosen tenant.
func (v *visit) ofChosen(q url.Values) url.Values {
	if tenant := v.chosenTenant(); tenant != "" {
		q.Set("tenant", tenant)
	}
	return q
}

// tokenOf is the token of a request's cookie.
func tokenOf(r *http.Request) string {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	return c.Value
}

// authorize gives a request to the API the token of the page's request. One with a token in the header
// Authorization, such as behind a proxy that signs people in, keeps that.
func authorize(r, from *http.Request) {
	kind, _, _ := strings.Cut(from.Header.Get("Authorization"), " ")
	if token := tokenOf(from); token != "" && !strings.EqualFold(kind, "Bearer") {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// toSignIn sends the browser to the page where people sign in, and back when they have.
func (v *visit) toSignIn() {
	back := url.Values{}
	if v.r.Method == http.MethodGet {
		back.Set("to", v.r.URL.RequestURI())
	}
	http.Redirect(v.w, v.r, v.at("/sign-in", back), http.StatusSeeOther)
}

func (d *Dashboard) showSignIn(w http.ResponseWriter, r *http.Request) {
	v := &visit{d: d, w: w, r: r}
	v.renderAs(http.StatusOK, "signin", page{Title: "Sign in", Data: document{"to": r.URL.Query().Get("to")}})
}

// mostSignIn bounds the form of a sign-in: a token of an identity provider has some KiB.
const mostSignIn = 64 << 10

// signIn checks the token of the form with the API, which also limits the attempts, and keeps it in the cookie.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	v := &visit{d: d, w: w, r: r}
	r.Body = http.MaxBytesReader(w, r.Body, mostSignIn)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	asking := r.Clone(r.Context())
	asking.Header.Del("Cookie")
	asking.AddCookie(&http.Cookie{Name: cookie, Value: token})
	err := (&visit{d: d, w: w, r: asking}).identify()
	if strings.ContainsAny(token, " ;,\"\\") || token == "" {
		err = &problem{Status: http.StatusUnauthorized, Detail: "a token is required"}
	}
	if err != nil {
		p := problemOf(err)
		v.renderAs(p.Status, "signin", page{Title: "Sign in", Data: document{"to": r.PostForm.Get("to"), "problem": p}})
		return
	}
	http.SetCookie(w, d.cookieOf(r, token))
	http.Redirect(w, r, v.at(within(r.PostForm.Get("to")), nil), http.StatusSeeOther)
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	gone := d.cookieOf(r, "")
	gone.MaxAge = -1
	http.SetCookie(w, gone)
	http.Redirect(w, r, d.config.Mount+base+"/sign-in", http.StatusSeeOther)
}

func (d *Dashboard) cookieOf(r *http.Request, token string) *http.Cookie {
	return &http.Cookie{
		Name: cookie, Value: token, Path: d.config.Mount + base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}

// within is the path and query of a page below the base; "/" where to is no page of ours.
func within(to string) string {
	rest, ours := strings.CutPrefix(to, base+"/")
	u, err := url.Parse("/" + rest)
	if err != nil || !ours || u.Host != "" || u.Scheme != "" || strings.Contains(u.Path, `\`) {
		return "/"
	}
	// The last part of an id may have slashes and dots, which are escaped. Browsers take an escaped dot for a dot.
	parts := strings.NewReplacer("%2e", ".", "%2E", ".").Replace(u.EscapedPath())
	if path.Clean(parts) != strings.TrimSuffix(parts, "/") && parts != "/" {
		return "/"
	}
	return "/" + rest
}

// forward hands what a page's script asks to the API, with the viewer's token.
func (d *Dashboard) forward(w http.ResponseWriter, r *http.Request) {
	inner := d.toAPI(r.Context(), r, r.Method, "", nil)
	whole := strings.TrimPrefix(r.URL.EscapedPath(), base+"/api")
	plain, err := url.PathUnescape(whole)
	if err != nil {
		http.Error(w, "the path is malformed", http.StatusBadRequest)
		return
	}
	inner.URL = &url.URL{Path: d.config.Mount + "/api/v1" + plain, RawPath: d.config.Mount + "/api/v1" + whole, RawQuery: r.URL.RawQuery}
	inner.RequestURI = inner.URL.RequestURI()
	inner.Body, inner.ContentLength = r.Body, r.ContentLength
	for _, name := range []string{"Content-Type", "If-Match", "If-None-Match", "Idempotency-Key"} {
		if given := r.Header.Values(name); len(given) > 0 {
			inner.Header[http.CanonicalHeaderKey(name)] = given
		}
	}
	d.config.API.ServeHTTP(w, inner)
}
