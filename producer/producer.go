package producer

import (
	"cmp"
	"context"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

// ErrClosed is returned by sends and awaits after [Producer.Close].
var ErrClosed = command.ErrClosed

// maxGathered is how many single sends one insert holds at most, and how many more
// wait for it before Send blocks.
const maxGathered = 1000

// Config configures a producer. Only Database is required.
type Config struct {
	// Database belongs to the caller, and the producer does not close its client. The producer
	// ignores its read and write concerns, read preference and codecs.
	Database *mongo.Database
	// Prefix of the collections' names: at most 40 of a-z A-Z 0-9 . _ -.
	// Defaults to "".
	Prefix string
	// Tenant of tasks that are sent without the option [Tenant]. Defaults to none.
	Tenant string
	// SecretKey encrypts the secrets of callbacks before they are stored: 32 bytes as hex or
	// base64. During a key rotation it lists several keys, separated by commas: the first
	// encrypts, all decrypt. Workers that deliver callbacks need the same value. Defaults to
	// none: sends of callbacks with secrets are then refused.
	SecretKey string
	// Middleware wraps every send; the first is the outermost. Defaults to none.
	Middleware []Middleware
	// TracerProvider records a span for each send, see docs/traces.md. Each task stores the
	// span that sent it, also one that the caller's context brings without a TracerProvider.
	// Defaults to none.
	TracerProvider trace.TracerProvider
	// Logger receives messages for operators. Defaults to none.
	Logger zerolog.Logger
	// Clock measures waits. Defaults to the machine's clock.
	Clock model.Clock
}

// Producer sends tasks. It is safe for concurrent use. A process needs one for each database
// and prefix. admin.New and pull.New create the other clients of its database.
type Producer struct {
	room   *command.Room
	tenant string
	tracer tracing.Tracer

	send    SendFunc // the middleware, around Producer.carryOut
	wrapped bool     // there is some
	single  *groupcommit.Queue[*gathered]
	await   *awaiter

	subscriptions subscriptions
}

func init() {
	command.Of = func(p any) *command.Room { return p.(*Producer).room } //nolint:forcetypeassert // admin.New and pull.New take nothing else
}

// New validates the Config and creates a producer. It does no I/O: the first send checks the
// schema and sets up an empty database. Errors match model.ErrInvalid.
func New(c Config) (*Producer, error) {
	if c.Tenant != "" {
		if err := input.Name("tenant", c.Tenant); err != nil {
			return nil, err
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			return nil, input.Invalid("middleware", "has a nil at index %d", i)
		}
	}
	r, err := command.Open(command.Config{Database: c.Database, Prefix: c.Prefix, SecretKey: c.SecretKey, Logger: c.Logger, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	p := &Producer{room: r, tenant: c.Tenant, tracer: tracing.New(c.TracerProvider), wrapped: len(c.Middleware) > 0}
	p.send = p.carryOut
	for i := len(c.Middleware) - 1; i >= 0; i-- {
		p.send = c.Middleware[i](p.send)
	}
	p.single = groupcommit.New(maxGathered, p.insertGathered)
	p.await = newAwaiter(r.Store, c.Logger)
	return p, nil
}

// Close refuses new sends and waits for the current ones. Awaits and subscriptions end with
// [ErrClosed]. If a command is part of a transaction that has not committed by then, workers
// notice it only when they poll. If ctx ends first, Close returns its cause and may be called
// again.
func (p *Producer) Close(ctx context.Context) error {
	p.room.Shut()
	p.await.close()
	subscriptions := p.subscriptions.close(ctx)
	if err := p.room.Idle(ctx); err != nil {
		return err
	}
	// A sender whose context ended has left, but what it sent may still be on its way.
	err := p.single.Close(ctx)
	return cmp.Or(err, p.room.Close(ctx), subscriptions)
}
