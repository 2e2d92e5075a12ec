package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// Chores is what one look found that upkeep has to do.
type Chores struct {
	Outbox  bool // something must follow the end of a task, for longer than a moment
	Expired bool // a task that nobody started in time
	Archive bool // an ended task that is to move to the history
}

// leftOver is how long an outbox entry is left to the process that ended the task.
const leftOver = 5 * time.Second

// Chores looks whether upkeep has anything to do, with one query over the three indexes
// (outbox, expire, archive: each branch of the $or by its own) and one over the history's
// outbox. Most of the time both find nothing.
func (s *Store) Chores(ctx context.Context) (Chores, error) {
	now := s.Clock.Now()
	due := func(field string, at time.Time) bson.D { return bson.D{d(field, bson.D{d("$lte", at)}), present} }
	var c Chores
	cur, err := s.tasks.Find(ctx, bson.D{d("$or", bson.A{
		due("outbox_at", now.Add(-leftOver)), due("expire_at", now), due("archive_at", now),
	})}, options.Find().SetLimit(20).SetProjection(bson.D{d("_id", 0), d("outbox_at", 1), d("expire_at", 1), d("archive_at", 1)}))
	if err != nil {
		return c, explain(err, "looking for upkeep")
	}
	var found []struct {
		OutboxAt  time.Time `bson:"outbox_at"`
		ExpireAt  time.Time `bson:"expire_at"`
		ArchiveAt time.Time `bson:"archive_at"`
	}
	if err := cur.All(ctx, &found); err != nil {
		return c, explain(err, "looking for upkeep")
	}
	for _, f := range found {
		c.Outbox = c.Outbox || !f.OutboxAt.IsZero()
		c.Expired = c.Expired || !f.ExpireAt.IsZero()
		c.Archive = c.Archive || !f.ArchiveAt.IsZero()
	}
	if len(found) == 20 { // there is much to do, and not all kinds need be among the first
		c = Chores{Outbox: true, Expired: true, Archive: true}
	}
	if !c.Outbox {
		n, err := s.history.CountDocuments(ctx, due("outbox_at", now.Add(-leftOver)), options.Count().SetLimit(1).SetHint(IndexOutbox))
		if err != nil {
			return c, explain(err, "looking for upkeep")
		}
		c.Outbox = n > 0
	}
	return c, nil
}

// Expired finds tasks that nobody started by their time. Index: expire.
func (s *Store) Expired(ctx context.Context, limit int) ([]*model.Task, error) {
	return s.findReadable(ctx, "finding expired tasks", bson.D{d("expire_at", bson.D{d("$lte", s.Clock.Now())}), present},
		options.Find().SetSort(bson.D{d("expire_at", 1)}).SetHint(IndexExpire).SetLimit(int64(limit)))
}
