package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// StreamAwait is how long the server waits for an event before it answers empty. Each
// answer is a command of an idle worker; events do not wait for it. Many proxies break a connection on which nothing
// moves for a minute.
const StreamAwait = 45 * time.Second

// ErrStreamEnded is returned when the server ended a stream, as it does when the collection is dropped.
var ErrStreamEnded = errors.New("the change stream ended")

// watched is a change stream that can go on from a place.
type watched struct{ cs *mongo.ChangeStream }

// watch opens a change stream of a collection or a database from the place of a token on, nil = from now on.
// Streams are majority reads by nature; any other concern is refused.
func watch(ctx context.Context, of interface {
	Watch(ctx context.Context, pipeline any, opts ...options.Lister[options.ChangeStreamOptions]) (*mongo.ChangeStream, error)
}, token bson.Raw, stages ...bson.D) (watched, error) {
	// The server opens a stream of no first batch at once, with a place to go on from
	// (SERVER-38413). Otherwise it would look through all that was written since the token
	// before it answers, which may take longer than a caller waits for an answer.
	o := options.ChangeStream().SetMaxAwaitTime(StreamAwait).SetBatchSize(0)
	if token != nil {
		o.SetResumeAfter(token)
	}
	cs, err := of.Watch(ctx, mongo.Pipeline(stages), o)
	return watched{cs}, explain(err, "opening a change stream")
}

// next waits for the next event. ok is false if there was none for [StreamAwait], so that the token moves on.
func (w watched) next(ctx context.Context) (ok bool, err error) {
	if w.cs.TryNext(ctx) {
		return true, nil
	}
	err = explain(w.cs.Err(), "waiting for the change stream")
	if err == nil && w.cs.ID() == 0 {
		err = ErrStreamEnded
	}
	return false, err
}

// Token is the place in the stream up to which everything was returned.
func (w watched) Token() bson.Raw { return slices.Clone(w.cs.ResumeToken()) }

// Close ends the stream.
func (w watched) Close(ctx context.Context) error { return w.cs.Close(ctx) }
