package httptarget

import (
	"cmp"
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

// Fill makes the call of a run. Its errors are those of [Target.Check] and [Target.CheckExt].
func (t *Target) Fill(v Values) (httpcall.Call, error) {
	method := http.MethodGet
	if t.Body != "" || t.async() {
		method = http.MethodPost
	}
	c := httpcall.Call{
		Field: "args.url", Method: cmp.Or(t.Method, method), Headers: map[string]string{},
		Timeout: cmp.Or(t.Timeout, defaultTimeout), Expect: t.expect(), SameHost: t.async(),
	}
	var err error
	if c.URL, err = filled("url", t.URL, v, inURL); err != nil {
		return c, err
	}
	for name, text := range t.Headers {
		if c.Headers[name], err = filled("headers."+name, text, v, inHeader); err != nil {
			return c, err
		}
	}
	escape := plain
	if t.isJSON() {
		escape = inJSON
		if _, given := t.header("Content-Type"); !given {
			c.Headers["Content-Type"] = "application/json"
		}
	}
	c.Body, err = filled("body", t.Body, v, escape)
	return c, err
}

func filled(field, text string, v Values, in place) (string, error) {
	out, err := v.fill(text, in)
	if err != nil {
		return "", input.Invalid(field, "%v", err)
	}
	return out, nil
}

// CheckExt finds placeholders for values that the rule's ext lacks. field names the target in the
// errors; ext is JSON or nil.
func (t *Target) CheckExt(field string, ext json.RawMessage) error {
	v := t.sample()
	if v.anyExt = false; string(ext) != "null" {
		v.Ext = ext
	}
	return errors.Join(check(field+".url", t.URL, v), check(field+".body", t.Body, v), t.eachHeader(func(name, text string) error {
		return check(field+".headers."+name, text, v)
	}))
}

// check reports what is wrong with the placeholders of a text.
func check(field, text string, v Values) error {
	_, err := filled(field, text, v, plain)
	return err
}

// nasty is a value that must not break any place.
const nasty = `"\{}/?#@:&%<> ` + "\n\u2028é"

// sample returns the values that the target is checked with.
func (t *Target) sample() Values {
	v := Values{RunID: nasty, TaskID: nasty, Name: nasty, NominalTime: time.Unix(0, 0), Attempt: 1, anyExt: true}
	if t.async() {
		v.CompletionURL = nasty
	}
	return v
}

// isJSON reports whether the body is JSON: its header says so, or it has no header and is JSON
// whatever the values are.
func (t *Target) isJSON() bool {
	if t.Body == "" {
		return false
	}
	if v, given := t.header("Content-Type"); given {
		kind, _, err := mime.ParseMediaType(v)
		return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	}
	return t.validJSON()
}

func (t *Target) validJSON() bool {
	body, err := t.sample().fill(t.Body, inJSON)
	return err == nil && json.Valid([]byte(body))
}

// header finds a header, whatever the case of its name.
func (t *Target) header(name string) (string, bool) {
	for n, v := range t.Headers {
		if http.CanonicalHeaderKey(n) == name {
			return v, true
		}
	}
	return "", false
}

func (t *Target) eachHeader(f func(name, text string) error) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		errs = append(errs, f(name, t.Headers[name]))
	}
	return errors.Join(errs...)
}

// CheckHeaders is the part of [Target.Check] for headers.
func (t *Target) CheckHeaders(field string) error {
	before := map[string]string{}
	return t.eachHeader(func(name, text string) error {
		err := errors.Join(httpcall.ValidHeader(field+".headers", name, text), check(field+".headers."+name, text, t.sample()))
		canonical := http.CanonicalHeaderKey(name)
		if other, twice := before[canonical]; twice {
			err = errors.Join(err, input.Invalid(field+".headers."+name, "is the same header as %s", other))
		}
		if canonical == "Host" && strings.Contains(text, "{{") {
			err = errors.Join(err, input.Invalid(field+".headers."+name, "has a placeholder; scheme and host are fixed"))
		}
		before[canonical] = name
		return err
	})
}

func (t *Target) checkURL(field string) error {
	whole, err := filled(field, t.URL, t.sample(), inURL)
	if err != nil {
		return err
	}
	scheme, rest, _ := strings.Cut(t.URL, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if strings.Contains(scheme+rest, "{{") {
		return input.Invalid(field, "has a placeholder before its path; scheme and host are fixed")
	}
	if err := httpcall.ValidURL(field, whole); err != nil {
		return err
	}
	if u, err := url.Parse(whole); err != nil || u.User != nil {
		return input.Invalid(field, "has a user or password, which would be visible to every reader; sign the call with keys, or set the header Authorization")
	}
	return nil
}

func (t *Target) checkBody(field string) error {
	if len(t.Body) > maxBodyBytes {
		return input.Invalid(field, "has %d bytes; at most %d are allowed", len(t.Body), maxBodyBytes)
	}
	if err := check(field, t.Body, t.sample()); err != nil || t.validJSON() {
		return err
	}
	const quote = `put each placeholder within a string: {"run": "{{run_id}}"}`
	if t.isJSON() {
		return input.Invalid(field, "is not JSON after its placeholders are filled, although the header Content-Type declares JSON; "+quote)
	}
	if _, given := t.header("Content-Type"); !given && looksJSON(t.Body) {
		return input.Invalid(field, "looks like JSON, but is not JSON after its placeholders are filled; "+quote+", or set the header Content-Type")
	}
	return nil
}

// looksJSON reports whether a body is meant as a JSON object or array.
func looksJSON(body string) bool {
	body = strings.TrimSpace(body)
	return strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "{{") && strings.HasSuffix(body, "}") ||
		strings.HasPrefix(body, "[") && strings.HasSuffix(body, "]")
}
