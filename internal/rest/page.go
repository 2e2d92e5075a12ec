package rest

import (
	"embed"
	"net/http"
)

// pageFiles are the page of the API: no file of it is somebody else's, and it asks no other host.
//
//go:embed page/page.html page/page.css page/page.js
var pageFiles embed.FS

// pagePolicy lets the page load its own two files and ask its own server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// addPage adds the page on which people try the API. It is the same text for everybody, so it needs no token; the
// description that it shows, and each request that it sends, do.
func (s *API) addPage() {
	for path, file := range map[string]struct{ name, contentType string }{
		"/docs/{$}": {"page.html", "text/html; charset=utf-8"}, "/docs/page.css": {"page.css", "text/css; charset=utf-8"}, "/docs/page.js": {"page.js", "text/javascript; charset=utf-8"},
	} {
		text, err := pageFiles.ReadFile("page/" + file.name)
		if err != nil {
			panic(err) // it was embedded
		}
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", file.contentType)
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			_, _ = w.Write(text) // nobody is left to be told
		})
	}
	s.mux.HandleFunc("GET /docs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.config.Mount+"/docs/", http.StatusFound)
	})
}
