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
//
// Each branch has a bound (see head), so stragglers are found some seconds later. Heads move
// while there is nothing to do; while there is, the jobs walk the same keys.
func (s *Tasks) Chores(ctx context.Context) (Chores, error) {
	now := s.Clock.Now()
	looks := map[*head]look{}
	due := func(h *head, field string, at time.Time) bson.D {
		l := h.begin(at, s.local.Monotonic())
		looks[h] = l
		return bson.D{d(field, l.upTo(at)), present}
	}
	nothing := func(h *head) { h.end(looks[h], time.Time{}) }
	outbox, expire, archive := s.head(IndexOutbox), s.head(IndexExpire), s.head(IndexArchive)
	var c Chores
	type times struct {
		OutboxAt  time.Time `bson:"outbox_at"`
		ExpireAt  time.Time `bson:"expire_at"`
		ArchiveAt time.Time `bson:"archive_at"`
	}
	found, err := readAll[times](ctx, s.tasks, "looking for upkeep", bson.D{d("$or", bson.A{
		due(outbox, "outbox_at", now.Add(-leftOver)), due(expire, "expire_at", now), due(archive, "archive_at", now),
	})}, options.Find().SetLimit(20).SetProjection(bson.D{d("_id", 0), d("outbox_at", 1), d("expire_at", 1), d("archive_at", 1)}))
	if err != nil {
		return c, err
	}
	for _, f := range found {
		c.Outbox = c.Outbox || !f.OutboxAt.IsZero()
		c.Expired = c.Expired || !f.ExpireAt.IsZero()
		c.Archive = c.Archive || !f.ArchiveAt.IsZero()
	}
	if len(found) == 20 { // there is much to do, and not all kinds need be among the first
		c = Chores{Outbox: true, Expired: true, Archive: true}
	}
	if !c.Expired {
		nothing(expire)
	}
	if !c.Archive {
		nothing(archive)
	}
	if !c.Outbox {
		nothing(outbox)
		past := s.head(IndexOutbox, "history")
		n, err := s.history.CountDocuments(ctx, due(past, "outbox_at", now.Add(-leftOver)), options.Count().SetLimit(1).SetHint(IndexOutbox))
		if err != nil {
			return c, explain(err, "looking for upkeep")
		}
		if c.Outbox = n > 0; !c.Outbox {
			nothing(past)
		}
	}
	return c, nil
}

// ExpiredFrom is where a look at expired tasks begins. The zero value is the beginning.
type ExpiredFrom struct{ place }

// Leave leaves a task that was found out of the next looks.
func (f *ExpiredFrom) Leave(t *model.Task) { f.leave(t.ID, t.ExpireAt) }

// Expired finds tasks that nobody started by their time, the longest expired first; stragglers (see
// head) some seconds late. The next look begins at the last one. Index: expire.
func (s *Tasks) Expired(ctx context.Context, from *ExpiredFrom, limit int) ([]*model.Task, error) {
	h := s.head(IndexExpire)
	l := h.begin(s.Clock.Now(), s.local.Monotonic())
	begins := from.at.IsZero()
	filter := append(from.narrow(l, "expire_at"), present)
	found, err := s.findReadable(ctx, "finding expired tasks", filter,
		options.Find().SetSort(bson.D{d("expire_at", 1)}).SetHint(IndexExpire).SetLimit(int64(limit)).SetProjection(forRules), nil)
	if err != nil {
		return nil, err
	}
	if begins {
		var first time.Time
		if len(found) > 0 {
			first = found[0].ExpireAt
		}
		h.end(l, first)
	}
	if len(found) > 0 {
		from.reach(found[len(found)-1].ExpireAt)
	}
	return found, nil
}
