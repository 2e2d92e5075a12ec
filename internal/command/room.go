package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/callback"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Config is what the doors' Configs have in common.
type Config struct {
	Database  *mongo.Database
	Prefix    string
	SecretKey string
	Logger    zerolog.Logger
	Clock     clock.Clock
}

// Room is what a door writes by. It is safe for concurrent use.
type Room struct {
	Store   *store.Store
	Types   *tasktypes.Cache
	Secrets *secret.Box     // nil = none
	Follow  *outcome.Runner // what must follow the ends of tasks
	Limits  *limits.Gate
	Log     zerolog.Logger

	committed *committed
	together  *together
	series    recorder
	listeners atomic.Pointer[[]func(*model.Task)]

	mu     sync.Mutex
	check  *check // of schema and clock, under way
	closed bool
	active int           // calls under way
	after  []func()      // see AtClose
	idle   chan struct{} // closed when closed and no call is under way
}

// Open checks the Config and makes a room. It does no I/O. Errors are model.ErrInvalid.
func Open(c Config) (*Room, error) {
	secrets, err := secret.Parse("secret_key", c.SecretKey)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Database: c.Database, Prefix: c.Prefix, Clock: c.Clock, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	r := &Room{Store: s, Types: tasktypes.New(s), Secrets: secrets, Log: c.Logger, idle: make(chan struct{})}
	r.Follow = outcome.New(s, c.Logger, callback.Handover{Store: s}, callback.Settlement{Store: s, Types: r.Types})
	r.Limits = limits.New(s, r.Types, c.Logger, func() {})
	r.committed = newCommitted(s, c.Logger)
	r.together = newTogether(s.Tasks)
	r.series = recorder{store: s}
	return r, nil
}

// Of is the room of a *producer.Producer: the other doors are made from one, and write by its
// room. Package producer sets it.
var Of func(producer any) *Room

// Listen has each task that is written from now on told to the function, which must not block.
func (r *Room) Listen(hear func(*model.Task)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []func(*model.Task)
	if before := r.listeners.Load(); before != nil {
		all = slices.Clone(*before)
	}
	all = append(all, hear)
	r.listeners.Store(&all)
}

// Wrote tells of a task that was written, also in a transaction that has not committed.
func (r *Room) Wrote(t *model.Task) {
	if all := r.listeners.Load(); all != nil {
		for _, hear := range *all {
			hear(t)
		}
	}
}

// AtClose has the function called when the room closes and no call is under way any more.
func (r *Room) AtClose(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after = append(r.after, f)
}

// ErrClosed is the error of calls after the room was shut.
var ErrClosed = errors.New("the producer is closed")

// Begin counts a call that Close waits for; done must be called at its end.
func (r *Room) Begin() (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	r.active++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.active--
		if r.closed && r.active == 0 {
			close(r.idle)
		}
	}, nil
}

// Shut refuses further calls of Begin.
func (r *Room) Shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	if r.active == 0 {
		close(r.idle)
	}
}

// Idle waits, after Shut, until no call is under way. It returns the cause of ctx when that
// ends first.
func (r *Room) Idle(ctx context.Context) error {
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close shuts the room, waits until no call is under way and ends what goes on in the
// background. Workers learn of commands in a transaction that has not committed by then only
// when they look by themselves. It returns the cause of ctx when that ends first, and may then
// be called again.
func (r *Room) Close(ctx context.Context) error {
	r.Shut()
	if err := r.Idle(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	after := r.after
	r.after = nil
	r.mu.Unlock()
	for _, f := range after {
		f()
	}
	r.committed.close(ctx)
	r.series.close(ctx)
	r.Follow.Close()
	_ = r.Limits.Wait(ctx) // what it cannot give back in time is the sweeper's
	r.Limits.Close()
	return nil
}

// Effective are the options by which a person's command and a completion from outside judge
// the task.
func (r *Room) Effective(t *model.Task) lifecycle.Effective {
	return lifecycle.EffectiveOf(t, r.Types.Options(t.Type))
}

// Life reads one life of a task, also one that has moved to the history. Generation 0 is the
// present life, or the last.
func (r *Room) Life(ctx context.Context, id string, generation int64) (*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return r.Store.History.Life(ctx, id, generation)
}
