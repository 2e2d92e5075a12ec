package store

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// OutboxLife is one life of a task of which something must follow: it lies among the
// tasks, or, when a new life began before, in the history.
type OutboxLife struct {
	*model.Task
	InHistory bool
}

// Outboxes finds lives whose outbox is of a time in [from, before] and has an entry of one
// of the kinds, the oldest first. Where there may be more, next is the time to go on from.
// Lives that this release cannot read are left out, and the log says so; unread is their number.
// Indexes: outbox of both collections; the kinds are looked at in the documents.
func (s *Store) Outboxes(ctx context.Context, kinds []string, from, before time.Time, limit int) (lives []OutboxLife, unread int, next time.Time, err error) {
	return s.outboxes(ctx, bson.D{d("outbox_at", bson.D{d("$gte", from), d("$lte", before)}), d("outbox.kind", in(kinds))}, limit)
}

// EmptyOutboxes finds those of which nothing is left but the mark: a process died between
// its last removal and the mark's, which are one write unless two removed at once.
// Indexes: outbox of both collections.
func (s *Store) EmptyOutboxes(ctx context.Context, before time.Time, limit int) ([]OutboxLife, error) {
	filter := bson.D{d("outbox_at", bson.D{d("$lte", before)}), d("outbox.0", bson.D{d("$exists", false)})}
	lives, _, _, err := s.outboxes(ctx, filter, limit)
	return lives, err
}

func (s *Store) outboxes(ctx context.Context, filter bson.D, limit int) (lives []OutboxLife, unread int, next time.Time, err error) {
	o := options.Find().SetSort(bson.D{d("outbox_at", 1)}).SetHint(IndexOutbox).SetLimit(int64(limit))
	for _, coll := range []*mongo.Collection{s.tasks, s.history} {
		cur, err := coll.Find(ctx, filter, o)
		if err != nil {
			return nil, 0, next, explain(err, "looking for outcomes")
		}
		n, last := 0, time.Time{}
		for ; cur.Next(ctx); n++ {
			last, _ = cur.Current.Lookup("outbox_at").TimeOK() // which the filter compared with a time
			life, err := decodeLife(cur.Current, coll == s.history)
			if err != nil {
				s.complain(coll, cur.Current, err)
				unread++
				continue
			}
			lives = append(lives, OutboxLife{Task: life, InHistory: coll == s.history})
		}
		if err := cur.Err(); err != nil {
			return nil, 0, next, explain(err, "looking for outcomes")
		}
		if n == limit && (next.IsZero() || last.Before(next)) {
			next = last
		}
	}
	return lives, unread, next, nil
}

// Carried is an outbox entry that has been carried out.
type Carried struct {
	Life  OutboxLife
	Entry model.OutboxEntry
}

// RemoveOutbox removes entries that were carried out; the last one of a life takes the
// mark with it. To remove what is gone does no harm. Neither raises the rev: nothing
// depends on them but the archiver, which looks for the mark. Index: _id.
func (s *Store) RemoveOutbox(ctx context.Context, carried []Carried) error {
	for coll, history := range map[*mongo.Collection]bool{s.tasks: false, s.history: true} {
		var last, other []mongo.WriteModel // of each entry: the removal where it is the last, and where it is not
		for _, c := range carried {
			if c.Life.InHistory != history {
				continue
			}
			id := bson.D{d("_id", c.Life.storedID())}
			alone := append(id[:1:1], d("outbox", bson.D{d("$size", 1)}), d("outbox.0.kind", c.Entry.Kind), d("outbox.0.rev", c.Entry.Rev))
			match := bson.D{d("kind", c.Entry.Kind), d("rev", c.Entry.Rev)}
			last = append(last, mongo.NewUpdateOneModel().SetFilter(alone).SetUpdate(bson.D{d("$unset", bson.D{d("outbox", ""), d("outbox_at", "")})}))
			other = append(other, mongo.NewUpdateOneModel().SetFilter(id).SetUpdate(bson.D{d("$pull", bson.D{d("outbox", match)})}))
		}
		if len(last) == 0 {
			continue
		}
		res, err := coll.BulkWrite(ctx, last, options.BulkWrite().SetOrdered(false))
		if err == nil && int(res.MatchedCount) < len(last) {
			// In order: of two entries of a life the first is pulled, and then the second is the last.
			_, err = coll.BulkWrite(ctx, interleave(last, other))
		}
		if err != nil {
			return explain(err, "removing outcomes that were carried out")
		}
	}
	return nil
}

// interleave is the first of both, the second of both, and so on.
func interleave[T any](a, b []T) []T {
	out := make([]T, 0, 2*len(a))
	for i := range a {
		out = append(out, a[i], b[i])
	}
	return out
}

// RepairOutboxes removes the mark of empty outboxes. Index: _id.
func (s *Store) RepairOutboxes(ctx context.Context, lives []OutboxLife) error {
	for _, l := range lives {
		coll := s.tasks
		if l.InHistory {
			coll = s.history
		}
		filter := bson.D{d("_id", l.storedID()), d("outbox.0", bson.D{d("$exists", false)})}
		_, err := coll.UpdateOne(ctx, filter, bson.D{d("$unset", bson.D{d("outbox", ""), d("outbox_at", "")})})
		if err != nil {
			return explain(err, "repairing an empty outbox")
		}
	}
	return nil
}

func (l *OutboxLife) storedID() string {
	if l.InHistory {
		return lifeID(l.ID, l.Generation)
	}
	return l.ID
}

// decodeLife reads a task's document, or a life's, which has the task's id in task_id.
func decodeLife(raw bson.Raw, history bool) (*model.Task, error) {
	t, err := Decode(raw)
	if err == nil && history {
		var ok bool
		if t.ID, ok = raw.Lookup("task_id").StringValueOK(); !ok {
			return nil, fmt.Errorf("decoding a life: its task_id is of the type %v", raw.Lookup("task_id").Type)
		}
	}
	return t, err
}
