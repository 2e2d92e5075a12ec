package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/httpcall"
)

// keptHeaders are the headers of an answer that its result keeps.
var keptHeaders = []string{"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag", "Last-Modified"}

type httpHandler struct {
	workerID string
	client   *http.Client
	limit    int
	clock    clock.Clock
	reach    httpcall.Reach
}

func newHTTPHandler(o HTTPOptions) *httpHandler {
	return &httpHandler{client: &http.Client{Transport: o.Reach.Transport()}, limit: o.bodyLimit(), clock: clock.System(), reach: o.Reach}
}

func (h *httpHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (HTTPResult, error) {
	var args HTTPArgs
	if err := decode(t.Args, &args, false); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	out, err := h.call(ctx, &args, callerOf(h.workerID, t.Execution))
	if err != nil {
		return HTTPResult{}, timedOut(err)
	}
	return out, nil
}

// timedOut makes the timeout of a call that of its execution.
func timedOut(err error) error {
	if errors.Is(err, errCallTimeout) {
		return consumer.TimedOut(err)
	}
	return err
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
	return h.do(ctx, req, a)
}

// do makes the call. The context of the request is ctx, which has the call's timeout. With an
// error it returns what there was of an answer; Status 0: nothing.
func (h *httpHandler) do(ctx context.Context, req *http.Request, a *HTTPArgs) (HTTPResult, error) {
	what := a.method() + " " + httpcall.Shown(req.URL)
	if err := h.reach.Check(req.URL); err != nil {
		return HTTPResult{}, consumer.Fatal(fmt.Errorf("args.url: %w", err))
	}
	client := *h.client
	client.CheckRedirect = redirectPolicy(a, h.reach)
	res, err := client.Do(req)
	if err != nil {
		return HTTPResult{}, callError(ctx, what, a, err)
	}
	defer func() { _ = res.Body.Close() }() // read already: nothing can be lost here
	out, err := h.read(res)
	if err != nil {
		return out, callError(ctx, what, a, err)
	}
	if a.expects(res.StatusCode) {
		return out, nil
	}
	return out, h.unexpected(what, res, out)
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
	body, err := httpcall.ReadBody(res, h.limit)
	if err != nil {
		return out, err
	}
	out.Body, out.Encoding, out.Truncated = body.Text, body.Encoding, body.Truncated
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

// unexpected is the error for an answer that is no success.
func (h *httpHandler) unexpected(what string, res *http.Response, out HTTPResult) error {
	err := httpcall.Unexpected(what, res, httpcall.Body{Text: out.Body, Encoding: out.Encoding})
	if d, ok := httpcall.RetryAfter(res, h.clock.Now()); ok {
		return consumer.RetryAfter(d, err)
	}
	return err
}

var errCallTimeout = errors.New("the call's timeout")

// noAnswerError is an [errCallTimeout] that says what was waited for.
type noAnswerError struct {
	what  string
	limit time.Duration
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("%s: no answer within timeout_ms (%v)", e.what, e.limit)
}
func (e *noAnswerError) Unwrap() error { return errCallTimeout }

// callError says why there was no answer.
func callError(ctx context.Context, what string, a *HTTPArgs, err error) error {
	err = httpcall.Cause(err)
	switch cause := context.Cause(ctx); {
	case httpcall.Refused(err):
		return consumer.Fatal(fmt.Errorf("%s: %w", what, err))
	case errors.Is(cause, errCallTimeout):
		return &noAnswerError{what, a.timeout()}
	case cause != nil:
		return fmt.Errorf("%s: %w", what, cause)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
