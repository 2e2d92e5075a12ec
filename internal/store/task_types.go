package store

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// ErrTypeChanged is returned for a change of a type that names another version than the
// stored one: somebody else changed it in between.
var ErrTypeChanged = errors.New("the type was changed meanwhile")

// ErrNoType is returned for a type without a document.
var ErrNoType = errors.New("no such task type")

// TaskTypes reads all documents of task_types, ordered by code. Index: _id.
func (s *Store) TaskTypes(ctx context.Context) ([]*model.TaskType, error) {
	cur, err := s.types.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{d("_id", 1)}))
	if err != nil {
		return nil, explain(err, "reading the task types")
	}
	var out []*model.TaskType
	return out, explain(cur.All(ctx, &out), "reading the task types")
}

// TaskType reads one document of task_types, or returns [ErrNoType]. Index: _id.
func (s *Store) TaskType(ctx context.Context, code string) (*model.TaskType, error) {
	var t model.TaskType
	err := s.types.FindOne(ctx, bson.D{d("_id", code)}).Decode(&t)
	if isNone(err) {
		return nil, fmt.Errorf("%w: %s", ErrNoType, code)
	}
	return &t, explain(err, "reading the task type "+code)
}

// PutTaskType stores a type: a new one where t.Version is 0, else the next version of the
// stored one, which must have that version ([ErrTypeChanged]). It sets t's version and
// times, and tells the workers. Index: _id.
func (s *Store) PutTaskType(ctx context.Context, t *model.TaskType) error {
	now, seen := s.Clock.Now(), t.Version
	t.Version, t.UpdatedAt = seen+1, now
	var err error
	if seen == 0 {
		t.CreatedAt = now
		_, err = s.types.InsertOne(ctx, t)
		if IsDuplicate(err) {
			t.Version = seen
			return fmt.Errorf("%w: %s exists", ErrTypeChanged, t.Code)
		}
	} else {
		// A whole document: nobody else writes to it in between, the version says so.
		res, err2 := s.types.ReplaceOne(ctx, bson.D{d("_id", t.Code), d("version", seen)}, t)
		if err = err2; err == nil && res.MatchedCount == 0 {
			t.Version = seen
			return fmt.Errorf("%w: %s is not at version %d any more", ErrTypeChanged, t.Code, seen)
		}
	}
	if err != nil {
		return explain(err, "storing the task type "+t.Code)
	}
	return s.typesChanged(ctx)
}

// DeleteTaskType deletes a type's document: its tasks have the defaults again. Deleting
// one that is not there is [ErrNoType]. Index: _id.
func (s *Store) DeleteTaskType(ctx context.Context, code string) error {
	res, err := s.types.DeleteOne(ctx, bson.D{d("_id", code)})
	if err != nil {
		return explain(err, "deleting the task type "+code)
	}
	if res.DeletedCount == 0 {
		return fmt.Errorf("%w: %s", ErrNoType, code)
	}
	return s.typesChanged(ctx)
}

// typesChanged makes every process read the types again. A writer that dies before it is
// heard of with the next change, or by whoever starts anew; its caller has no answer and
// repeats the command.
func (s *Store) typesChanged(ctx context.Context) error {
	return s.updateControl(ctx, "telling the workers of a changed type", bson.D{d("$inc", bson.D{d("types", 1)})})
}
