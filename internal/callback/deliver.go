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
	"github.com/mscheduler/mscheduler/internal/lifecycle"
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
	RetryAfter time.Duration // with Later: the receiver wants to be asked again then; with Busy: its turn
	Later      bool
	Busy       bool // the receiver does not answer the calls under way: not now, at no cost
	NotHere    bool // this process lacks the key to the secret; another may have it
}

func (v *VerdictError) Error() string { return v.Err.Error() }
func (v *VerdictError) Unwrap() error { return v.Err }

// Config of a [Deliverer].
type Config struct {
	Store       *store.Store
	Types       Types
	Secrets     *secret.Box    // nil = it signs nothing
	Reach       httpcall.Reach // where it may call
	Timeout     time.Duration  // of a call; 0 = [DefaultTimeout]
	Concurrency int            // calls at once; a quarter of it for a receiver that is silent
}

// Deliverer makes the calls of one process.
type Deliverer struct {
	Config
	client    *http.Client
	receivers receivers
}

// NewDeliverer makes a deliverer.
func NewDeliverer(c Config) *Deliverer {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	return &Deliverer{
		Config: c, receivers: receivers{most: max(c.Concurrency/4, 1)},
		client: &http.Client{
			Transport: c.Reach.Transport(),
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
func (d *Deliverer) Deliver(ctx context.Context, args lifecycle.DeliveryArgs) (Result, error) {
	life, err := d.Store.History.Life(ctx, args.TaskID, args.Generation)
	if errors.Is(err, store.ErrNotFound) {
		return Result{}, &VerdictError{Err: fmt.Errorf("the task is gone: %w", err), Fatal: true}
	}
	if err != nil {
		return Result{}, err
	}
	target, security, err := d.told(ctx, life)
	if target == nil {
		return Result{}, err
	}
	keys, err := d.Secrets.CallbackKeys(security)
	if err != nil {
		return Result{}, &VerdictError{Err: err, NotHere: !errors.Is(err, secret.ErrBroken), Fatal: errors.Is(err, secret.ErrBroken)}
	}
	req, err := d.request(ctx, life, target, keys)
	if err != nil {
		return Result{}, &VerdictError{Err: err, Fatal: true}
	}
	return d.call(req)
}

// told is who is told of the life's end; nil = nobody, since the callback was taken out of
// the task's type meanwhile. That ends the delivery, so the database says it, and not this
// process's copy of the types, which may be a moment older than the type.
func (d *Deliverer) told(ctx context.Context, life *model.Task) (*model.CallbackTarget, *model.CallbackSecurity, error) {
	target, security := lifecycle.CallbackOf(life, d.Types.Options(life.Type))
	if target != nil {
		return target, security, nil
	}
	typ, err := d.Store.Types.Get(ctx, life.Type)
	if errors.Is(err, store.ErrNoType) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	target, security = lifecycle.CallbackOf(life, typ.Options)
	return target, security, nil
}

func (d *Deliverer) request(ctx context.Context, life *model.Task, target *model.CallbackTarget, keys []wire.Key) (*http.Request, error) {
	u, err := url.Parse(target.URL)
	if err != nil {
		return nil, fmt.Errorf("callback.url: %w", httpcall.Cause(err))
	}
	if err := d.Reach.Check(u); err != nil {
		return nil, fmt.Errorf("callback.url: %w", err)
	}
	body := lifecycle.CallbackBody(life)
	req, err := http.NewRequestWithContext(ctx, lifecycle.CallbackMethod(*target), target.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("callback.url: %w", httpcall.Cause(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "mscheduler")
	req.Header.Set(wire.TaskHeader, httpcall.Escape(life.ID))
	id := lifecycle.DeliveryKey(life.ID, life.Generation)
	// The receiver compares the time of signing with its own clock, so it is this machine's
	// true time, as near as is known: the database's.
	return req, wire.Sign(req.Header, id, d.Store.Clock.Now(), body, keys...)
}

var errTimeout = errors.New("the receiver's time is over")

func (d *Deliverer) call(req *http.Request) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), d.Timeout, errTimeout)
	defer cancel()
	what := req.Method + " " + httpcall.Shown(req.URL)
	leave, wait := d.receivers.enter(req.URL.Host, d.Store.Local().Monotonic())
	if leave == nil {
		return Result{}, &VerdictError{Err: fmt.Errorf("%s: as many calls as a receiver gets that does not answer are under way", what), Busy: true, RetryAfter: wait}
	}
	res, err := d.client.Do(req.WithContext(ctx))
	leave(err == nil)
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
	if after, ok := httpcall.RetryAfter(res, d.Store.Local().Now()); ok {
		return Result{}, &VerdictError{Err: err, Later: true, RetryAfter: after}
	}
	return Result{}, err
}

// unanswered says why there was no answer.
func (d *Deliverer) unanswered(ctx context.Context, what string, err error) error {
	err = httpcall.Cause(err)
	switch cause := context.Cause(ctx); {
	case httpcall.Refused(err):
		return &VerdictError{Err: fmt.Errorf("%s: %w", what, err), Fatal: true}
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%s: no answer within %v", what, d.Timeout)
	case cause != nil:
		return fmt.Errorf("%s: %w", what, cause)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
