// Package follow reads change streams, one after the other, for as long as somebody listens.
package follow

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Stream is one change stream.
type Stream interface {
	// Token is the place in the stream up to which everything was returned.
	Token() bson.Raw
	Close(ctx context.Context) error
}

// Follower reads streams while it holds a seat: each one is a load on the database. After an error a
// new stream goes on where the last one stopped. The seat is kept beside, however long the reader takes.
type Follower[S Stream] struct {
	Store *store.Store
	Of    []string // what the streams are about, such as /plans: followers of the same share seats
	Open  func(ctx context.Context, token bson.Raw) (S, error)
	// Take waits for what the stream says next, for [store.StreamAwait] at most, and hands it over.
	Take func(ctx context.Context, stream S) error
	// Ends says of errors that they end the loop, beside those that always do.
	Ends func(error) bool
	// Renewal is how often the seat is extended; 0 = [SeatRenewal].
	Renewal time.Duration
}

const (
	// SeatRenewal is how often a seat is extended.
	SeatRenewal = store.SeatLease * 2 / 3
	// longestStream is how long one change stream is kept before it is opened again where it was.
	// Its context needs a deadline: without one, the driver would lay the client's own timeout,
	// which is for calls, over each wait for an event.
	longestStream = 24 * time.Hour
	// seatCall bounds a call about a seat, and the opening and closing of a stream.
	seatCall = 5 * time.Second
	// firstReopen and lastReopen bound the pauses between tries after an error.
	firstReopen, lastReopen = 50 * time.Millisecond, 5 * time.Second
)

var (
	// ErrNoStreams says that the deployment has no change streams.
	ErrNoStreams = &model.NoStreamError{Reason: "this is a standalone server; make it a replica set (one member is enough)"}
	errNoSeat    = &model.NoStreamError{Reason: "other subscriptions hold all seats for these events, or for all events together", Later: true}
	errSeatLost  = &model.NoStreamError{Reason: "its seat lapsed while the database was unavailable, and other subscriptions hold all seats now", Later: true}
	errNoPlace   = fmt.Errorf("%w without a resume token", store.ErrStreamEnded)
)

// Run reads streams, the first from the token on (nil = from now on), until ctx ends, Take stops it, or
// nothing can go on: others hold all seats ([model.NoStreamError]), the server no longer has what happened since
// ([model.ErrMissed]), or it refuses, be it only the given token. It waits for a server that is down.
func (f *Follower[S]) Run(ctx context.Context, token bson.Raw) error {
	topology, err := f.Store.Topology(ctx)
	if err != nil {
		return err
	}
	if !topology.Subscriptions() {
		return ErrNoStreams
	}
	caller := ctx
	ctx, stop := context.WithCancelCause(ctx)
	s := seat{store: f.Store, of: f.Of, holder: "follow/" + rand.Text()}
	var keeping sync.WaitGroup
	defer func() {
		stop(nil)
		keeping.Wait()
		s.leave(ctx)
	}()
	for pause, seated, opened := firstReopen, false, false; ; {
		began := f.Store.Local().Monotonic()
		var err error
		if !seated {
			if err = s.take(ctx); err == nil {
				seated = true
				keeping.Go(func() { stop(s.keep(ctx, cmp.Or(f.Renewal, SeatRenewal))) })
			}
		}
		if err == nil {
			var stream S
			if stream, err = f.open(ctx, token); err == nil {
				opened = true
				token, err = f.read(ctx, stream)
			} else if !opened {
				err = store.TokenRefused(store.TokenText(token), err)
			}
		}
		if f.Store.Local().Monotonic()-began > lastReopen {
			pause = firstReopen
		}
		switch {
		case err != nil && caller.Err() == nil && !errors.Is(err, context.Canceled) && !store.EventsLost(err) && f.Ends(err):
			return err // also when the seat was lost meanwhile
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case store.EventsLost(err):
			return fmt.Errorf("%w, the server no longer has all that happened: %w", model.ErrMissed, err)
		case err != nil && final(err):
			return err
		case opened && token == nil: // to begin again from now on would miss events silently
			return fmt.Errorf("%w: %w", model.ErrMissed, errNoPlace)
		case err != nil:
			clock.Pause(ctx, pause/2+mathrand.N(pause))
			pause = min(2*pause, lastReopen)
		}
	}
}

// final says that to try again is useless.
func final(err error) bool {
	return errors.As(err, new(*model.NoStreamError)) || errors.Is(err, model.ErrInvalid) || !store.Unreachable(err)
}

func (f *Follower[S]) open(ctx context.Context, token bson.Raw) (S, error) {
	ctx, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	return f.Open(ctx, token)
}

// read reads one stream, and returns where to go on. Without an error it was merely open for long enough.
func (f *Follower[S]) read(ctx context.Context, stream S) (bson.Raw, error) {
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	reading, cancel := context.WithTimeout(ctx, longestStream)
	defer cancel()
	for {
		err := f.Take(reading, stream)
		switch {
		case ctx.Err() == nil && reading.Err() != nil:
			return stream.Token(), nil
		case err != nil:
			return stream.Token(), err
		}
	}
}

// seat is the right to hold a stream open.
type seat struct {
	store  *store.Store
	of     []string
	holder string
	have   *store.Seat // once it is taken, of the goroutine that keeps it
}

// take takes a seat.
func (s *seat) take(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	if s.have, err = s.store.Seats.AcquireSubscription(ctx, s.of, s.holder); err == nil && s.have == nil {
		err = errNoSeat
	}
	return err
}

// keep extends the seat until ctx ends, or it is lost for good.
func (s *seat) keep(ctx context.Context, every time.Duration) error {
	for pause := every; clock.Pause(ctx, pause); {
		switch err := s.renew(ctx); {
		case errors.Is(err, errNoSeat):
			return errSeatLost
		case err != nil: // the seat lapses soon
			pause = every / 12
		default:
			pause = every
		}
	}
	return nil
}

// renew extends the seat, or takes another if it lapsed and somebody else was quicker.
func (s *seat) renew(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	kept, err := s.store.Seats.Renew(call, s.have, s.holder)
	if err != nil || kept {
		return err
	}
	other, err := s.store.Seats.AcquireSubscription(call, s.of, s.holder)
	if err == nil && other == nil {
		return errNoSeat
	}
	if err == nil {
		s.have = other
	}
	return err
}

func (s *seat) leave(ctx context.Context) {
	if s.have == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seatCall)
	defer cancel()
	_ = s.store.Seats.Release(ctx, s.have, s.holder) // else it lapses
}
