package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// endFields are what a follower needs to know of the end of a task.
var endFields = fields("generation", "status", "created_at", "finished_at", "error_info", "remark", "origin", "outbox",
	"worker_states.claimed_at", "worker_states.success_time", "worker_states.fail_time", "worker_states.fail_kind",
	"worker_states.parked", "worker_states.unstarted",
	"checkpoint.http_call", "worker_states.checkpoint.http_call", // of a run's call; of other checkpoints nothing
)

// OutboxesOf reads, of the given tasks, those of which an entry of the kind is left, with the
// fields that tell of their end alone; at most a few thousand ids. A document that this
// release cannot read is left out: whoever looks for all finds and names it. Index: _id.
func (s *Tasks) OutboxesOf(ctx context.Context, ids []string, kind string) (lives []OutboxLife, err error) {
	const doing = "looking for the outcomes of some tasks"
	var read codec.TaskReader
	err = readEach(ctx, s.tasks, doing, bson.D{d("_id", in(ids)), d("outbox.kind", kind)}, options.Find().SetProjection(endFields), func(doc bson.Raw) bool {
		if t, err := read.Read(doc); err == nil {
			lives = append(lives, OutboxLife{Task: t})
		}
		return true
	})
	return lives, err
}

// Executing are those of the given tasks that a worker holds; at most a few thousand ids.
// Index: _id.
func (s *Tasks) Executing(ctx context.Context, ids []string) ([]string, error) {
	return readIDs(ctx, s.tasks, "looking for runs that have begun", bson.D{d("_id", in(ids)), d("status", model.StatusExecuting)})
}
