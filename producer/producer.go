package producer

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/callback"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
)

// ErrClosed is returned by sends and awaits after [Producer.Close].
var ErrClosed = errors.New("the producer is closed")

// ErrNotFound is what the error of a command on a task that does not exist is.
var ErrNotFound = store.ErrNotFound

// maxGathered is how many single sends one insert holds at most, and how many more
// wait for it before Send blocks.
const maxGathered = 1000

// Clock is this machine's time, which tests replace; the start times and stamps of
// tasks are the database's.
type Clock = clock.Clock

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
	Clock Clock
}

// Producer sends tasks. It is safe for concurrent use; a process needs one for each
// database and prefix.
type Producer struct {
	store   *store.Store
	pull    *pull
	watch   *observer
	types   *tasktypes.Cache
	tenant  string
	secrets *secret.Box // nil = none
	log     zerolog.Logger
	follow  *outcome.Runner // what must follow the ends of tasks
	limits  *limits.Gate

	send    SendFunc // the middleware, around Producer.carryOut
	wrapped bool     // there is some
	single  *groupcommit.Queue[*gathered]
	await   *awaiter

	committed *committed

	subscriptions subscriptions

	mu     sync.Mutex
	check  *check // of schema and clock, under way
	closed bool
	active int           // sends under way
	idle   chan struct{} // closed when closed and no send is under way
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
	secrets, err := secret.Parse("secret_key", c.SecretKey)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Database: c.Database, Prefix: c.Prefix, Clock: c.Clock, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	p := &Producer{
		store: s, types: tasktypes.New(s), tenant: c.Tenant, secrets: secrets, log: c.Logger,
		wrapped: len(c.Middleware) > 0, idle: make(chan struct{}),
	}
	p.pull = newPull(s)
	p.watch = newObserver(s, p.pull.trust)
	p.follow = outcome.New(s, c.Logger, callback.Handover{Store: s}, callback.Settlement{Store: s, Types: p.types})
	p.limits = limits.New(s, p.types, c.Logger, func() {})
	p.send = p.carryOut
	for i := len(c.Middleware) - 1; i >= 0; i-- {
		p.send = c.Middleware[i](p.send)
	}
	p.single = groupcommit.New(maxGathered, p.insertGathered)
	p.await = newAwaiter(s, c.Logger)
	p.committed = newCommitted(s, c.Logger)
	p.subscriptions.renewal = subscriptionRenewal
	return p, nil
}

// Close refuses new sends and waits for those under way; awaits and subscriptions end with
// [ErrClosed]. Workers hear of commands in a transaction that has not committed by then only
// when they ask themselves. It returns the cause of ctx when that ends first; it may then be called again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		if p.active == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	p.await.close()
	p.watch.close()
	p.committed.close(ctx)
	subscriptions := p.subscriptions.close(ctx)
	select {
	case <-p.idle:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// A sender whose context ended has left, but what it sent may still be on its way.
	err := p.single.Close(ctx)
	p.follow.Close()
	if err == nil {
		err = subscriptions
	}
	_ = p.limits.Wait(ctx) // what it cannot give back in time is the sweeper's
	p.limits.Close()
	return err
}

// begin counts a send; done must be called at its end.
func (p *Producer) begin() (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	p.active++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active--
		if p.closed && p.active == 0 {
			close(p.idle)
		}
	}, nil
}
