// Package follow reads change streams, one after the other, for as long as somebody listens.
package follow

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
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
// new stream goes on where the last one stopped.
type Follower[S Stream] struct {
	Store *store.Store
	Of    string // what the streams are about, such as /plans: followers of one kind share seats
	Open  func(ctx context.Context, token bson.Raw) (S, error)
	// Take waits for what the stream says next, for [store.StreamAwait] at most, and hands it over.
	Take func(ctx context.Context, stream S) error
	// Ends says of errors of Open and Take that they end the loop, beside those of the database.
	Ends func(error) bool
}

// Errors of a [Follower].
var (
	// ErrNoStreams says that the deployment has no change streams.
	ErrNoStreams = errors.New("this is a standalone server; make it a replica set (one member is enough)")
	// ErrNoSeat says that others hold all seats.
	ErrNoSeat = errors.New("others hold all seats for change streams")
)

const (
	// longestStream is how long one change stream is kept before it is opened again where it was.
	// Its context needs a deadline: without one, the driver would lay the client's own timeout,
	// which is for calls, over each wait for an event.
	longestStream = 24 * time.Hour
	// seatRenewal is how often a seat is extended; a wait for an event may come on top of it.
	seatRenewal = store.SeatLease - store.StreamAwait - 10*time.Second
	// seatCall bounds a call about a seat, and the opening and closing of a stream.
	seatCall = 5 * time.Second
	// firstReopen and lastReopen bound the pauses between tries after an error.
	firstReopen, lastReopen = 50 * time.Millisecond, 5 * time.Second
)

// Run reads streams, the first from the token on (nil = from now on), until ctx ends, Take stops it, or
// nothing can go on: the seat went to somebody else, the server no longer has what happened since
// ([store.EventsLost]), or it refuses, be it only the given token. It waits for a server that is down.
func (f *Follower[S]) Run(ctx context.Context, token bson.Raw) error {
	topology, err := f.Store.Topology(ctx)
	if err != nil {
		return err
	}
	if !topology.Subscriptions() {
		return ErrNoStreams
	}
	s := seat{store: f.Store, of: f.Of, holder: "follow/" + rand.Text()}
	defer s.leave(ctx)
	given := store.TokenText(token)
	for pause := firstReopen; ; {
		err := s.keep(ctx)
		if err == nil {
			began := f.Store.Local().Monotonic()
			var stream S
			if stream, err = f.open(ctx, token); err == nil {
				given = "" // it is good
				token, err = f.read(ctx, stream, &s)
			} else {
				err = store.TokenRefused(given, err)
			}
			if f.Store.Local().Monotonic()-began > lastReopen {
				pause = firstReopen
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrNoSeat), errors.Is(err, model.ErrInvalid), err != nil && f.Ends(err), store.EventsLost(err), err != nil && !store.Unreachable(err):
			return err
		case err != nil:
			clock.Pause(ctx, pause/2+mathrand.N(pause))
			pause = min(2*pause, lastReopen)
		}
	}
}

func (f *Follower[S]) open(ctx context.Context, token bson.Raw) (S, error) {
	ctx, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	return f.Open(ctx, token)
}

// read reads one stream, and returns where to go on. Without an error it was merely open for long enough.
func (f *Follower[S]) read(ctx context.Context, stream S, s *seat) (bson.Raw, error) {
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
		if err := s.keep(ctx); err != nil {
			return stream.Token(), err
		}
	}
}

// seat is the right to hold a stream open.
type seat struct {
	store      *store.Store
	of, holder string
	have       *store.Seat
	renewed    time.Duration // monotonic
}

// keep takes a seat, or extends the one that it has.
func (s *seat) keep(ctx context.Context) error {
	now := s.store.Local().Monotonic()
	if s.have != nil && now-s.renewed < seatRenewal {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, seatCall)
	defer cancel()
	if s.have != nil {
		kept, err := s.store.Seats.Renew(ctx, s.have, s.holder)
		if err != nil {
			return err // the next try renews it: the lease does not last until the renewal after this one
		}
		if kept {
			s.renewed = now
			return nil
		}
		s.have = nil // it lapsed, and somebody else was quicker
	}
	var err error
	if s.have, err = s.store.Seats.AcquireSubscription(ctx, []string{s.of}, s.holder); err == nil && s.have == nil {
		err = ErrNoSeat
	}
	s.renewed = now
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
