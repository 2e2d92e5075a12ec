package store

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// LastLife reads the newest life of a task that is in the history, or returns
// [ErrNotFound]. Index: task of the history.
func (s *Store) LastLife(ctx context.Context, id string) (*model.Task, error) {
	raw, err := s.history.FindOne(ctx, bson.D{d("task_id", id)},
		options.FindOne().SetSort(bson.D{d("generation", -1)})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, explain(err, "reading the history of task "+id)
	}
	return decodeLife(raw, true)
}
