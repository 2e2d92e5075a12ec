package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/probe"
)

// Config of a [Dashboard].
type Config struct {
	API     http.Handler // the REST API, which gets requests with Mount
	Mount   string       // the path under which both are, such as /scheduler; "" = the root
	Version string       // of the program
	// TraceURL is where people see a trace, with [input.TraceID] for its id; "" = nowhere. It is checked.
	TraceURL string
	Logger   zerolog.Logger // of pages that cannot be shown; defaults to none
}

// Dashboard serves the pages below Mount + /ui/. It is safe for concurrent use.
type Dashboard struct {
	config      Config
	clock       clock.Clock
	mux         *http.ServeMux
	pages       pages
	static      statics
	crossOrigin *http.CrossOriginProtection
}

// base is where the pages are below the mount.
const base = "/ui"

// New makes the pages.
func New(c Config) *Dashboard {
	d := &Dashboard{config: c, clock: clock.System(), mux: http.NewServeMux(), static: readStatics(), crossOrigin: http.NewCrossOriginProtection()}
	d.pages = d.parsePages()
	d.mux.HandleFunc("GET "+base+"/static/{name}", d.serveStatic)
	d.mux.HandleFunc("GET "+base+"/sign-in", d.showSignIn)
	d.mux.HandleFunc("POST "+base+"/sign-in", d.signIn)
	d.mux.HandleFunc("POST "+base+"/sign-out", d.signOut)
	d.mux.HandleFunc("GET "+base+"/live", d.live)
	d.mux.HandleFunc("POST "+base+"/text/yaml", d.toYAML)
	d.mux.HandleFunc("POST "+base+"/text/json", d.toJSON)
	d.mux.HandleFunc(base+"/api/", d.forward)
	d.mux.HandleFunc("GET "+base+"/download/{list}", d.download)
	for _, some := range allRoutes {
		for pattern, show := range some {
			d.mux.HandleFunc("GET "+base+pattern, d.showing(show))
		}
	}
	toOverview := http.RedirectHandler(c.Mount+base+"/", http.StatusFound)
	for _, path := range []string{base, "/{$}"} {
		d.mux.Handle("GET "+path, toOverview)
	}
	d.mux.HandleFunc("/", d.showing(func(v *visit) error { return v.nothingHere() }))
	return d
}

// routes are pages by their paths below the base.
type routes map[string]func(*visit) error

// allRoutes are the pages of each kind of thing, which its file names.
var allRoutes = []routes{
	overviewRoutes,
	taskRoutes,
	newRoutes,
	bulkRoutes,
	typeRoutes,
	workerRoutes,
	waitingRoutes,
	accessRoutes,
	ruleRoutes,
	flowRoutes,
	streamRoutes,
	planRoutes,
	designRoutes,
}

// Serves reports whether the path of a request is one of the dashboard's.
func (d *Dashboard) Serves(r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, d.config.Mount)
	return ok && (path == "" || path == "/" || path == base || strings.HasPrefix(path, base+"/"))
}

// pagePolicy lets pages load their own files and ask their own server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.TLS != nil && !probe.LocalName(r.Host) { // on localhost it would be for the programs of all ports
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if d.crossOrigin.Check(r) != nil {
		http.Error(w, "requests from pages of other origins are refused", http.StatusForbidden)
		return
	}
	if r.URL.Path == d.config.Mount {
		http.Redirect(w, r, d.config.Mount+base+"/", http.StatusFound)
		return
	}
	if whole := r.URL.EscapedPath(); path.Clean(whole) != strings.TrimSuffix(whole, "/") && whole != "/" {
		http.Redirect(w, r, path.Clean(whole)+queryText(r.URL), http.StatusMovedPermanently) // the mux would leave out the mount
		return
	}
	http.StripPrefix(d.config.Mount, d.mux).ServeHTTP(w, r)
}

func queryText(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	return "?" + u.RawQuery
}

// visit is one request for a page.
type visit struct {
	d   *Dashboard
	w   http.ResponseWriter
	r   *http.Request
	who viewer
	err error // of the first read that failed: nothing is read or shown after it
}

// showing is the handler of a page: whoever must sign in first does.
func (d *Dashboard) showing(show func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{d: d, w: w, r: r}
		err := v.identify()
		if err == nil {
			err = show(v)
		}
		if err != nil {
			v.fail(err)
		}
	}
}

// fail shows why a page cannot be shown.
func (v *visit) fail(err error) {
	p := problemOf(err)
	if p.Status == http.StatusUnauthorized {
		v.toSignIn()
		return
	}
	if p.Status >= http.StatusInternalServerError {
		v.d.config.Logger.Warn().Err(err).Str("page", v.r.URL.Path).Msg("a page of the dashboard cannot be shown")
	}
	v.renderAs(p.Status, "problem", page{Title: cmp.Or(p.Title, "The page cannot be shown"), Data: p})
}

func (v *visit) nothingHere() error {
	return &problem{Status: http.StatusNotFound, Title: "Not found", Detail: "there is no such page"}
}

// goTo sends the browser to another page, whose path is escaped already.
func (v *visit) goTo(path string) error {
	http.Redirect(v.w, v.r, v.d.config.Mount+base+path, http.StatusSeeOther)
	return nil
}

// at is the URL of a page, from its path below the base and its query.
func (v *visit) at(path string, query url.Values) string {
	out := v.d.config.Mount + base + path
	if len(query) > 0 {
		out += "?" + query.Encode()
	}
	return out
}
