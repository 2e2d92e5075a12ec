package httptarget

import (
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
)

// Request is what one run sends.
type Request struct {
	URL     string
	Method  string
	Headers map[string]string
	Body    string
}

// Fill makes the request of a run. The error says what [Target.Check] would have.
func (t *Target) Fill(v Values) (Request, error) {
	r := Request{Method: t.Method, Headers: map[string]string{}}
	if r.Method == "" {
		r.Method = http.MethodGet
		if t.Body != "" || t.async() {
			r.Method = http.MethodPost
		}
	}
	var err error
	if r.URL, err = filled("url", t.URL, v, inURL); err != nil {
		return r, err
	}
	for name, text := range t.Headers {
		if r.Headers[name], err = filled("headers."+name, text, v, inHeader); err != nil {
			return r, err
		}
	}
	isJSON := t.isJSON()
	escape := plain
	if isJSON {
		escape = inJSON
	}
	if r.Body, err = filled("body", t.Body, v, escape); err != nil {
		return r, err
	}
	if _, said := t.header("Content-Type"); isJSON && !said {
		r.Headers["Content-Type"] = "application/json"
	}
	return r, nil
}

func filled(field, text string, v Values, in place) (string, error) {
	tpl, err := parse(text)
	if err != nil {
		return "", input.Invalid(field, "%v", err)
	}
	out, err := tpl.fill(v, in)
	if err != nil {
		return "", input.Invalid(field, "%v", err)
	}
	return out, nil
}

// CheckExt finds placeholders for values that the rule's ext has not. field names the target
// in the errors, ext is JSON or nil.
func (t *Target) CheckExt(field string, ext json.RawMessage) error {
	v := sample
	if v.anyExt = false; string(ext) != "null" {
		v.Ext = ext
	}
	errs := []error{t.fits(field+".url", t.URL, v), t.fits(field+".body", t.Body, v)}
	for _, name := range sortedNames(t.Headers) {
		errs = append(errs, t.fits(field+".headers."+name, t.Headers[name], v))
	}
	return errors.Join(errs...)
}

func (t *Target) fits(field, text string, v Values) error {
	_, err := filled(field, text, v, plain)
	return err
}

// nasty is what no place may take amiss.
const nasty = `"\{}/?#@:&%<> ` + "\n\u2028é"

// sample are the values that a template is checked with.
var sample = Values{RunID: nasty, TaskID: nasty, Name: nasty, NominalTime: time.Unix(0, 0), Attempt: 1, CompletionURL: nasty, anyExt: true}

// isJSON says whether the body is JSON: the header says so, or nothing else is said and it
// becomes JSON whatever the values are.
func (t *Target) isJSON() bool {
	if t.Body == "" {
		return false
	}
	if v, said := t.header("Content-Type"); said {
		kind, _, err := mime.ParseMediaType(v)
		return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	}
	return t.validJSON()
}

func (t *Target) validJSON() bool {
	body, err := filled("body", t.Body, sample, inJSON)
	return err == nil && json.Valid([]byte(body))
}

// header finds a header, however its name is written.
func (t *Target) header(name string) (string, bool) {
	for n, v := range t.Headers {
		if http.CanonicalHeaderKey(n) == name {
			return v, true
		}
	}
	return "", false
}

func (t *Target) checkTemplate(field, text string) error {
	tpl, err := parse(text)
	switch {
	case err != nil:
		return input.Invalid(field, "%v", err)
	case tpl.uses(completionURL) && !t.async():
		return input.Invalid(field, "has the placeholder %q, which only mode %s has", completionURL, Async)
	default:
		return nil
	}
}

// CheckHeaders is the part of [Target.Check] that is about headers.
func (t *Target) CheckHeaders(field string) error {
	var errs []error
	before := map[string]string{}
	for _, name := range sortedNames(t.Headers) {
		errs = append(errs, httpcall.ValidHeader(field+".headers", name, t.Headers[name]), t.checkTemplate(field+".headers."+name, t.Headers[name]))
		canonical := http.CanonicalHeaderKey(name)
		if other, twice := before[canonical]; twice {
			errs = append(errs, input.Invalid(field+".headers."+name, "is the same header as %s; say one", other))
		}
		before[canonical] = name
	}
	return errors.Join(errs...)
}

func (t *Target) checkURL(field string) error {
	field += ".url"
	if err := t.checkTemplate(field, t.URL); err != nil {
		return err
	}
	scheme, rest, _ := strings.Cut(t.URL, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if strings.Contains(scheme+rest, "{{") {
		return input.Invalid(field, "has a placeholder before its path; who is called is fixed")
	}
	whole, err := filled(field, t.URL, sample, inURL)
	if err != nil {
		return err
	}
	if err := httpcall.ValidURL(field, whole); err != nil {
		return err
	}
	if u, err := url.Parse(whole); err != nil || u.User != nil {
		return input.Invalid(field, "holds a user or password, which everybody would see; sign the call with keys, or say the header Authorization")
	}
	return nil
}

func (t *Target) checkBody(field string) error {
	if len(t.Body) > MaxBodyBytes {
		return input.Invalid(field, "has %d bytes; at most %d are allowed", len(t.Body), MaxBodyBytes)
	}
	if err := t.checkTemplate(field, t.Body); err != nil {
		return err
	}
	if t.isJSON() && !t.validJSON() {
		return input.Invalid(field, "is no JSON once its placeholders are filled, but the header Content-Type says so; "+
			`each stands within a string: {"run": "{{run_id}}"}`)
	}
	if _, said := t.header("Content-Type"); !said && looksJSON(t.Body) && !t.validJSON() {
		return input.Invalid(field, "looks like JSON and is none once its placeholders are filled; "+
			`each stands within a string: {"run": "{{run_id}}"}; or say by the header Content-Type what it is`)
	}
	return nil
}

// looksJSON says whether somebody meant a JSON object or array.
func looksJSON(body string) bool {
	body = strings.TrimSpace(body)
	return strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "{{") && strings.HasSuffix(body, "}") ||
		strings.HasPrefix(body, "[") && strings.HasSuffix(body, "]")
}

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
