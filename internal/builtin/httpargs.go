package builtin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// HTTP is the task type "http": one call of a URL.
var HTTP = model.NewType[HTTPArgs, HTTPResult]("http")

// Bounds of an http task.
const (
	defaultHTTPTimeout = 30 * time.Second
	maxHTTPTimeout     = time.Hour
	maxRedirects       = 20
)

// HTTPArgs are the arguments of [HTTP]. Only URL is required.
type HTTPArgs struct {
	// URL to call, http or https.
	URL string `json:"url"`
	// Method defaults to GET, or to POST when there is a body.
	Method string `json:"method,omitempty"`
	// Headers of the request. Those that begin with Mscheduler- are the worker's.
	Headers map[string]string `json:"headers,omitempty"`
	// Body: a string is sent as it is, any other JSON value as JSON with the content
	// type application/json.
	Body json.RawMessage `json:"body,omitempty"`
	// TimeoutMS bounds the whole call, redirects and reading the answer included.
	// Defaults to 30 s, at most an hour. In milliseconds.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Expect lists the statuses that are a success: 200, "2xx", "200-204". Defaults to 2xx.
	Expect []httpcall.StatusRange `json:"expect,omitempty"`
	// MaxRedirects is how many redirects are followed; nil is 5 for GET and HEAD and 0
	// for every other method. A redirect that would change the request is not followed.
	MaxRedirects *int `json:"max_redirects,omitempty"`
}

// HTTPResult is the result of [HTTP]. Its body is cut to the worker's limit.
type HTTPResult = httpcall.Answer

func (a *HTTPArgs) timeout() time.Duration {
	if a.TimeoutMS == 0 {
		return defaultHTTPTimeout
	}
	return time.Duration(a.TimeoutMS) * time.Millisecond
}

// call is the request.
func (a *HTTPArgs) call() httpcall.Call {
	body, isJSON := textOrJSON(a.Body)
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	return httpcall.Call{
		Field: "args.url", Method: cmp.Or(a.Method, method), URL: a.URL, Body: string(body), JSON: isJSON, Headers: a.Headers,
		Timeout: a.timeout(), Expect: a.Expect, Redirects: a.MaxRedirects,
	}
}

// textOrJSON turns a JSON string into its text, and keeps any other value as JSON; nil for none.
func textOrJSON(v json.RawMessage) (data []byte, isJSON bool) {
	if v = bytes.TrimSpace(v); len(v) == 0 || string(v) == "null" {
		return nil, false
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s), false
	}
	return v, true
}

func (a *HTTPArgs) validate(given bool) error {
	errs := []error{httpcall.ValidURL("args.url", a.URL), httpcall.ValidMethod("args.method", a.Method)}
	if a.URL == "" {
		errs[0] = input.Invalid("args.url", "%s; want an http or https URL", none(given))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		errs = append(errs, httpcall.ValidHeader("args.headers", name, a.Headers[name]))
	}
	if a.TimeoutMS < 0 || a.timeout() > maxHTTPTimeout {
		errs = append(errs, input.Invalid("args.timeout_ms", "is %d; want 1 to %d (an hour), or 0 for the default of %v",
			a.TimeoutMS, maxHTTPTimeout.Milliseconds(), defaultHTTPTimeout))
	}
	if n := a.MaxRedirects; n != nil && (*n < 0 || *n > maxRedirects) {
		errs = append(errs, input.Invalid("args.max_redirects", "is %d; want 0 to %d", *n, maxRedirects))
	}
	return errors.Join(errs...)
}
