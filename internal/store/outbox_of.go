package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// endFields are what is read of a life that has ended: who is told of the end, and what is decided about it. Many
// ends may wait, so what may be large is not among them: [Tasks.LivesPage] reads it of some.
var endFields = fields("task_id", "generation", "tenant", "status", "created_at", "start_time", "finished_at", "error_info", "remark", "origin", "trace",
	"outbox", "outbox_at", "worker_states.claimed_at", "worker_states.success_time", "worker_states.fail_time", "worker_states.fail_kind",
	"worker_states.parked", "worker_states.unstarted",
	"checkpoint.http_call", "worker_states.checkpoint.http_call", // of a run's call; of other checkpoints nothing
)

// OutboxesOf reads, of the given tasks, those of which an entry of the kind is left, with the
// fields that tell of their end alone, as a failover cannot undo it; at most a few thousand ids. A document that this
// release cannot read is left out: whoever looks for all finds and names it. Index: _id.
func (s *Tasks) OutboxesOf(ctx context.Context, ids []string, kind string) (lives []OutboxLife, err error) {
	const doing = "looking for the outcomes of some tasks"
	var read codec.TaskReader
	err = readEach(ctx, s.durable(s.tasks), doing, bson.D{d("_id", in(ids)), d("outbox.kind", kind)}, options.Find().SetProjection(endFields), func(doc bson.Raw) bool {
		if t, err := read.Read(doc); err == nil {
			lives = append(lives, OutboxLife{Task: t})
		}
		return true
	})
	return lives, err
}

// LivesPage reads that part of the first n of the given lives again, with about [pageBytes] together, in their order.
// One that is gone is nil. [model.UnreadableError] for one that cannot be read. n is 0 without lives alone.
// Indexes: _id of both collections.
func (s *Tasks) LivesPage(ctx context.Context, lives []OutboxLife, part Part) (out []*model.Task, n int, err error) {
	ids, of := make([]string, len(lives)), make(map[string]*OutboxLife, len(lives))
	for i := range lives {
		ids[i] = lifeID(lives[i].ID, lives[i].Generation)
		of[ids[i]] = &lives[i]
	}
	found, n, err := pageOf(ids, func(ids []string, most int) (map[string]*model.Task, int, error) {
		return s.lives(ctx, ids, of, part, most)
	})
	if err != nil {
		return nil, 0, err
	}
	out = make([]*model.Task, n)
	for i, id := range ids[:n] {
		if t, there := found[id]; there && t == nil {
			return nil, 0, CannotRead(lives[i].ID)
		}
		out[i] = found[id]
	}
	return out, n, nil
}

// lives reads lives by their ids in the history: there, unless they are among the tasks. It stops when it has read so
// many bytes; 0 = never.
func (s *Tasks) lives(ctx context.Context, ids []string, of map[string]*OutboxLife, part Part, most int) (out map[string]*model.Task, size int, err error) {
	var present []string
	for _, id := range ids {
		if l := of[id]; !l.InHistory {
			present = append(present, l.ID)
		}
	}
	tasks, size, err := s.byIDsWithin(ctx, s.tasks, "reading tasks by id", present, part.of(len(present)), most)
	if err != nil {
		return nil, 0, err
	}
	out = make(map[string]*model.Task, len(ids))
	var moved []string
	for _, id := range ids {
		l := of[id]
		if t, there := tasks[l.ID]; there && !l.InHistory && (t == nil || t.Generation == l.Generation) {
			out[id] = t
		} else {
			moved = append(moved, id)
		}
	}
	if len(moved) == 0 || most > 0 && size >= most {
		return out, size, nil
	}
	// After the tasks: what moves in between is found here.
	more, err := s.past(ctx, moved, part, rest(most, size), func(doc bson.Raw, life *model.Task) {
		id, _ := doc.Lookup("_id").StringValueOK()
		out[id] = life
	})
	return out, size + more, err
}

// Ends reads [End] of tasks, as [Tasks.ByIDs] does. Index: _id.
func (s *Tasks) Ends(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.tasks, "reading the states of tasks", ids, options.Find().SetProjection(endFields))
}

// Unended is [Tasks.Ends] of those that have not ended. Index: _id.
func (s *Tasks) Unended(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	out := make(map[string]*model.Task, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	open := in([]model.Status{model.StatusNew, model.StatusExecuting, model.StatusError})
	tasks, _, _, err := s.readable(ctx, s.tasks, "reading the states of tasks", bson.D{d("_id", in(ids)), d("status", open)}, End.of(len(ids)), 0)
	for _, t := range tasks {
		out[t.ID] = t
	}
	return out, err
}

// Begun are those of the given tasks that a worker holds, or that wait for their retry; at most a few
// thousand ids. Index: _id.
func (s *Tasks) Begun(ctx context.Context, ids []string) ([]string, error) {
	return readIDs(ctx, s.tasks, "looking for runs that have begun", bson.D{d("_id", in(ids)), d("status", in([]model.Status{model.StatusExecuting, model.StatusError}))})
}
