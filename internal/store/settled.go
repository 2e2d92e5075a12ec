package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
)

// majorityTime is how long what was read may take to reach a majority.
const majorityTime = 5 * time.Second

// settled waits until a majority has the document that was read of the primary, and returns it. The filter names the _id
// and the state that was read. nil = the document has changed since. A failover may undo what only the primary has, so
// nobody may be told of that as done, and nothing may be kept of it. In a transaction, which a failover aborts, it does
// not wait. Index: _id.
func (s *core) settled(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOneOptionsBuilder) (bson.Raw, error) {
	if InTransaction(ctx) {
		raw, _, err := readOne[bson.Raw](ctx, coll, doing, filter, o)
		return raw, err
	}
	call, cancel := context.WithTimeout(ctx, majorityTime)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		raw, there, err := readOne[bson.Raw](call, s.durable(coll), doing, filter, o)
		if there || err != nil {
			return raw, err
		}
		if _, there, err = readOne[bson.Raw](call, coll, doing, filter, options.FindOne().SetProjection(fields("_id"))); !there || err != nil {
			return nil, err
		}
		if !clock.Pause(call, pause) {
			return nil, explain(call.Err(), doing)
		}
	}
}

// Stays reports whether a majority has the task as it was read. It waits until one does. false = it has changed
// meanwhile. Index: _id.
func (s *Tasks) Stays(ctx context.Context, t *model.Task) (bool, error) {
	if t.Generation == 0 || t.Rev == 0 {
		return true, nil // a document by hand: nothing tells its states apart
	}
	raw, err := s.settled(ctx, s.tasks, "waiting until a majority has task "+t.ID, asRead(t), options.FindOne().SetProjection(fields("_id")))
	return raw != nil, err
}

// AreAsRead says of which of the tasks a majority has now what was read. It does not wait. Index: _id.
func (s *Tasks) AreAsRead(ctx context.Context, tasks []*model.Task) (map[string]bool, error) {
	out := make(map[string]bool, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	ids := collect(tasks, func(t *model.Task) string { return t.ID })
	now, err := s.byIDs(ctx, s.durable(s.tasks), "reading tasks by id", ids, options.Find().SetProjection(fields("generation", "rev")))
	for _, t := range tasks {
		if is := now[t.ID]; is != nil && is.Generation == t.Generation && is.Rev == t.Rev {
			out[t.ID] = true
		}
	}
	return out, err
}

// asRead matches the task as it was read.
func asRead(t *model.Task) bson.D {
	return bson.D{d("_id", t.ID), d("generation", t.Generation), d("rev", t.Rev)}
}

// Stays is [Tasks.Stays] for a document that is decided about. Index: _id.
func (s *decided[T, P]) Stays(ctx context.Context, doc *T) (bool, error) {
	id, p := s.of(doc)
	filter := append(bson.D{d("_id", id)}, p.same()...)
	raw, err := s.settled(ctx, s.coll, "waiting until a majority has the "+s.one+" "+id, filter, options.FindOne().SetProjection(fields("_id")))
	return raw != nil, err
}
