package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
)

//go:embed templates static
var files embed.FS

// statics are the files that pages load, by name.
type statics map[string]static

type static struct {
	text        []byte
	contentType string
	version     string // changes with the text, so browsers may keep what they have
}

var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func readStatics() statics {
	out := statics{}
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		body, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		out[e.Name()] = static{text: body, contentType: contentTypes[path.Ext(e.Name())], version: hex.EncodeToString(sum[:6])}
	}
	return out
}

func (d *Dashboard) serveStatic(w http.ResponseWriter, r *http.Request) {
	file, ok := d.static[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", file.contentType)
	if r.URL.Query().Get("v") == file.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(file.text) // if it fails, the client has gone
}

// staticURL is where the page loads a file.
func (d *Dashboard) staticURL(name string) string {
	return d.config.Mount + base + "/static/" + name + "?v=" + d.static[name].version
}

// pages are the templates by name: each file of templates/ that is no part of others, with the layout, the
// components of shared.html, and those of *.part.html, which a few pages share.
type pages map[string]*template.Template

func (d *Dashboard) parsePages() pages {
	shared := template.Must(template.New("").Funcs(d.funcs()).ParseFS(files, "templates/layout.html", "templates/shared.html", "templates/*.part.html"))
	out := pages{}
	entries, err := fs.ReadDir(files, "templates")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		if name == "layout" || name == "shared" || strings.HasSuffix(name, ".part") {
			continue
		}
		out[name] = template.Must(template.Must(shared.Clone()).ParseFS(files, "templates/"+e.Name()))
	}
	return out
}

// page is what a template shows.
type page struct {
	Title string
	Nav   string     // the section of the navigation
	Live  url.Values // what changes of the page: the query of the API's /events; nil = nothing
	Poll  int        // seconds after which the page reads itself again, whatever has happened; 0 = never
	Data  any
}

// shown is a page with what all have.
type shown struct {
	page
	Viewer  viewer
	Version string
	Query   url.Values // of the page itself
	Here    string     // the page itself
	Tenant  string     // that the viewer has chosen, of several; "" = there is no choice
}

// render shows a page, unless a read of it has failed: it returns that error.
func (v *visit) render(name string, p page) error {
	if v.err == nil {
		v.renderAs(http.StatusOK, name, p)
	}
	return v.err
}

// renderAs writes the page only when all of it is there: an error in the middle would leave half a page with status
// 200.
func (v *visit) renderAs(status int, name string, p page) {
	var out bytes.Buffer
	err := v.d.pages[name].ExecuteTemplate(&out, "layout", shown{page: p, Viewer: v.who, Version: v.d.config.Version, Query: v.r.URL.Query(), Here: v.d.config.Mount + v.r.URL.RequestURI(), Tenant: v.chosenTenant()})
	if err != nil {
		v.d.config.Logger.Error().Err(err).Str("page", name).Msg("a page of the dashboard cannot be written")
		http.Error(v.w, "the page cannot be shown; see the server's log", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(out.Bytes()) // if it fails, the client has gone
}
