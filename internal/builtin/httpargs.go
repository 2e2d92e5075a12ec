package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

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
type StatusRange struct{ From, To int }

// UnmarshalJSON reads 200, "200", "2xx" or "200-204".
func (r *StatusRange) UnmarshalJSON(data []byte) error {
	s := strings.Trim(string(data), `"`)
	from, to, isRange := strings.Cut(s, "-")
	if c := s; len(c) == 3 && strings.EqualFold(c[1:], "xx") {
		from, to, isRange = c[:1]+"00", c[:1]+"99", true
	}
	if !isRange {
		to = from
	}
	var err1, err2 error
	r.From, err1 = strconv.Atoi(from)
	r.To, err2 = strconv.Atoi(to)
	if err1 != nil || err2 != nil || r.From < 100 || r.To > 599 || r.From > r.To {
		return model.Invalid("args.expect", `has %s; want statuses from 100 to 599, such as 200, "2xx" or "200-204"`, data)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r StatusRange) MarshalJSON() ([]byte, error) {
	if r.From == r.To {
		return json.Marshal(r.From)
	}
	return json.Marshal(fmt.Sprintf("%d-%d", r.From, r.To))
}

// expects says whether the status is a success.
func (a *HTTPArgs) expects(status int) bool {
	if len(a.Expect) == 0 {
		return status >= 200 && status <= 299
	}
	for _, r := range a.Expect {
		if status >= r.From && status <= r.To {
			return true
		}
	}
	return false
}

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
	errs := []error{validURL(a.URL)}
	if a.Method != "" && (!isToken(a.Method) || strings.ToUpper(a.Method) != a.Method) {
		errs = append(errs, model.Invalid("args.method", "is %q; want an HTTP method in capitals, such as POST", a.Method))
	}
	names := make([]string, 0, len(a.Headers))
	for name := range a.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		errs = append(errs, validHeader(name, a.Headers[name]))
	}
	if a.TimeoutMS < 0 || a.timeout() > MaxHTTPTimeout {
		errs = append(errs, model.Invalid("args.timeout_ms", "is %d; want 1 to %d (an hour), or 0 for the default of %v",
			a.TimeoutMS, MaxHTTPTimeout.Milliseconds(), DefaultHTTPTimeout))
	}
	if n := a.MaxRedirects; n != nil && (*n < 0 || *n > maxRedirects) {
		errs = append(errs, model.Invalid("args.max_redirects", "is %d; want 0 to %d", *n, maxRedirects))
	}
	return errors.Join(errs...)
}

func validURL(raw string) error {
	if raw == "" {
		return model.Invalid("args.url", "is empty; want an http or https URL")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return model.Invalid("args.url", "is not a URL: %v", errors.Unwrap(err)) // the URL itself may hold a password
	case u.Scheme != "http" && u.Scheme != "https":
		return model.Invalid("args.url", "is %q; want one that begins with http:// or https://", u.Redacted())
	case u.Hostname() == "":
		return model.Invalid("args.url", "is %q, which names no host", u.Redacted())
	default:
		return nil
	}
}

// headerPrefix begins the headers with which the worker says who calls.
const headerPrefix = "Mscheduler-"

func validHeader(name, value string) error {
	field := "args.headers." + name
	switch {
	case !isToken(name):
		return model.Invalid(field, "is not a header's name")
	case strings.HasPrefix(http.CanonicalHeaderKey(name), headerPrefix):
		return model.Invalid(field, "is set by the worker; choose another name")
	case !isHeaderValue(value):
		return model.Invalid(field, "has a character that no header may have (a line break, say)")
	default:
		return nil
	}
}

// isToken says whether s is a token of RFC 9110: what names of methods and headers are
// made of.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// isHeaderValue says whether s holds no control character but the tab.
func isHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
