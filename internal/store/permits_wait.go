package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// NoteWaits writes down that tasks are held back for those keys, before they are, so that
// a sweeper finds them. Index: _id.
func (s *Permits) NoteWaits(ctx context.Context, keys []LimitOf) error {
	note := func() error {
		now := s.Clock.Now()
		_, err := bulk(ctx, s.core, s.permits, "recording an awaited key", keys, func(k *LimitOf) change {
			return change{id: k.prefix("wait/"), upsert: true, undone: isNot("at", now),
				update: bson.D{d("$set", bson.D{d("wait_type", k.Type), d("wait_key", k.Key), d("at", now)})}}
		})
		return err
	}
	err := note()
	if IsDuplicate(err) { // two first writers at once
		err = note()
	}
	return err
}

// Wait is a key that tasks are, or were, held back for.
type Wait struct {
	Name string    `bson:"_id"`
	Type string    `bson:"wait_type"`
	Key  string    `bson:"wait_key"`
	At   time.Time `bson:"at"` // since when, or later
}

// Waits are the keys that tasks are held back for, by name, after the given one. Index: _id.
func (s *Permits) Waits(ctx context.Context, after string, limit int) ([]Wait, error) {
	return readAll[Wait](ctx, s.permits, "reading the keys that tasks wait for", bson.D{d("_id", bson.D{d("$gt", max(after, "wait/")), d("$lt", "wait0")})},
		options.Find().SetSort(fields("_id")).SetLimit(int64(limit)))
}

// ForgetWait takes a note away, unless it was written again meanwhile. Index: _id.
func (s *Permits) ForgetWait(ctx context.Context, w Wait) error {
	_, err := s.permits.DeleteOne(ctx, bson.D{d("_id", w.Name), d("at", w.At)})
	return explain(err, "deleting a key for which no task waits")
}

// HeldBack finds the tasks of a key that wait for it and are due, the greatest priority
// first, then the longest due. Index: due.
func (s *Permits) HeldBack(ctx context.Context, of LimitOf, limit int) ([]*model.Task, error) {
	filter, sort := dueQuery([]string{of.Type}, []string{lifecycle.KeyAudience(of.Key)}, nil, time.Time{}, s.Clock.Now())
	return s.tasksRoom.due(ctx, filter, sort, DueQuery{Limit: limit})
}

// Wish notes that a process waits for a permit of a type, for those that pass theirs on.
// Index: _id.
func (s *Permits) Wish(ctx context.Context, typ, process string) error {
	return upsert(ctx, s.permits, "asking for a permit", wishName(typ), bson.D{d("$set", bson.D{d("wished_by", process), d("at", s.Clock.Now())})})
}

// AnswerWish reports whether another process has wished for a permit of a type lately, and takes
// that wish away: it is answered once. Index: _id.
func (s *Permits) AnswerWish(ctx context.Context, typ, process string, lately time.Duration) (bool, error) {
	wish := bson.D{d("_id", wishName(typ)), d("wished_by", bson.D{d("$ne", process)}), d("at", bson.D{d("$gt", s.Clock.Now().Add(-lately))})}
	err := s.permits.FindOneAndDelete(ctx, wish).Err()
	if isNone(err) {
		return false, nil
	}
	return err == nil, explain(err, "checking for requests for a permit")
}

func wishName(typ string) string { return LimitOf{Type: typ}.prefix("wish/") }
