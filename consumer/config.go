package consumer

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Config of a consumer. Only Database is needed.
type Config struct {
	// Database is the caller's and is never closed here. Its read and write concerns,
	// read preference and codecs do not matter: ours are laid over them.
	Database *mongo.Database

	// Prefix of the collections' names. Defaults to "".
	Prefix string

	// WorkerID names this process in task documents and worker filters. Two processes
	// must not have the same one at the same time; a restarted process may have its old
	// one. At most 200 bytes. Defaults to host name, process id and random letters.
	WorkerID string

	// Concurrency is how many handlers run at once in this process. Defaults to 100.
	Concurrency int

	// ShutdownTimeout is how long handlers may go on after a stop began; then their
	// contexts end with [ErrShutdown]. Negative means not at all. Defaults to 30 s.
	ShutdownTimeout time.Duration

	// Middleware is called around every handler; the first is outermost, none is nil. Defaults
	// to none.
	Middleware []Middleware

	// DecodeGrace is for how long a task is given back because no worker understands
	// its arguments, before it fails. Defaults to 1 h.
	DecodeGrace time.Duration

	// PollInterval is how often a worker that watches the change stream looks for work
	// all the same. One that cannot watch polls more often, see the package comment.
	// At least 100 ms. Defaults to 30 s.
	PollInterval time.Duration

	// Tenants, Categories and Creators are what tasks this worker takes, beside their type:
	// of each list a task must have one. model.NoTenant stands for tasks without a tenant.
	// Where a type is claimed by one of these (see model.TaskType), a worker with such a
	// list finds its tasks without reading through everybody else's; else every fetch does.
	// At most 200 of each. Deliveries of callbacks are taken whatever they say. Empty takes
	// any. Defaults to empty.
	Tenants, Categories, Creators []string

	// NoStream makes the worker poll only. Defaults to false.
	NoStream bool

	// OnEvent hears what happens. It is called on the goroutine to which it happens, by
	// several at once, and must be quick. Defaults to nobody.
	OnEvent func(Event)

	// Callbacks lets this process deliver callbacks; nil = it delivers none. At least one
	// process must, where tasks have callbacks. Defaults to nil.
	Callbacks *CallbackConfig

	// Clock is for tests. Defaults to the machine's.
	Clock model.Clock

	// Version is shown in the list of workers. Defaults to "".
	Version string

	// Logger gets what an operator should know. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.WorkerID == "" {
		c.WorkerID = automaticWorkerID()
	} else if err := input.WorkerID("worker_id", c.WorkerID); err != nil {
		errs = append(errs, err)
	}
	if c.Concurrency < 0 || c.Concurrency > 1_000_000 {
		errs = append(errs, input.Invalid("concurrency", "is %d; want 1 to 1000000", c.Concurrency))
	}
	if c.DecodeGrace < 0 {
		errs = append(errs, input.Invalid("decode_grace", "is %v; it cannot be negative", c.DecodeGrace))
	}
	if c.PollInterval != 0 && c.PollInterval < 100*time.Millisecond {
		errs = append(errs, input.Invalid("poll_interval", "is %v; want at least 100ms", c.PollInterval))
	}
	for i, m := range c.Middleware {
		if m == nil {
			errs = append(errs, input.Invalid("middleware", "has a nil at index %d", i))
		}
	}
	errs = append(errs, c.Callbacks.validate()...)
	only := lifecycle.Conditions{Tenants: c.Tenants, Categories: c.Categories, Creators: c.Creators}
	errs = append(errs, lifecycle.CheckConditions(&only))
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 30*time.Second)
	c.DecodeGrace = cmp.Or(c.DecodeGrace, time.Hour)
	c.PollInterval = cmp.Or(c.PollInterval, 30*time.Second)
	c.Clock = cmp.Or[model.Clock](c.Clock, clock.System())
	return c, errors.Join(errs...)
}

func automaticWorkerID() string {
	host := hostName()
	return fmt.Sprintf("%s-%d-%s", host[:min(len(host), 100)], os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "host"
	}
	return host
}
