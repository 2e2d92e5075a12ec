package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sort"
	"time"

	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// HTTP is the task type "http": one call of a URL.
var HTTP = model.NewType[HTTPArgs, HTTPResult]("http")

// Bounds of an http task.
const (
	DefaultHTTPTimeout  = 30 * time.Second
	MaxHTTPTimeout      = time.Hour
	DefaultMaxRedirects = 5
	maxRedirects        = 20
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
	Expect []StatusRange `json:"expect,omitempty"`
	// MaxRedirects is how many redirects are followed; nil is 5 for GET and HEAD and 0
	// for everything else. See redirect.go for which ones.
	MaxRedirects *int `json:"max_redirects,omitempty"`
}

// HTTPResult is the result of [HTTP].
type HTTPResult struct {
	Status int `json:"status"`
	// Headers are those of the answer that say something about its content.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is the answer's body, cut to the worker's limit.
	Body string `json:"body,omitempty"`
	// Encoding is "base64" when the body is not text; else "".
	Encoding string `json:"encoding,omitempty"`
	// Truncated says that the body went on.
	Truncated bool `json:"truncated,omitempty"`
}

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange = httpcall.StatusRange

// expects says whether the status is a success.
func (a *HTTPArgs) expects(status int) bool { return httpcall.Expects(a.Expect, status) }

func (a *HTTPArgs) timeout() time.Duration {
	if a.TimeoutMS == 0 {
		return DefaultHTTPTimeout
	}
	return time.Duration(a.TimeoutMS) * time.Millisecond
}

func (a *HTTPArgs) method() string {
	switch {
	case a.Method != "":
		return a.Method
	case hasBody(a.Body):
		return http.MethodPost
	default:
		return http.MethodGet
	}
}

func (a *HTTPArgs) redirects() int {
	switch m := a.method(); {
	case a.MaxRedirects != nil:
		return *a.MaxRedirects
	case m == http.MethodGet || m == http.MethodHead:
		return DefaultMaxRedirects
	default:
		return 0
	}
}

// body is the bytes to send and the content type that goes with them; nil for none.
func (a *HTTPArgs) body() (data []byte, contentType string) {
	return textOrJSON(a.Body)
}

// textOrJSON turns a JSON string into its text, and keeps any other value as JSON.
func textOrJSON(v json.RawMessage) (data []byte, contentType string) {
	if !hasBody(v) {
		return nil, ""
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s), ""
	}
	return v, "application/json"
}

func hasBody(v json.RawMessage) bool {
	v = bytes.TrimSpace(v)
	return len(v) > 0 && !bytes.Equal(v, []byte("null"))
}

// validate finds everything that is wrong with the arguments.
func (a *HTTPArgs) validate() error {
	errs := []error{httpcall.ValidURL("args.url", a.URL), httpcall.ValidMethod("args.method", a.Method)}
	names := make([]string, 0, len(a.Headers))
	for name := range a.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		errs = append(errs, httpcall.ValidHeader("args.headers", name, a.Headers[name]))
	}
	if a.TimeoutMS < 0 || a.timeout() > MaxHTTPTimeout {
		errs = append(errs, input.Invalid("args.timeout_ms", "is %d; want 1 to %d (an hour), or 0 for the default of %v",
			a.TimeoutMS, MaxHTTPTimeout.Milliseconds(), DefaultHTTPTimeout))
	}
	if n := a.MaxRedirects; n != nil && (*n < 0 || *n > maxRedirects) {
		errs = append(errs, input.Invalid("args.max_redirects", "is %d; want 0 to %d", *n, maxRedirects))
	}
	return errors.Join(errs...)
}
