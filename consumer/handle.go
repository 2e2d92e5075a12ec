package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/model"
)

// Handler runs one execution. The result must be a JSON value of at most 1 MiB; a nil error
// makes the execution a success. [Fatal], [RetryAfter], [Snooze], [Release], [Cancel] and
// [Park] create errors with special effects. The task's strategy retries any other error, and
// also a panic of the handler or of a method of the error or the result. If a handler ends its
// goroutine, with runtime.Goexit or FailNow of a test, it counts as a panic without local
// retries.
type Handler func(ctx context.Context, e *Execution) (result any, err error)

// Middleware wraps a handler: tracing, metrics, logging. It sees every execution of
// every type, before the arguments are decoded.
type Middleware func(Handler) Handler

// Task is the parameter of a typed handler: its execution and the decoded arguments.
type Task[A any] struct {
	*Execution
	Args A
}

// handler is a registered type.
type handler struct {
	typ      string
	run      Handler
	limit    int // executions at once in this process; 0 = as many as the process runs
	defaults model.Options
	category string      // that it is served for; "" = the type has a handler of its own
	left     atomic.Bool // it belongs to that category no longer
	// said is what type and handler together say to their tasks; nil = nothing. It changes
	// with the type's document.
	said     atomic.Pointer[model.Options]
	ran      atomic.Int64 // how long executions take on average, in nanoseconds; 0 = not known
	measured *measure.Type
	own      claim.Rarely // its candidates that name this worker; of the search for candidates alone
	// plain are the options that apply to a task that says nothing itself, as most do.
	plain atomic.Pointer[lifecycle.Effective]
}

// learn lays the options of the type's document over the handler's defaults.
func (h *handler) learn(typ model.Options) {
	said := lifecycle.Overlay(typ, h.defaults)
	plain := lifecycle.ResolveOptions(said)
	if said.IsZero() {
		h.said.Store(nil)
	} else {
		h.said.Store(&said)
	}
	h.plain.Store(&plain)
}

// effective are the options that apply to a task that this handler is to run. They are
// shared: nobody changes them.
func (h *handler) effective(t *model.Task) *lifecycle.Effective {
	if t.Options.IsZero() {
		return h.plain.Load()
	}
	var layers [2]model.Options
	layers[0] = t.Options
	if said := h.said.Load(); said != nil {
		layers[1] = *said
	}
	eff := lifecycle.ResolveOptions(layers[:]...)
	return &eff
}

// HandleOption configures how this process runs a type.
type HandleOption func(*handler) error

// MaxConcurrency limits the concurrent executions of the type in this process. Defaults to the
// consumer's Concurrency.
func MaxConcurrency(n int) HandleOption {
	return func(h *handler) error {
		if n < 1 {
			return input.Invalid("max_concurrency", "is %d; want at least 1", n)
		}
		h.limit = n
		return nil
	}
}

// Defaults sets options that apply if neither the task nor its type sets them. It refuses the
// worker filter and the number of workers, which only tasks have.
func Defaults(o model.Options) HandleOption {
	return func(h *handler) error {
		if err := input.SharedOptions(&o, "defaults"); err != nil {
			return err
		}
		h.defaults = o
		return nil
	}
}

// Handle registers the handler of a type. Register all types before [Consumer.Run]. If the
// arguments of a task do not decode into A, the worker releases it without using a retry,
// because in a rolling deployment new arguments reach old workers. Unknown fields are ignored.
func Handle[A, R any](c *Consumer, t model.Type[A, R], h func(context.Context, *Task[A]) (R, error), opts ...HandleOption) error {
	if h == nil {
		return input.Invalid("handler", "of type %s is nil", t.Name())
	}
	return c.handle(t.Name(), func(ctx context.Context, e *Execution) (any, error) {
		task := Task[A]{Execution: e}
		if err := codec.DecodeValue(e.args, &task.Args); err != nil {
			return nil, &undecodableError{what: "the arguments", err: err}
		}
		return h(ctx, &task)
	}, opts...)
}

func (c *Consumer) handle(typ string, run Handler, opts ...HandleOption) error {
	if err := input.Name("type", typ); err != nil {
		return err
	}
	h, err := c.newHandler(typ, run, opts...)
	if err != nil {
		return fmt.Errorf("handling type %s: %w", typ, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return fmt.Errorf("handling type %s: the consumer was already started", typ)
	}
	if c.handlers[typ] != nil {
		return input.Invalid("type", "%s already has a handler", typ)
	}
	c.handlers[typ], h.measured = h, c.store.Measure.Types.Of(typ)
	return nil
}

// newHandler makes a handler of the type, with the consumer's middleware around it.
func (c *Consumer) newHandler(typ string, run Handler, opts ...HandleOption) (*handler, error) {
	h := &handler{typ: typ}
	for i, o := range opts {
		if o == nil {
			return nil, input.Invalid(fmt.Sprintf("options[%d]", i), "is nil")
		}
		if err := o(h); err != nil {
			return nil, err
		}
	}
	err := input.OptionsFor(&h.defaults, typ)
	if err != nil {
		return nil, err
	}
	if h.defaults.Callback, err = c.secrets.SealCallback("defaults.callback", h.defaults.Callback); err != nil {
		return nil, err
	}
	if h.defaults.Callback != nil {
		own := *h.defaults.Callback
		own.OfHandler = true
		h.defaults.Callback = &own
	}
	h.run = recovered(run)
	h.learn(model.Options{})
	for _, m := range slices.Backward(c.cfg.Middleware) {
		h.run = m(h.run)
	}
	h.run = recovered(h.run) // a middleware may panic, too
	return h, nil
}

// recovered turns a panic into an error with its stack: it frees the slot and is never
// the end of the worker.
func recovered(h Handler) Handler {
	return func(ctx context.Context, e *Execution) (result any, err error) {
		err = caught(func() (err error) {
			result, err = h(ctx, e)
			return err
		})
		return result, err
	}
}

// encodeResult makes a handler's result a stored value. One that cannot be stored does
// not become storable by running the task again.
func encodeResult(v any) (bson.RawValue, error) {
	r, err := codec.EncodeValue("result", v, input.MaxResultBytes)
	if err != nil {
		return r, Fatal(err)
	}
	return r, nil
}
