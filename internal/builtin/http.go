package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
)

const (
	// excerptBytes of an unexpected answer go into the error.
	excerptBytes = 300
	// drainBytes are read past the limit so that the connection can be used again.
	drainBytes = 256 << 10
	// maxRetryAfter bounds what a target may ask for: a wrong header must not park a task.
	maxRetryAfter = 24 * time.Hour
)

// keptHeaders are the headers of an answer that its result keeps.
var keptHeaders = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag", "Last-Modified"}

type httpHandler struct {
	workerID string
	client   *http.Client
	limit    int
	clock    clock.Clock
	forbids  bool
}

func newHTTPHandler(o HTTPOptions) *httpHandler {
	return &httpHandler{
		client: &http.Client{Transport: transport(o)}, limit: o.bodyLimit(), clock: clock.System(), forbids: !o.AllowLinkLocal,
	}
}

func (h *httpHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (HTTPResult, error) {
	var args HTTPArgs
	if err := decode(t.Args, &args, false); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	return h.call(ctx, &args, callerOf(h.workerID, t.Execution))
}

// call does one request. An error is worth a retry unless it is a [consumer.Fatal]: a
// 4xx too, because a target that is being deployed answers 404 or 401 for a while, and
// the task's retry budget is what says when to give up.
func (h *httpHandler) call(ctx context.Context, a *HTTPArgs, by caller) (HTTPResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout(), errCallTimeout)
	defer cancel()
	req, err := newRequest(ctx, a, by)
	if err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	what := a.method() + " " + shown(req.URL)
	if h.forbids && forbiddenHost(req.URL) {
		return HTTPResult{}, consumer.Fatal(fmt.Errorf("args.url: %s %w", req.URL.Hostname(), errForbiddenAddress))
	}
	client := *h.client
	client.CheckRedirect = redirectPolicy(a)
	res, err := client.Do(req)
	if err != nil {
		return HTTPResult{}, callError(ctx, what, a, err)
	}
	defer func() { _ = res.Body.Close() }() // read already: nothing can be lost here
	out, err := h.read(res)
	if err != nil {
		return HTTPResult{}, callError(ctx, what, a, err)
	}
	if a.expects(res.StatusCode) {
		return out, nil
	}
	return HTTPResult{}, h.unexpected(what, res, out)
}

func newRequest(ctx context.Context, a *HTTPArgs, by caller) (*http.Request, error) {
	data, contentType := a.body()
	var body io.Reader
	if data != nil {
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, a.method(), a.URL, body)
	if err != nil {
		return nil, fmt.Errorf("args.url: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", "mscheduler")
	by.mark(req.Header)
	for name, value := range a.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// read takes the answer, its body cut to the limit.
func (h *httpHandler) read(res *http.Response) (HTTPResult, error) {
	out := HTTPResult{Status: res.StatusCode}
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(h.limit)+1))
	if err != nil {
		return out, err
	}
	if out.Truncated = len(body) > h.limit; out.Truncated {
		body = body[:h.limit]
		_, _ = io.CopyN(io.Discard, res.Body, drainBytes) // only so that the connection can be used again
	}
	out.Body, out.Encoding = asText(body, out.Truncated)
	for _, name := range keptHeaders {
		if v := res.Header.Get(name); v != "" {
			if out.Headers == nil {
				out.Headers = map[string]string{}
			}
			out.Headers[name] = strings.ToValidUTF8(v, "�")
		}
	}
	return out, nil
}

// asText gives bytes as text, or as base64 where they are none. A rune that the cut
// went through is left out.
func asText(b []byte, cut bool) (text, encoding string) {
	if cut {
		for i := 0; i < utf8.UTFMax && len(b) > 0; i++ {
			if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size != 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// unexpected is the error for an answer that is no success.
func (h *httpHandler) unexpected(what string, res *http.Response, out HTTPResult) error {
	text := fmt.Sprintf("%s: answered %d %s", what, res.StatusCode, http.StatusText(res.StatusCode))
	if loc := res.Header.Get("Location"); loc != "" && res.StatusCode/100 == 3 {
		text += ", to " + loc + ", which is not followed"
	}
	if body := strings.Join(strings.Fields(out.Body), " "); body != "" && out.Encoding == "" {
		if len(body) > excerptBytes {
			body = strings.ToValidUTF8(body[:excerptBytes], "") + "…"
		}
		text += ": " + body
	}
	err := errors.New(text)
	if !busy(res.StatusCode) {
		return err
	}
	if d, ok := retryAfter(res.Header.Get("Retry-After"), h.clock.Now()); ok {
		return consumer.RetryAfter(d, err)
	}
	return err
}

// busy says whether the status means "not now": its Retry-After is honoured.
func busy(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	if v == "" {
		return 0, false
	}
	var d time.Duration
	if n, err := strconv.Atoi(v); err == nil {
		d = time.Duration(min(max(n, 0), int(maxRetryAfter.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	} else {
		return 0, false
	}
	return min(max(d, 0), maxRetryAfter), true
}

var errCallTimeout = errors.New("the call's timeout")

// callError says why there was no answer.
func callError(ctx context.Context, what string, a *HTTPArgs, err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // its text has the whole URL, password and all
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errForbiddenAddress):
		return consumer.Fatal(fmt.Errorf("%s: %w", what, errForbiddenAddress))
	case errors.Is(cause, errCallTimeout):
		return fmt.Errorf("%s: no answer within timeout_ms (%v)", what, a.timeout())
	case cause != nil:
		return fmt.Errorf("%s: %w", what, cause)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// shown is the URL as errors name it: without password and query, which may be secret.
func shown(u *url.URL) string {
	c := *u
	c.RawQuery, c.Fragment = "", ""
	return c.Redacted()
}
