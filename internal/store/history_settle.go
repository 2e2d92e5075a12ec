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
// Completed becomes Success. Those that are not there, or are otherwise, stay so. held are the
// indices of lives that another client holds: they are not written. Index: _id of the history.
func (s *History) DeliveredLives(ctx context.Context, lives []LifeOf) (held []int, err error) {
	if len(lives) == 0 {
		return nil, nil
	}
	ids := collect(lives, func(l LifeOf) string { return lifeID(l.TaskID, l.Generation) })
	x, err := s.send(ctx, s.history, "recording a delivered callback in history record", []statement{{
		ids: ids, guard: appendFields(bson.D{d("status", model.StatusCompleted)}), update: encoded(bson.D{d("$set", bson.D{d("status", model.StatusSuccess)})}),
	}}, Patience)
	for i, id := range ids {
		if x.held[id] {
			held = append(held, i)
		}
	}
	return held, err
}
