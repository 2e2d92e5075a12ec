package httpcall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/tracing"
)

// Call is one request, and what its use decides about it.
type Call struct {
	Method, URL, Body string

	Field   string            // names the URL in errors, such as args.url
	JSON    bool              // the body is JSON, unless Headers has a Content-Type
	Headers map[string]string // of who ordered the call; they stay behind when a redirect leaves the host
	Worker  http.Header       // of this worker; Headers override them
	Sign    *Signature        // nil = not signed

	Timeout   time.Duration // bounds the call, redirects and the answer's body included
	Keep      int           // bytes of the answer's body in the [Answer]
	Hide      string        // what neither the answer nor the error shows, though the target may repeat it; "" = nothing
	Redirects *int          // how many are followed; nil = 5 for GET and HEAD, 0 for anything else
	SameHost  bool          // no redirect to another host is followed
	// Admit is asked before the call whether the host may get one more. leave is told, once the answer has been
	// read, whether it came in time. nil admits all.
	Admit func(host string) (leave func(answered bool), err error)

	Expect        []StatusRange // of a success; empty = 2xx
	GoneForGood   bool          // the answer 410 is final
	StatusDecides bool          // an expected status is a success even if reading the body fails
}

// Signature says how a call is signed, see package callback.
type Signature struct {
	ID   string
	At   time.Time      // by the database's clock, since the receiver compares it with its own
	Keys []callback.Key // sealed; none = only ID and time are sent
}

// Caller makes the calls of one kind in a process.
type Caller struct {
	reach   Reach
	client  *http.Client
	secrets *secret.Box
	now     func() time.Time
}

// New makes a caller. secrets open the keys of signed calls, now measures Retry-After.
func New(reach Reach, secrets *secret.Box, now func() time.Time) *Caller {
	return &Caller{reach: reach, client: &http.Client{Transport: reach.transport()}, secrets: secrets, now: now}
}

