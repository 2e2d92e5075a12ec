package producer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// subscriptionRenewal is how often a subscription's seat is extended.
	subscriptionRenewal = store.SeatLease * 2 / 3
	// longestStream is how long one change stream is kept before it is opened again where
	// it was. The contexts of its calls need a deadline: without one, the driver would lay
	// the client's own timeout, which is for calls, over each wait for an event.
	longestStream = 24 * time.Hour
	// firstReopen and lastReopen bound the pauses between tries to open a stream again.
	firstReopen = 50 * time.Millisecond
	lastReopen  = 5 * time.Second
	// permitCall bounds a call about a seat, and the closing of a stream.
	seatCall = 5 * time.Second
)

// Subscription is an open stream of events, see [Producer.Subscribe]. It holds one of the
// fleet's few seats until [Subscription.Close]. Its methods are safe for concurrent use; each
// event is returned once.
type Subscription struct {
	store   *store.Store
	filter  store.EventFilter
	holder  string
	seat    *store.Seat
	renewal time.Duration
	cancel  context.CancelCauseFunc

	events chan model.TaskEvent // without room: what was taken from it was returned
	done   chan struct{}        // closed at the end, after err was set
	err    error

	mu    sync.Mutex
	token string
}

// Next waits for the next event, also while the database is unavailable. Any error except that
// of ctx ends the subscription, and later calls return it again: [model.ErrMissed],
// *[model.NoStreamError] if the subscription lost its seat during an outage, [ErrClosed] after Close
// of the subscription or the producer, or a refusal by the database.
func (s *Subscription) Next(ctx context.Context) (model.TaskEvent, error) {
	if ctx.Err() != nil {
		return model.TaskEvent{}, fmt.Errorf("waiting for an event: %w", context.Cause(ctx))
	}
	select {
	case e := <-s.events:
		s.seen(e.Token) // before the caller can ask for it
		return e, nil
	case <-s.done:
		return model.TaskEvent{}, fmt.Errorf("waiting for an event: %w", s.err)
	case <-ctx.Done():
		return model.TaskEvent{}, fmt.Errorf("waiting for an event: %w", context.Cause(ctx))
	}
}

// All is [Subscription.Next] as a range loop. The loop ends after the first error.
func (s *Subscription) All(ctx context.Context) iter.Seq2[model.TaskEvent, error] {
	return func(yield func(model.TaskEvent, error) bool) {
		for {
			e, err := s.Next(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Token returns the position up to which all events were returned, for [EventFilter.After]. It
// advances with each event, and about once a minute while there are none.
func (s *Subscription) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Close ends the subscription and releases its seat. It is safe to call repeatedly. ctx limits
// the wait; if it ends first, the seat expires on its own within 90 seconds.
func (s *Subscription) Close(ctx context.Context) error {
	s.cancel(errUnsubscribed)
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing a subscription: %w", context.Cause(ctx))
	}
}

func (s *Subscription) seen(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// run hands over events until ctx ends or the stream is lost.
func (s *Subscription) run(ctx context.Context, stream *store.EventStream, ended func()) {
	var beside sync.WaitGroup
	beside.Go(func() { s.keepSeat(ctx) })
	s.err = s.follow(ctx, stream)
	s.cancel(s.err)
	beside.Wait()
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
	defer cancel()
	_ = s.store.Seats.Release(call, s.seat, s.holder) // else it lapses
	ended()
	close(s.done)
}

// follow reads streams, one after the other, until one of them is lost for good.
func (s *Subscription) follow(ctx context.Context, stream *store.EventStream) error {
	for pause := firstReopen; ; {
		began := s.store.Local().Monotonic()
		token, err := s.read(ctx, stream)
		if s.store.Local().Monotonic()-began > lastReopen {
			pause = firstReopen
		}
		for stream = nil; stream == nil; {
			if over := s.over(ctx, token, err); over != nil {
				return over
			}
			if err != nil {
				clock.Pause(ctx, pause/2+rand.N(pause))
				pause = min(2*pause, lastReopen)
			}
			call, cancel := context.WithTimeout(ctx, seatCall)
			stream, err = s.store.Events(call, s.filter, token)
			cancel()
		}
	}
}

// over is why there is no going on after an error; nil when there is.
func (s *Subscription) over(ctx context.Context, token string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case store.EventsLost(err):
		return missed(err)
	case err != nil && !store.Unreachable(err):
		return err
	case token == "":
		return missed(errNoPlace) // to begin again now would miss events silently
	default:
		return nil
	}
}

// read hands over what one stream tells and closes it. The token is where to go on; the
// error is nil when it was merely open for long enough.
func (s *Subscription) read(ctx context.Context, stream *store.EventStream) (token string, err error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, longestStream)
	defer cancel()
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	s.seen(stream.Token())
	for {
		e, ok, err := stream.Next(ctx)
		switch {
		case whole.Err() == nil && ctx.Err() != nil:
			return stream.Token(), nil
		case err != nil:
			return stream.Token(), err
		case !ok:
			s.seen(stream.Token())
			continue
		}
		select {
		case s.events <- e:
		case <-whole.Done():
			return s.Token(), context.Cause(whole)
		}
	}
}

// keepSeat extends the seat, and ends the subscription when it is lost for good.
func (s *Subscription) keepSeat(ctx context.Context) {
	ticks := time.NewTicker(s.renewal)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		call, cancel := context.WithTimeout(ctx, seatCall)
		kept, err := s.store.Seats.Renew(call, s.seat, s.holder)
		if err == nil && !kept { // it lapsed, and somebody else was quicker: is there another?
			var other *store.Seat
			if other, err = s.store.Seats.AcquireSubscription(call, s.filter.Types, s.holder); err == nil && other == nil {
				cancel()
				s.cancel(errSeatLost)
				return
			}
			if err == nil {
				s.seat = other
			}
		}
		cancel()
		next := s.renewal
		if err != nil { // the seat lapses soon
			next /= 12
		}
		ticks.Reset(next)
	}
}

var errSeatLost = noStream("its seat lapsed while the database was unavailable, and other subscriptions hold all seats now", true)

// noStream is the error of a subscription that cannot begin, or go on.
func noStream(reason string, later bool) error {
	return fmt.Errorf("%w; Await works without one, it polls", &model.NoStreamError{Reason: reason, Later: later})
}

// missed is the error of a subscription that has lost its place; err is the server's.
func missed(err error) error {
	return fmt.Errorf("%w, the server no longer has all that happened: %w", model.ErrMissed, err)
}

// errUnsubscribed is the [ErrClosed] of a subscription that was closed itself.
var errUnsubscribed = fmt.Errorf("the subscription or %w", ErrClosed)

var errNoPlace = errors.New("the change stream returned no resume token")
