package store

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// Part is what is read of a task: a projection. The other fields are zero then.
type Part struct{ fields bson.D }

// Parts of tasks.
var (
	Whole = Part{}
	// State says how far a task is, what its last error was, and who made it.
	State = Part{fields("task_id", "generation", "status", "created_at", "start_time", "error_info", "origin", "outbox.kind",
		"worker_states.claimed_at", "worker_states.success_time", "worker_states.fail_time", "worker_states.unstarted")}
	// End has the fields that engines need when a task ends, and the last call of an HTTP target.
	End = Part{endFields}
	// Queued is the state of a task with who may claim it.
	Queued = Part{append(State.fields[:len(State.fields):len(State.fields)], fields("tenant", "type", "category", "creator", "due_at", "options.specific_worker_ids")...)}
	// Output is the state of a task with its result.
	Output = Part{append(State.fields[:len(State.fields):len(State.fields)], d("result", 1))}
	// Returned is what the executions of a task returned, or why they failed.
	Returned = Part{fields("task_id", "generation", "status", "start_time", "finished_at", "error_info", "remark", "origin", "result",
		"options.concurrent_worker_count", "worker_states.exec_id", "worker_states.worker_id", "worker_states.success_time",
		"worker_states.fail_time", "worker_states.fail_kind", "worker_states.fail_reason", "worker_states.unstarted", "worker_states.returns")}
)

// of are the options of a query for that part of n documents, see byIDs.
func (p Part) of(n int) *options.FindOptionsBuilder {
	o := options.Find().SetBatchSize(int32(n + 1))
	if p.fields != nil {
		o.SetProjection(p.fields)
	}
	return o
}

// mostAtOnce is how many tasks one query reads.
const mostAtOnce = 1000

// LastLives reads the newest life of each task, from the history where it has moved there.
// Nothing is left of those that are missing; one that is there and cannot be read is nil.
// Indexes: _id; task of the history.
func (s *Tasks) LastLives(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.LastLivesOf(ctx, ids, Whole)
}

// LastLivesOf is [Tasks.LastLives] for callers that need only that part of them.
func (s *Tasks) LastLivesOf(ctx context.Context, ids []string, part Part) (map[string]*model.Task, error) {
	tasks := make(map[string]*model.Task, len(ids))
	for some := range slices.Chunk(ids, mostAtOnce) {
		found, _, err := s.lastLives(ctx, some, part, 0)
		if err != nil {
			return nil, err
		}
		maps.Copy(tasks, found)
	}
	return tasks, nil
}

// LastLivesPage is [Tasks.LastLives] of the first n of the tasks, with about [pageBytes] together. n is 0
// without ids alone, or with an error: they are those that it has read before. Indexes: those of [Tasks.LastLives].
func (s *Tasks) LastLivesPage(ctx context.Context, ids []string, part Part) (out map[string]*model.Task, n int, err error) {
	return pageOf(ids, func(ids []string, most int) (map[string]*model.Task, int, error) {
		return s.lastLives(ctx, ids, part, most)
	})
}

// pageOf reads the first n of the ids with about [pageBytes] together. read stops when it has read so many bytes;
// 0 = never.
func pageOf(ids []string, read func(ids []string, most int) (found map[string]*model.Task, size int, err error)) (out map[string]*model.Task, n int, err error) {
	const first = 8 // read whatever they have
	out = map[string]*model.Task{}
	for size, chunk := 0, first; n < len(ids) && size < pageBytes; {
		left := 0
		if n > 0 { // as many as there is room for, if they are as large as those before
			left = pageBytes - size
			chunk = min(mostAtOnce, max(1, left/max(1, size/n)))
		}
		some := ids[n:min(n+chunk, len(ids))]
		found, took, err := read(some, left)
		if err != nil {
			return out, n, err
		}
		size += took
		whole := left == 0 || took < left
		for _, id := range some { // what was cut off is not in the order of the ids
			t, there := found[id]
			if !there && !whole {
				return out, n, nil
			}
			if n++; there {
				out[id] = t
			}
		}
	}
	return out, n, nil
}

// lastLives stops when it has read so many bytes; 0 = never.
func (s *Tasks) lastLives(ctx context.Context, ids []string, part Part, most int) (out map[string]*model.Task, size int, err error) {
	out, size, err = s.byIDsWithin(ctx, s.tasks, "reading tasks by id", ids, part.of(len(ids)), most)
	if err != nil || most > 0 && size >= most {
		return out, size, err
	}
	var moved []string
	for _, id := range ids {
		if _, there := out[id]; !there {
			moved = append(moved, id)
		}
	}
	if len(moved) == 0 {
		return out, size, nil
	}
	// After the tasks: what moves in between is found here.
	const doing = "reading the history of tasks"
	last := map[string]string{} // ids of lives, by task
	names := options.Find().SetSort(fields("task_id", "generation")).SetHint(indexTask).SetProjection(fields("task_id"))
	err = readEach(ctx, s.history, doing, bson.D{d("task_id", in(moved))}, names, func(doc bson.Raw) bool {
		id, _ := doc.Lookup("task_id").StringValueOK()
		last[id], _ = doc.Lookup("_id").StringValueOK()
		return true
	})
	if err != nil || len(last) == 0 {
		return out, size, err
	}
	more, err := s.past(ctx, slices.Collect(maps.Values(last)), part, rest(most, size), func(doc bson.Raw, life *model.Task) {
		if id, ok := doc.Lookup("task_id").StringValueOK(); ok {
			out[id] = life
		}
	})
	return out, size + more, err
}

// rest is what is left of most bytes, of which some are read; 0 = any number.
func rest(most, size int) int {
	if most == 0 {
		return 0
	}
	return most - size
}

// past reads lives of the history. take gets one that cannot be read as nil. It stops when it has read so many bytes;
// 0 = never.
func (s *Tasks) past(ctx context.Context, lives []string, part Part, most int, take func(doc bson.Raw, life *model.Task)) (size int, err error) {
	err = readEach(ctx, s.history, "reading the history of tasks", bson.D{d("_id", in(lives))}, part.of(len(lives)), func(doc bson.Raw) bool {
		size += len(doc)
		life, err := decodeLife(doc, true)
		if err != nil {
			s.complain(s.history, doc, err)
			life = nil
		}
		take(doc, life)
		return most == 0 || size < most
	})
	return size, err
}
