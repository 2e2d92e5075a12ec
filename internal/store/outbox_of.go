package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// endFields are what a follower needs to know of the end of a task.
var endFields = bson.D{
	d("generation", 1), d("status", 1), d("created_at", 1), d("finished_at", 1), d("error_info", 1), d("remark", 1),
	d("origin", 1), d("outbox", 1),
	d("worker_states.claimed_at", 1), d("worker_states.success_time", 1), d("worker_states.fail_time", 1), d("worker_states.fail_kind", 1),
	d("worker_states.parked", 1), d("worker_states.unstarted", 1),
	d("checkpoint.http_call", 1), d("worker_states.checkpoint.http_call", 1), // of a run's call; of other checkpoints nothing
}

// OutboxesOf reads, of the given tasks, those of which an entry of the kind is left, with the
// fields that tell of their end alone; at most a few thousand ids. A document that this
// release cannot read is left out: whoever looks for all finds and names it. Index: _id.
func (s *Tasks) OutboxesOf(ctx context.Context, ids []string, kind string) (lives []OutboxLife, err error) {
	const doing = "looking for the outcomes of some tasks"
	cur, err := s.tasks.Find(ctx, bson.D{d("_id", in(ids)), d("outbox.kind", kind)}, options.Find().SetProjection(endFields))
	if err != nil {
		return nil, explain(err, doing)
	}
	defer func() { _ = cur.Close(ctx) }() // of one that is read to its end: never fails
	var read codec.TaskReader
	for cur.Next(ctx) {
		if t, err := read.Read(cur.Current); err == nil {
			lives = append(lives, OutboxLife{Task: t})
		}
	}
	return lives, explain(cur.Err(), doing)
}

// Executing are those of the given tasks that a worker holds; at most a few thousand ids.
// Index: _id.
func (s *Tasks) Executing(ctx context.Context, ids []string) ([]string, error) {
	const doing = "looking for runs that have begun"
	cur, err := s.tasks.Find(ctx, bson.D{d("_id", in(ids)), d("status", model.StatusExecuting)}, options.Find().SetProjection(bson.D{d("_id", 1)}))
	if err != nil {
		return nil, explain(err, doing)
	}
	var found []struct {
		ID string `bson:"_id"`
	}
	err = cur.All(ctx, &found)
	executing := make([]string, len(found))
	for i, f := range found {
		executing[i] = f.ID
	}
	return executing, explain(err, doing)
}
