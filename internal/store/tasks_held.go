package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// mostRunning is how many running tasks [Tasks.Held] looks at.
const mostRunning = 10_000

// Held is an open execution with its task.
type Held struct {
	TaskID string
	Type   string
	State  model.WorkerState
}

// Held reads the open executions of workers (none = of all), by type and end of the lease, at most limit. It looks at running
// tasks alone, whatever else is stored, and only at those of the types if any are named. more says that there are
// others, or that so many tasks run that it did not look at all of them. Index: lapse.
func (s *Tasks) Held(ctx context.Context, workers, types []string, limit int) (held []Held, more bool, err error) {
	const doing = "reading what workers hold"
	running := bson.D{present, d("lapse_at", sinceEver)}
	if len(types) > 0 {
		running[0] = d("type", in(types))
	}
	n, err := s.tasks.CountDocuments(ctx, running, options.Count().SetHint(IndexLapse).SetLimit(mostRunning+1))
	if err != nil {
		return nil, false, explain(err, doing)
	}
	open := bson.D{d("success_time", absent), d("fail_time", absent)}
	if len(workers) > 0 {
		open = append(open, d("worker_id", in(workers)))
	}
	type task struct {
		ID     string `bson:"_id"`
		Type   string
		States []model.WorkerState `bson:"worker_states"`
	}
	docs, err := aggregated[task](ctx, s.tasks, doing, mongo.Pipeline{
		{d("$match", running)}, {d("$limit", mostRunning)}, {d("$match", bson.D{d("worker_states", bson.D{d("$elemMatch", open)})})}, {d("$limit", limit+1)},
		{d("$project", fields("type", "worker_states"))},
	}, options.Aggregate().SetHint(IndexLapse))
	if err != nil {
		return nil, false, err
	}
	wanted := make(map[string]bool, len(workers))
	for _, id := range workers {
		wanted[id] = true
	}
	for _, doc := range docs {
		for _, w := range doc.States {
			if lifecycle.Open(&w) && (len(workers) == 0 || wanted[w.WorkerID]) {
				held = append(held, Held{doc.ID, doc.Type, w})
			}
		}
	}
	more = n > mostRunning || len(held) > limit
	return held[:min(limit, len(held))], more, nil
}
