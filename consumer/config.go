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
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/model"
)

// Config configures a consumer. Only Database is required.
type Config struct {
	// Database belongs to the caller, and the consumer does not close its client. The consumer
	// ignores its read and write concerns, read preference and codecs.
	Database *mongo.Database

	// Prefix of the collections' names. Defaults to "".
	Prefix string

	// WorkerID names this process in task documents and worker filters. It must be unique among
	// live workers; a restarted process may reuse its id. At most 200 bytes. Defaults to host
	// name, process id and random letters.
	WorkerID string

	// Concurrency limits the handlers that run concurrently in this process. Defaults to 100.
	Concurrency int

	// ShutdownTimeout is how long handlers may continue after a shutdown began; then their
	// contexts end with [ErrShutdown]. A negative value ends them at once. Defaults to 30 s.
	// The process should be killed ten seconds after that at the earliest: the grace period of
	// Kubernetes, 30 s by default, is too short for the default.
	ShutdownTimeout time.Duration

	// Middleware wraps every handler; the first is the outermost. None may be nil. Defaults to
	// none.
	Middleware []Middleware

	// DecodeGrace is how long workers release a task with arguments that they cannot decode,
	// before it fails. Defaults to 1 h.
	DecodeGrace time.Duration

	// PollInterval is how often a worker polls in addition to watching a change stream. A
	// worker without a change stream polls more often, see the package comment. At least 100
	// ms. Defaults to 30 s.
	PollInterval time.Duration

	// Tenants, Categories and Creators restrict the tasks that this worker claims: a task must
	// match an entry of each list that is not empty. model.NoTenant selects tasks without a
	// tenant. If a type sets ClaimBy (see model.TaskType) to one of these labels, a worker with
	// that list finds its tasks without scanning all others; otherwise every fetch scans them.
	// The lists do not restrict deliveries of callbacks. At most 200 entries each. Defaults to
	// empty.
	Tenants, Categories, Creators []string

	// NoStream makes the worker poll only. Defaults to false.
	NoStream bool

	// NoDrain refuses the requests of operators to drain or stop this worker (`mscheduler worker drain`,
	// the REST API, the dashboard). Otherwise a worker that is asked claims nothing more and finishes
	// what it holds; asked to stop, too, its Run then returns nil, as after Stop. Defaults to false.
	NoDrain bool

	// OnEvent receives the events of this worker. The goroutine that causes an event calls it,
	// so it must be fast and safe for concurrent use. Defaults to none.
	OnEvent func(Event)

	// Callbacks lets this process deliver callbacks; nil = it delivers none. If tasks have
	// callbacks, at least one process must deliver them. Defaults to nil.
	Callbacks *CallbackConfig

	// TracerProvider records spans of claims, executions, steps and deliveries, see
	// docs/traces.md. With or without it, a handler's context carries the trace of what sent
	// its task. Defaults to none.
	TracerProvider trace.TracerProvider

	// Clock is for tests. Defaults to the machine's clock.
	Clock model.Clock

	// Version is shown in the list of workers. Defaults to "".
	Version string

	// Logger receives messages for operators. Defaults to the zero Logger, which is silent.
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
	c.DecodeGrace = cmp.Or(c.DecodeGrace, lifecycle.DecodeGrace)
	c.PollInterval = cmp.Or(c.PollInterval, presence.PollWatching)
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
