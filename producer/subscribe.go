package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/follow"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// EventFilter selects events of tasks. An event must match all fields; a zero field matches
// every event.
type EventFilter struct {
	Tenant string            // model.NoTenant for tasks without one
	Types  []string          // any of them; at most 100
	Key    string            // exact
	Kinds  []model.EventKind // any of them
	// After resumes after the event with this token, see model.TaskEvent, or at the position
	// that [Subscription.Token] returned; "" starts now. The other fields may differ from the
	// earlier filter. The server keeps events only for some time, hours or days. If it no
	// longer has all events since the token, the error is [model.ErrMissed].
	After string
}

// openPatience is how long Subscribe waits for a server that is down, such as one without a primary, if its context does not
// end before.
const openPatience = 30 * time.Second

// maxEventTypes bounds the types of one filter: they are one regular expression.
const maxEventTypes = 100

func (f *EventFilter) validate() error {
	if f.Tenant != "" {
		if err := input.Name("tenant", f.Tenant); err != nil {
			return err
		}
	}
	if len(f.Types) > maxEventTypes {
		return input.Invalid("types", "are %d; at most %d are allowed", len(f.Types), maxEventTypes)
	}
	for _, t := range f.Types {
		if err := input.Name("types", t); err != nil {
			return err
		}
	}
	if f.Key != "" {
		if err := input.Key(f.Key); err != nil {
			return err
		}
	}
	for _, k := range f.Kinds {
		if !slices.Contains(codec.EventKinds, k) {
			return input.Invalid("kinds", "has %q; want some of %s", k, input.Names(codec.EventKinds))
		}
	}
	return nil
}

// Subscribe streams the events of all tasks in the fleet, from now on or after the filter's
// After. It delivers every event that happens after Subscribe has returned, in order and at
// least once, while the subscription is open. After a broken connection it resumes where it
// stopped.
//
// An event is delivered once a majority of the deployment has stored the write, usually within
// milliseconds. It contains only what the write itself contains. To see the rest of the task,
// read it; it may have changed since. Pings, checkpoints and steps cause no events.
//
// Each change stream is a load on the database, so the fleet has few seats: two subscriptions
// for each set of types, four in total. To serve many listeners, subscribe once. Behind mongos,
// a subscription opens one stream on each shard. An event then arrives when every shard has
// written something after it. With an idle shard this takes up to ten seconds (MongoDB's
// periodicNoopIntervalSecs). A slow reader delays only itself, and misses events only if it is
// hours behind.
//
// If no seat is free, or the deployment has no change streams, the error is a *[model.NoStreamError].
// A bad filter or token is a *model.InvalidError. Subscribe waits for a server that is down, for half a minute at most.
//
// Close the subscription after use; [Producer.Close] also closes it. ctx applies only to the
// call of Subscribe.
func (p *Producer) Subscribe(ctx context.Context, filter EventFilter) (*Subscription, error) {
	s, err := p.subscribe(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("subscribing to events: %w", err)
	}
	return s, nil
}

func (p *Producer) subscribe(ctx context.Context, filter EventFilter) (*Subscription, error) {
	if err := filter.validate(); err != nil {
		return nil, err
	}
	token, err := store.ParseToken(filter.After)
	if err != nil {
		return nil, err
	}
	if err := p.room.Prepare(store.Outside(ctx)); err != nil {
		return nil, err
	}
	s := &Subscription{
		events: make(chan model.TaskEvent), opened: make(chan struct{}), done: make(chan struct{}),
	}
	running, ended, err := p.subscriptions.begin(s)
	if err != nil {
		return nil, err
	}
	of := store.EventFilter{Tenant: filter.Tenant, Types: slices.Compact(slices.Sorted(slices.Values(filter.Types))), Key: filter.Key, Kinds: slices.Clone(filter.Kinds)}
	began := clock.Read(p.room.Store.Local())
	f := follow.Follower[*store.EventStream]{
		Store: p.room.Store, Of: of.Types, Renewal: p.subscriptions.renewal,
		Open: func(ctx context.Context, token bson.Raw) (*store.EventStream, error) {
			stream, err := p.room.Store.Events(ctx, of, token)
			if err == nil {
				s.begun(stream.Token())
			}
			return stream, err
		},
		Take: func(ctx context.Context, stream *store.EventStream) error { return s.take(ctx, stream, running.Done()) },
		// An error before the first stream was open is the answer of Subscribe, at once or after a while.
		Ends: func(err error) bool {
			return !s.isOpen() && (!store.Unreachable(err) || began.Since(p.room.Store.Local()) > openPatience)
		},
	}
	go func() {
		s.err = f.Run(running, token)
		if errors.As(s.err, new(*model.NoStreamError)) {
			s.err = fmt.Errorf("%w; Await works without one, it polls", s.err)
		}
		s.cancel(s.err)
		ended()
		close(s.done)
	}()
	select {
	case <-s.opened:
		return s, nil
	case <-s.done:
		return nil, s.err
	case <-ctx.Done():
		s.cancel(errUnsubscribed)
		return nil, context.Cause(ctx)
	}
}

// subscriptions are those of a producer that are open.
type subscriptions struct {
	renewal time.Duration // of seats; 0 = [follow.SeatRenewal]

	mu     sync.Mutex
	closed bool
	open   map[*Subscription]struct{}
}

// begin makes the context that the subscription runs in; ended must be called at its end.
func (o *subscriptions) begin(s *Subscription) (running context.Context, ended func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, nil, ErrClosed
	}
	running, s.cancel = context.WithCancelCause(context.Background())
	if o.open == nil {
		o.open = map[*Subscription]struct{}{}
	}
	o.open[s] = struct{}{}
	return running, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, s)
	}, nil
}

// close ends them all and refuses new ones.
func (o *subscriptions) close(ctx context.Context) error {
	o.mu.Lock()
	o.closed = true
	open := slices.Collect(maps.Keys(o.open))
	o.mu.Unlock()
	for _, s := range open {
		s.cancel(ErrClosed)
	}
	for _, s := range open {
		if err := s.Close(ctx); err != nil {
			return err
		}
	}
	return nil
}
