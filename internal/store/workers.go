package store

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// HeartbeatInterval is how often a process writes its workers document.
const HeartbeatInterval = 30 * time.Second

// Worker is what a process says of itself in the collection workers.
type Worker struct {
	ID          string                `bson:"_id"`
	Host        string                `bson:"host"`
	PID         int                   `bson:"pid"`
	Version     string                `bson:"version"`
	Types       []string              `bson:"types"`
	Only        *lifecycle.Conditions `bson:"only,omitempty"` // what it takes of them; nil = everything
	Concurrency int                   `bson:"concurrency"`
	Running     int                   `bson:"running"`
	Stream      string                `bson:"stream"` // off, watching, polling
	StartedAt   time.Time             `bson:"started_at"`
	HeartbeatAt time.Time             `bson:"heartbeat_at,omitempty"` // the database's clock
}

// Alive says whether the worker was heard of lately: within three heartbeats.
func (w *Worker) Alive(now time.Time) bool {
	return now.Sub(w.HeartbeatAt) < 3*HeartbeatInterval
}

// Heartbeat writes the worker's document and reads the database's clock, in one round
// trip and from the one server that owns the document. Index: _id.
func (s *Workers) Heartbeat(ctx context.Context, w Worker) error {
	asked := clock.Read(s.local)
	set := bson.D{d("host", w.Host), d("pid", w.PID), d("version", w.Version), d("types", w.Types),
		d("concurrency", w.Concurrency), d("running", w.Running), d("stream", w.Stream)}
	update := bson.D{d("$currentDate", bson.D{d("heartbeat_at", true)})}
	if w.Only == nil {
		update = append(update, setAndUnset(set, bson.D{d("only", "")})...)
	} else {
		update = append(update, d("$set", append(set, d("only", w.Only))))
	}
	var doc Worker
	err := s.workers.FindOneAndUpdate(ctx, bson.D{d("_id", w.ID)}, update, returnAfter().SetUpsert(true)).Decode(&doc)
	if err != nil {
		return explain(err, "writing the worker's heartbeat")
	}
	s.Clock.observe(doc.HeartbeatAt, asked)
	if doc.StartedAt.IsZero() {
		_, err = s.workers.UpdateOne(ctx, bson.D{d("_id", w.ID)}, bson.D{d("$set", bson.D{d("started_at", doc.HeartbeatAt)})})
	}
	return explain(err, "writing the worker's heartbeat")
}

// Remove takes the worker's document away at its graceful stop. Index: _id.
func (s *Workers) Remove(ctx context.Context, id string) error {
	_, err := s.workers.DeleteOne(ctx, bson.D{d("_id", id)})
	return explain(err, "removing the worker's document")
}

// List lists all workers that were heard of in the last day, by id. Those whose document
// this release cannot read are left out, and the log says so. Index: _id, of which it reads all.
func (s *Workers) List(ctx context.Context) ([]Worker, error) {
	all, _, err := readReadable[Worker](ctx, s.core, s.workers, "listing workers", bson.D{})
	return all, err
}

// Page is [Workers.List] page by page: at most limit workers behind the given id. next is what the next page is
// behind; "" = there is none. Index: _id.
func (s *Workers) Page(ctx context.Context, after string, limit int) (workers []Worker, next string, err error) {
	workers, _, next, err = pageByID[Worker](ctx, s.core, s.workers, "listing workers", after, limit)
	return workers, next, err
}

// Alive returns the ids, ascending, of the workers that were heard of lately and serve one of the
// types. Index: heartbeat.
func (s *Workers) Alive(ctx context.Context, types []string) (ids []string, err error) {
	cur, err := s.workers.Find(ctx, bson.D{
		d("heartbeat_at", bson.D{d("$gte", s.Clock.Now().Add(-3*HeartbeatInterval))}), d("types", in(types)),
	}, options.Find().SetProjection(bson.D{d("_id", 1)}).SetBatchSize(manyWorkers))
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err == nil {
		err = cur.All(ctx, &docs)
	}
	for _, doc := range docs {
		ids = append(ids, doc.ID)
	}
	slices.Sort(ids)
	return ids, explain(err, "looking for live workers")
}

// manyWorkers are so many that one reply names all of a fleet.
const manyWorkers = 10_000
