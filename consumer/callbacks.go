package consumer

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/mscheduler/mscheduler/internal/callback"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
)

// CallbackConfig configures the delivery of callbacks. The zero value delivers unsigned
// callbacks only.
type CallbackConfig struct {
	// SecretKey decrypts the secrets that sign callbacks: 32 bytes as hex or base64. During a
	// key rotation it lists several keys, separated by commas: the first encrypts, all decrypt.
	// If it cannot decrypt the secret of a delivery, the worker leaves the delivery to other
	// workers. Defaults to none.
	SecretKey string

	// Concurrency limits the callbacks that this process delivers concurrently, within the
	// consumer's own Concurrency. A receiver that does not answer within two seconds gets
	// at most a quarter of it; its waiting callbacks are retried five times a second. Defaults to 50.
	Concurrency int

	// Timeout limits each call of a receiver. Defaults to 15 s.
	Timeout time.Duration

	// AllowLinkLocal lets callbacks reach link-local and cloud metadata addresses.
	// Defaults to false.
	AllowLinkLocal bool

	// Allow lists the hosts that callbacks may reach: names (example.org, *.example.org),
	// addresses and networks (10.0.0.0/8). A callback to another host fails without a retry.
	// Allow never permits link-local addresses. Defaults to all hosts.
	Allow []string

	// Proxy for a request, as in [http.Transport]. Defaults to none.
	Proxy func(*http.Request) (*url.URL, error)
}

func (c *CallbackConfig) validate() (errs []error) {
	if c == nil {
		return nil
	}
	if c.Concurrency < 0 {
		errs = append(errs, input.Invalid("callbacks.concurrency", "is %d; must not be negative", c.Concurrency))
	}
	if c.Timeout < 0 || c.Timeout > time.Hour {
		errs = append(errs, input.Invalid("callbacks.timeout", "is %v; want 0 to 1h", c.Timeout))
	}
	if _, err := c.reach(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// reach is where callbacks may go.
func (c *CallbackConfig) reach() (httpcall.Reach, error) {
	allow, err := httpcall.ParseAllow("callbacks.allow", c.Allow)
	return httpcall.Reach{AllowLinkLocal: c.AllowLinkLocal, Allow: allow, Proxy: c.Proxy}, err
}

// secrets are what this process can seal and open; nil = none.
func (c *CallbackConfig) secrets() (*secret.Box, error) {
	if c == nil {
		return nil, nil
	}
	return secret.Parse("callbacks.secret_key", c.SecretKey)
}

// deliveryDefaults are the default options of deliveries. The retries follow the steps of Standard
// Webhooks, three days in all: long enough for a receiver that is down over a weekend. Lost workers
// are not the receiver's fault, so they hardly count.
var deliveryDefaults = model.Options{
	Retry: &model.Retry{Strategy: model.RetrySequence, MaxErrors: new(10), Sequence: []time.Duration{
		5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}},
	MaxLapses: new(100),
}

// deliverCallbacks registers the handler of deliveries.
func (c *Consumer) deliverCallbacks() error {
	cfg := c.cfg.Callbacks
	limit := cmp.Or(cfg.Concurrency, 50)
	reach, err := cfg.reach()
	if err != nil {
		return err
	}
	d := callback.NewDeliverer(callback.Config{
		Store: c.store, Types: c.taskTypes, Secrets: c.secrets, Timeout: cfg.Timeout, Concurrency: limit,
		Reach: reach,
	})
	c.deliverer = d
	typ := model.NewType[lifecycle.DeliveryArgs, httpcall.Answer](input.CallbackType)
	return Handle(c, typ, func(ctx context.Context, t *Task[lifecycle.DeliveryArgs]) (httpcall.Answer, error) {
		result, err := d.Deliver(ctx, t.Args)
		return result, deliveryError(err)
	}, MaxConcurrency(limit), Defaults(deliveryDefaults))
}

// deliveryError turns the error of a delivery into that of a handler.
func deliveryError(err error) error {
	var v *httpcall.VerdictError
	switch {
	case !errors.As(err, &v):
		return err
	case v.NotHere:
		return &undecodableError{err: v.Err, grace: lifecycle.DecodeGraceOfSecrets}
	case v.Busy:
		return snooze(v.RetryAfter, v.Err.Error())
	case v.Fatal:
		return Fatal(v.Err)
	case v.Later:
		return v // see heeded
	default:
		return v.Err
	}
}

// followers are the kinds of outcomes that every consumer carries out.
func (c *Consumer) followers() []outcome.Kind {
	return []outcome.Kind{
		callback.Handover{Store: c.store, Made: c.deliveriesMade},
		callback.Settlement{Store: c.store, Types: c.taskTypes},
	}
}

// deliveriesMade wakes this process, if it delivers: its own inserts need no stream.
func (c *Consumer) deliveriesMade() {
	if c.cfg.Callbacks != nil {
		c.wake.now()
	}
}
