package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// document is what the API answers, as JSON has it. Numbers are json.Number.
type document = map[string]any

// problem is an error of the API (RFC 9457).
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors"`
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// problemOf is an error as a page shows it.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	return &problem{Status: http.StatusInternalServerError, Title: "The page cannot be shown", Detail: "see the server's log"}
}

// answer collects what the API's handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// toAPI is a request to an operation of the API on behalf of who asks for a page: from the same address and for the same
// host, with the viewer's token.
func (d *Dashboard) toAPI(ctx context.Context, from *http.Request, method, path string, query url.Values) *http.Request {
	r := from.Clone(ctx)
	r.Method, r.Body, r.ContentLength = method, http.NoBody, 0
	for _, name := range []string{"Cookie", "Content-Type", "Content-Length", "If-None-Match", "If-Match", "Idempotency-Key", "Range"} {
		r.Header.Del(name)
	}
	whole := d.config.Mount + "/api/v1" + path
	plain, err := url.PathUnescape(whole)
	if err != nil {
		plain = whole
	}
	r.URL = &url.URL{Path: plain, RawPath: whole, RawQuery: query.Encode()}
	r.RequestURI = r.URL.RequestURI()
	r.Pattern = ""
	authorize(r, from)
	return r
}

// get asks an operation of the API for a document. The parts of a path that are not constant are escaped by
// [pathOf].
func (v *visit) get(path string, query url.Values) (document, error) {
	out, err := v.ask(path, query)
	if err != nil {
		return nil, err
	}
	var doc document
	decoder := json.NewDecoder(&out.body)
	decoder.UseNumber()
	if err := decoder.Decode(&doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// read is get for a page, which ends with [visit.render].
func (v *visit) read(path string, query url.Values) document {
	return v.try(func(err error) error { return err }, path, query)
}

// try is read for what may be missing: where forgiving takes an error for none, the document is nil.
func (v *visit) try(forgiving func(error) error, path string, query url.Values) (doc document) {
	if v.err == nil {
		doc, v.err = v.get(path, query)
		v.err = forgiving(v.err)
	}
	return doc
}

// unlessGone is no error if the API says that there is no such thing.
func unlessGone(err error) error { return unless(err, http.StatusNotFound) }

// unlessRefused is no error if the API says that there is no such thing for this viewer, or that nothing can have such
// a name.
func unlessRefused(err error) error {
	return unless(err, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity)
}

func unless(err error, statuses ...int) error {
	if err != nil && slices.Contains(statuses, problemOf(err).Status) {
		return nil
	}
	return err
}

// ask is get for an answer as it is.
func (v *visit) ask(path string, query url.Values) (*answer, error) {
	out := &answer{header: http.Header{}}
	v.d.config.API.ServeHTTP(out, v.d.toAPI(v.r.Context(), v.r, http.MethodGet, path, query))
	if out.status != http.StatusOK {
		return nil, refusal(out)
	}
	return out, nil
}

// refusal is the error that an answer tells.
func refusal(out *answer) error {
	p := &problem{}
	if json.Unmarshal(out.body.Bytes(), p) != nil || p.Status == 0 {
		p = &problem{Title: http.StatusText(out.status), Detail: strings.TrimSpace(out.body.String())}
	}
	p.Status = out.status
	return p
}

// pathOf is a path of the API or of a page: each part is escaped.
func pathOf(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}

// idPath is the path of an id such as tenant/type/key, of n parts: the last one may have slashes.
func idPath(id string, n int) string { return pathOf(strings.SplitN(id, "/", n)...) }
