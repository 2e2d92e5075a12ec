package producer

import (
	"cmp"
	"context"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// ErrClosed is returned by sends and awaits after [Producer.Close].
var ErrClosed = command.ErrClosed

// ErrNotFound is what the error of a command on a task that does not exist is.
var ErrNotFound = store.ErrNotFound

// maxGathered is how many single sends one insert holds at most, and how many more
// wait for it before Send blocks.
const maxGathered = 1000

// Config of a producer. Only Database must be set.
type Config struct {
	// Database is the caller's and is never closed here. Its concerns, its read
	// preference and its codecs do not matter: the producer uses its own.
	Database *mongo.Database
	// Prefix of the collections' names: at most 40 of a-z A-Z 0-9 . _ -.
	// Defaults to "".
	Prefix string
	// Tenant of tasks that are sent without the option [Tenant]. Defaults to none.
	Tenant string
	// SecretKey seals the secrets of callbacks before they are stored: 32 bytes as hex or
	// base64; several, separated by commas, while the key is changed: the first seals, all
	// open. The workers that deliver need the same. Defaults to none: tasks whose callbacks
	// have secrets are refused.
	SecretKey string
	// Middleware around every send; the first is outermost. Defaults to none.
	Middleware []Middleware
	// Logger gets what an operator should know. Defaults to none.
	Logger zerolog.Logger
	// Clock that waits are measured by. Defaults to the machine's.
	Clock model.Clock
}

// Producer sends tasks. It is safe for concurrent use; a process needs one for each
// database and prefix. admin.New and pull.New make the other doors to its database.
type Producer struct {
	room   *command.Room
	tenant string

	send    SendFunc // the middleware, around Producer.carryOut
	wrapped bool     // there is some
	single  *groupcommit.Queue[*gathered]
	await   *awaiter

	subscriptions subscriptions
}

func init() {
	command.Of = func(p any) *command.Room { return p.(*Producer).room } //nolint:forcetypeassert // admin.New and pull.New take nothing else
}

// New checks the Config and makes a producer. It does no I/O: the first send checks
// the schema, and sets an empty database up. Errors are model.ErrInvalid.
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
	p := &Producer{room: r, tenant: c.Tenant, wrapped: len(c.Middleware) > 0}
	p.send = p.carryOut
	for i := len(c.Middleware) - 1; i >= 0; i-- {
		p.send = c.Middleware[i](p.send)
	}
	p.single = groupcommit.New(maxGathered, p.insertGathered)
	p.await = newAwaiter(r.Store, c.Logger)
	p.subscriptions.renewal = subscriptionRenewal
	return p, nil
}

// Close refuses new sends and waits for those under way; awaits and subscriptions end with
// [ErrClosed]. Workers hear of commands in a transaction that has not committed by then only
// when they ask themselves. It returns the cause of ctx when that ends first; it may then be called again.
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
