package store

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// LifeOf names one life of a task.
type LifeOf struct {
	TaskID     string
	Generation int64
}

// DeliveredLives says of lives that are history that their callbacks were delivered:
// Completed becomes Success. Those that are not there, or are otherwise, stay so. Index: _id
// of the history.
func (s *History) DeliveredLives(ctx context.Context, lives []LifeOf) error {
	if len(lives) == 0 {
		return nil
	}
	ids := collect(lives, func(l LifeOf) string { return lifeID(l.TaskID, l.Generation) })
	_, err := s.history.UpdateMany(ctx, bson.D{d("_id", in(ids)), d("status", model.StatusCompleted)},
		bson.D{d("$set", bson.D{d("status", model.StatusSuccess)})})
	return explain(err, "recording delivered callbacks in the history")
}