// Close closes idle connections.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// Do makes the call. The error is a [*VerdictError], a [*TimeoutError] or worth a retry: an
// unexpected status is retried, 4xx too, because a target that is being deployed answers 404 or
// 401 for a while, and the retries of the task bound what that costs. With an error it returns
// what there was of an answer; its Status is 0 if there was none.
func (c *Caller) Do(ctx context.Context, call Call) (Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, call.Timeout, errTimeout)
	defer cancel()
	req, err := c.request(ctx, &call)
	if err != nil {
		return Answer{}, err
	}
	leave := func(bool) {}
	if call.Admit != nil {
		if leave, err = call.Admit(req.URL.Host); err != nil {
			return Answer{}, err
		}
	}
	what := req.Method + " " + shown(req.URL)
	client := *c.client
	client.CheckRedirect = c.redirectPolicy(&call)
	res, err := client.Do(req)
	if err != nil {
		leave(false)
		return Answer{}, unanswered(ctx, what, &call, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing can be lost: it was read
	out, err := readAnswer(res, call.Keep)
	out.hide(call.Hide)
	leave(ctx.Err() == nil)
	expected := expects(call.Expect, res.StatusCode)
	switch {
	case err != nil && (!expected || !call.StatusDecides):
		return out, unanswered(ctx, what, &call, err)
	case expected:
		return out, nil
	}
	err = out.unexpected(what)
	if call.GoneForGood && res.StatusCode == http.StatusGone {
		return out, &VerdictError{Err: err, Fatal: true}
	}
	if d, later := retryAfter(res, c.now()); later {
		return out, &VerdictError{Err: err, Later: true, RetryAfter: d}
	}
	return out, err
}

// request makes the request and signs it. Its errors are final, or say that another worker may
// have the key.
func (c *Caller) request(ctx context.Context, call *Call) (*http.Request, error) {
	if err := ValidMethod("method", call.Method); err != nil { // also of tasks and rules that are stored already
		return nil, &VerdictError{Err: err, Fatal: true}
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, call.URL, strings.NewReader(call.Body))
	if err == nil {
		err = c.reach.checkHost(req.URL.Hostname())
	}
	if err != nil {
		return nil, &VerdictError{Err: fmt.Errorf("%s: %w", call.Field, withoutURL(err)), Fatal: true}
	}
	if call.JSON {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "mscheduler")
	tracing.ToRequest(ctx, req.Header)
	maps.Copy(req.Header, call.Worker)
	for name, value := range call.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	if s := call.Sign; s != nil {
		keys, err := c.secrets.OpenKeys(s.Keys)
		if err == nil {
			err = callback.Sign(req.Header, s.ID, s.At, []byte(call.Body), keys...)
		}
		if err != nil {
			return nil, sealed(fmt.Errorf("signing the call: %w", err))
		}
	}
	return req, nil
}

// OpenHeaders returns the headers with their secrets opened. Its errors are those of [Caller.Do].
func (c *Caller) OpenHeaders(headers map[string]string) (map[string]string, error) {
	out, err := c.secrets.OpenHeaders(headers)
	if err != nil {
		return nil, sealed(err)
	}
	return out, nil
}

const defaultRedirects = 5

// redirectPolicy follows at most Redirects redirects, and of those only the ones that repeat the
// request as it was: all of them for GET and HEAD, 307 and 308 for every other method (301 to 303
// would turn a POST into a GET without its body, and the task would look done). It follows none
// from https to http. A redirect that is not followed is the answer, and its status an error unless
// it is expected. One that leads to a forbidden address ends the call.
//
// When the host changes, the headers of who ordered the call stay behind: they may be credentials.
// So do the signature, which is for the first host, and the referrer, which may hold a token. The
// worker's own headers go along: the new host needs them to recognise a repeated call.
func (c *Caller) redirectPolicy(call *Call) func(*http.Request, []*http.Request) error {
	most := 0
	switch {
	case call.Redirects != nil:
		most = *call.Redirects
	case call.Method == http.MethodGet || call.Method == http.MethodHead:
		most = defaultRedirects
	}
	return func(next *http.Request, via []*http.Request) error {
		first, last := via[0], via[len(via)-1]
		leaves := next.URL.Host != first.URL.Host
		if len(via) > most || next.Method != first.Method || leaves && call.SameHost ||
			last.URL.Scheme == "https" && next.URL.Scheme == "http" {
			return http.ErrUseLastResponse
		}
		if err := c.reach.checkHost(next.URL.Hostname()); err != nil {
			return err
		}
		if leaves {
			for name := range call.Headers {
				next.Header.Del(name)
			}
			maps.DeleteFunc(next.Header, func(name string, _ []string) bool {
				return name == "Referer" || strings.HasPrefix(name, "Webhook-")
			})
		}
		return nil
	}
}

// VerdictError says what the error of a call means for its task. Any other error is retried.
type VerdictError struct {
	Err        error
	Fatal      bool          // no retry helps
	NotHere    bool          // this process lacks a key; another may have it
	Busy       bool          // the receiver has its share of calls: later, at no cost
	Later      bool          // the receiver wants no retry before RetryAfter has passed
	RetryAfter time.Duration // with Later and Busy
}

func (v *VerdictError) Error() string { return v.Err.Error() }
func (v *VerdictError) Unwrap() error { return v.Err }

// TimeoutError says that a call took longer than its timeout. It is retried.
type TimeoutError struct {
	What  string
	Limit time.Duration
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("%s: no answer within %v", e.What, e.Limit) }

var errTimeout = errors.New("the timeout of the call")

// sealed is the error of a secret that could not be opened, or not be used.
func sealed(err error) error {
	notHere := errors.Is(err, secret.ErrNoKey) || errors.Is(err, secret.ErrUnknownKey)
	return &VerdictError{Err: err, NotHere: notHere, Fatal: !notHere}
}

// unanswered says why there was no answer.
func unanswered(ctx context.Context, what string, call *Call, err error) error {
	err = withoutURL(err)
	switch cause := context.Cause(ctx); {
	case refused(err):
		return &VerdictError{Err: fmt.Errorf("%s: %w", what, err), Fatal: true}
	case errors.Is(cause, errTimeout):
		return &TimeoutError{what, call.Timeout}
	case cause != nil:
		return fmt.Errorf("%s: %w", what, cause)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// withoutURL strips the URL, password and all, that the client puts before its errors.
func withoutURL(err error) error {
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// shown is the URL as errors name it: as people may see it, and without its query.
func shown(u *url.URL) string {
	c := *u
	c.RawQuery, c.ForceQuery, c.Fragment = "", false, ""
	return safetext.URL(c.String())
}
