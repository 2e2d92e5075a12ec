package store

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// EndedTime bounds one look of [Tasks.Ended] and of [Tasks.Tally].
const EndedTime = 2 * time.Second

// Ended reads tasks that ended in (since, until], the last first, at most limit of them: those that stay for
// that long. more says that there may be others, which ended before from; a zero from says that it got nowhere. Of each
// task it reads only what tells when and how it ended.
//
// No index has the time of the end. But a task moves to the history at its end plus its retention, so those
// that ended within a time lie together in the index of that, retention by retention. Index: archive.
func (s *Tasks) Ended(ctx context.Context, since, until time.Time, retention time.Duration, limit int) (tasks []*model.Task, from time.Time, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, EndedTime)
	defer cancel()
	var read codec.TaskReader
	err = readEach(ctx, s.tasks, "reading tasks that ended lately", bson.D{d("archive_at", bson.D{d("$gt", since.Add(retention)), d("$lte", until.Add(retention))})},
		options.Find().SetHint(IndexArchive).SetSort(bson.D{d("archive_at", -1)}).SetLimit(int64(limit)).SetProjection(fields(
			"type", "tenant", "status", "created_at", "start_time", "finished_at", "archive_at", "worker_states.claimed_at", "worker_states.success_time", "worker_states.fail_time", "worker_states.unstarted")),
		func(doc bson.Raw) bool {
			limit--
			if at, ok := doc.Lookup("archive_at").TimeOK(); ok {
				from = at.Add(-retention)
			}
			// One that ended at another time has a retention of its own.
			if t, err := read.Read(doc); err == nil && t.FinishedAt.After(since) && !t.FinishedAt.After(until) {
				tasks = append(tasks, t)
			}
			return true
		})
	if errors.Is(err, context.DeadlineExceeded) {
		return tasks, from, true, nil
	}
	return tasks, from, limit <= 0, err
}

// Tally counts the tasks of a tenant, and of a type if one is named, by type and status: those that come first by
// id, at most limit. more says that there are others. Index: _id.
func (s *Tasks) Tally(ctx context.Context, tenant, typ string, limit int) (counts map[string]map[model.Status]int64, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, EndedTime)
	defer cancel()
	counts = map[string]map[model.Status]int64{}
	if err := addCounts(ctx, s.tasks, counts, d("$match", Filter{Tenant: tenant, Type: typ}.query()), d("$limit", limit)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return counts, true, nil
		}
		return nil, false, explain(err, "counting the tasks of a tenant")
	}
	sum := int64(0)
	for _, byStatus := range counts {
		for _, n := range byStatus {
			sum += n
		}
	}
	return counts, sum >= int64(limit), nil
}
