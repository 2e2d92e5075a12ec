package producer

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Subscription is an open stream of events, see [Producer.Subscribe]. It holds one of the
// fleet's few seats until [Subscription.Close]. Its methods are safe for concurrent use; each
// event is returned once.
type Subscription struct {
	cancel context.CancelCauseFunc

	events chan model.TaskEvent // without room: what was taken from it was returned
	opened chan struct{}        // closed when the first stream is open
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

// begun notes that a stream is open, and where it begins.
func (s *Subscription) begun(token bson.Raw) {
	s.seen(store.TokenText(token))
	if !s.isOpen() {
		close(s.opened)
	}
}

func (s *Subscription) isOpen() bool {
	select {
	case <-s.opened:
		return true
	default:
		return false
	}
}

// take hands over the next event, whenever the caller takes it: after the end of ctx, too, since the stream is behind it.
func (s *Subscription) take(ctx context.Context, stream *store.EventStream, closed <-chan struct{}) error {
	e, ok, err := stream.Next(ctx)
	if err != nil {
		return err
	}
	if !ok {
		s.seen(store.TokenText(stream.Token()))
		return nil
	}
	select {
	case s.events <- e:
		return nil
	case <-closed:
		return errUnsubscribed
	}
}

// errUnsubscribed is the [ErrClosed] of a subscription that was closed itself.
var errUnsubscribed = fmt.Errorf("the subscription or %w", ErrClosed)
