package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	wire "github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// DefaultTimeout is how long a receiver has to answer: as the best known senders give.
const DefaultTimeout = 15 * time.Second

// keptBytes of an answer's body are kept with the delivery.
const keptBytes = 1 << 10

// Result is what a delivery's task keeps of the answer.
type Result struct {
	Status    int    `json:"status,omitempty"` // 0 = nobody was to be told any more
	Body      string `json:"body,omitempty"`   // its beginning
	Encoding  string `json:"encoding,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// VerdictError says what an error of a delivery means for its task. Any other error is retried.
type VerdictError struct {
	Err        error
	Fatal      bool          // no retry mends it
	RetryAfter time.Duration // with Later: the receiver wants to be asked again then
	Later      bool
	NotHere    bool // this process lacks the key to the secret; another may have it
}

func (v *VerdictError) Error() string { return v.Err.Error() }
func (v *VerdictError) Unwrap() error { return v.Err }

// Deliverer makes the calls of one process.
type Deliverer struct {
	store   *store.Store
	types   Types
	secrets *secret.Box
	reach   httpcall.Reach
	client  *http.Client
	timeout time.Duration
}

// NewDeliverer makes a deliverer. secrets nil = it signs nothing; timeout 0 = [DefaultTimeout].
func NewDeliverer(st *store.Store, types Types, secrets *secret.Box, reach httpcall.Reach, timeout time.Duration) *Deliverer {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Deliverer{
		store: st, types: types, secrets: secrets, reach: reach, timeout: timeout,
		client: &http.Client{
			Transport: reach.Transport(),
			// A redirect would turn a POST into a GET, or send what is meant for one receiver
			// to another: it is an answer like any other that is not 2xx.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close lets go of connections that nobody uses.
func (d *Deliverer) Close() { d.client.CloseIdleConnections() }

// Deliver tells the receiver of the life's end. An error is worth a retry unless it is a
// [*VerdictError] that says otherwise.
//
// Every answer that is not 2xx is retried, 4xx too: a receiver that is being deployed
// answers 401 or 404 for a while, and the senders that people know (Stripe, GitHub, those
// of Standard Webhooks) go on as well. The exception is 410: the receiver says that it is
// gone for good. What the retries cost is bounded by the delivery's own budget.
func (d *Deliverer) Deliver(ctx context.Context, args model.DeliveryArgs) (Result, error) {
	life, err := d.store.Life(ctx, args.TaskID, args.Generation)
	if errors.Is(err, store.ErrNotFound) {
		return Result{}, &VerdictError{Err: fmt.Errorf("the task is gone: %w", err), Fatal: true}
	}
	if err != nil {
		return Result{}, err
	}
	target, security := model.CallbackOf(life, d.types.Options(life.Type))
	if target == nil {
		return Result{}, nil // the callback was taken out of the task's type meanwhile
	}
	keys, err := d.secrets.CallbackKeys(security)
	if err != nil {
		return Result{}, &VerdictError{Err: err, NotHere: !errors.Is(err, secret.ErrBroken), Fatal: errors.Is(err, secret.ErrBroken)}
	}
	req, err := d.request(ctx, life, target, keys)
	if err != nil {
		return Result{}, &VerdictError{Err: err, Fatal: true}
	}
	return d.call(req)
}

func (d *Deliverer) request(ctx context.Context, life *model.Task, target *model.CallbackTarget, keys []wire.Key) (*http.Request, error) {
	u, err := url.Parse(target.URL)
	if err != nil {
		return nil, fmt.Errorf("callback.url: %w", httpcall.Cause(err))
	}
	if err := d.reach.Check(u); err != nil {
		return nil, fmt.Errorf("callback.url: %w", err)
	}
	body := model.CallbackBody(life)
	req, err := http.NewRequestWithContext(ctx, target.EffectiveMethod(), target.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("callback.url: %w", httpcall.Cause(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "mscheduler")
	req.Header.Set(wire.HeaderTask, httpcall.Escape(life.ID))
	id := model.DeliveryKey(life.ID, life.Generation)
	// The receiver compares the time of signing with its own clock, so it is this machine's
	// true time, as near as is known: the database's.
	return req, wire.Sign(req.Header, id, d.store.Clock.Now(), body, keys...)
}

var errTimeout = errors.New("the receiver's time is over")

func (d *Deliverer) call(req *http.Request) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), d.timeout, errTimeout)
	defer cancel()
	what := req.Method + " " + httpcall.Shown(req.URL)
	res, err := d.client.Do(req.WithContext(ctx))
	if err != nil {
		return Result{}, d.unanswered(ctx, what, err)
	}
	defer func() { _ = res.Body.Close() }() // read already: nothing can be lost here
	body, err := httpcall.ReadBody(res, keptBytes)
	delivered := res.StatusCode/100 == 2
	if err != nil && !delivered { // the status has said it all
		return Result{}, d.unanswered(ctx, what, err)
	}
	if delivered {
		return Result{Status: res.StatusCode, Body: body.Text, Encoding: body.Encoding, Truncated: body.Truncated}, nil
	}
	err = httpcall.Unexpected(what, res, body)
	if res.StatusCode == http.StatusGone {
		return Result{}, &VerdictError{Err: err, Fatal: true}
	}
	if after, ok := httpcall.RetryAfter(res, d.store.Local().Now()); ok {
		return Result{}, &VerdictError{Err: err, Later: true, RetryAfter: after}
	}
	return Result{}, err
}

// unanswered says why there was no answer.
func (d *Deliverer) unanswered(ctx context.Context, what string, err error) error {
	err = httpcall.Cause(err)
	switch cause := context.Cause(ctx); {
	case errors.Is(err, httpcall.ErrForbiddenAddress):
		return &VerdictError{Err: fmt.Errorf("%s: %w", what, err), Fatal: true}
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%s: no answer within %v", what, d.timeout)
	case cause != nil:
		return fmt.Errorf("%s: %w", what, cause)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
