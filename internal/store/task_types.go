package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// ErrTypeChanged is returned for a change of a type that names another version than the
// stored one: somebody else changed it in between.
var ErrTypeChanged = errors.New("the type was changed meanwhile")

// ErrNoType is returned for a type without a document.
var ErrNoType = errors.New("no such task type")

// List reads all documents of task_types, ordered by code. unread are those that this
// release cannot read. Index: _id.
func (s *Types) List(ctx context.Context) (types []*model.TaskType, unread []Unreadable, err error) {
	return readAll[*model.TaskType](ctx, s.core, s.types, "reading the task types")
}

// readAll reads a small collection, one by one, in the order of the ids.
func readAll[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string) (all []T, unread []Unreadable, err error) {
	cur, err := coll.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{d("_id", 1)}))
	if err != nil {
		return nil, nil, explain(err, doing)
	}
	defer func() { _ = cur.Close(ctx) }() // it is at its end, or the error is returned
	for cur.Next(ctx) {
		var x T
		if err := cur.Decode(&x); err != nil {
			unread = append(unread, s.complain(coll, cur.Current, err))
			continue
		}
		all = append(all, x)
	}
	return all, unread, explain(cur.Err(), doing)
}

// Get reads one document of task_types, or returns [ErrNoType]. Index: _id.
func (s *Types) Get(ctx context.Context, code string) (*model.TaskType, error) {
	var t model.TaskType
	err := s.types.FindOne(ctx, bson.D{d("_id", code)}).Decode(&t)
	if isNone(err) {
		return nil, fmt.Errorf("%w: %s", ErrNoType, code)
	}
	return &t, explain(err, "reading the task type "+code)
}

// Put stores a type: a new one where t.Version is 0 (with the version that
// [Types.Delete] tells of), else the next version of the stored one, which must have
// that version ([ErrTypeChanged]). It sets t's version and times, and tells the workers. What
// a later release keeps in the document stays. Repeating a call whose answer was lost is no
// error. Index: _id.
func (s *Types) Put(ctx context.Context, t *model.TaskType) error {
	seen := *t
	t.Version, t.UpdatedAt = seen.Version+1, s.Clock.Now()
	var err error
	if seen.Version == 0 {
		var c ControlDoc
		if c, err = s.controlRoom.Read(ctx); err != nil {
			*t = seen
			return err
		}
		t.CreatedAt, t.Version = t.UpdatedAt, c.DeletedVersion+1
		_, err = s.types.InsertOne(ctx, t)
	} else {
		err = s.change(ctx, t, seen.Version)
	}
	if IsDuplicate(err) || isNone(err) {
		err = s.settle(ctx, t, seen.Version)
	}
	if err != nil {
		*t = seen
		return explain(err, "storing the task type "+t.Code)
	}
	return s.typesChanged(ctx)
}

// typeFields are what a change of a type writes, or takes away where nothing is said.
var typeFields = []string{"name", "category", "description", "options", "claim_by", "max_running", "rate_limit", "key_limit", "version", "updated_at"}

var typeRegistry = codec.Registry()

func (s *Types) change(ctx context.Context, t *model.TaskType, seen int64) error {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(typeRegistry)
	if err := enc.Encode(t); err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	doc := bson.Raw(buf.Bytes())
	var set, unset bson.D
	for _, field := range typeFields {
		if v := doc.Lookup(field); v.Type != 0 {
			set = append(set, d(field, v))
		} else {
			unset = append(unset, d(field, ""))
		}
	}
	update := bson.D{d("$set", set)}
	if len(unset) > 0 {
		update = append(update, d("$unset", unset))
	}
	var stored model.TaskType
	err := s.types.FindOneAndUpdate(ctx, bson.D{d("_id", t.Code), d("version", seen)}, update, returnAfter()).Decode(&stored)
	t.CreatedAt = stored.CreatedAt
	return err //nolint:wrapcheck // the caller does
}

// settle says what it means that the type was not at the version that was seen: it
// was changed by somebody else, or by this very call, tried before.
func (s *Types) settle(ctx context.Context, t *model.TaskType, seen int64) error {
	stored, err := s.Get(ctx, t.Code)
	switch {
	case errors.Is(err, ErrNoType):
		return fmt.Errorf("%w: %s is not there any more", ErrTypeChanged, t.Code)
	case err != nil:
		return err
	}
	want := *t
	want.CreatedAt, want.UpdatedAt = stored.CreatedAt, stored.UpdatedAt
	if reflect.DeepEqual(&want, stored) {
		*t = *stored
		return nil
	}
	if seen == 0 {
		return fmt.Errorf("%w: %s exists, at version %d", ErrTypeChanged, t.Code, stored.Version)
	}
	return fmt.Errorf("%w: %s is at version %d, not %d", ErrTypeChanged, t.Code, stored.Version, seen)
}

// Delete deletes a type's document of that version (0 = whichever): its tasks have
// the defaults again. Deleting one that is not there is [ErrNoType]. The control document
// keeps the greatest version that was ever deleted, and types that are made later begin
// above it: an edit of a type that was deleted cannot pass on a new one of its name. Index: _id.
func (s *Types) Delete(ctx context.Context, code string, version int64) error {
	doing := "deleting the task type " + code
	for {
		raw, err := s.types.FindOne(ctx, bson.D{d("_id", code)}, options.FindOne().SetProjection(bson.D{d("version", 1)})).Raw()
		if isNone(err) {
			return fmt.Errorf("%w: %s", ErrNoType, code)
		}
		if err != nil {
			return explain(err, doing)
		}
		stored, _ := raw.Lookup("version").AsInt64OK() // 0 in what a person wrote without one
		if version != 0 && stored != version {
			return fmt.Errorf("%w: %s is at version %d, not %d", ErrTypeChanged, code, stored, version)
		}
		// Before it is deleted: who dies in between leaves out a few versions and repeats none.
		if err := s.controlRoom.updateControl(ctx, doing, bson.D{d("$max", bson.D{d("deleted_version", stored)})}); err != nil {
			return err
		}
		asRead := bson.D{d("_id", code), d("version", bson.D{d("$exists", false)})}
		if v := raw.Lookup("version"); v.Type != 0 {
			asRead = bson.D{d("_id", code), d("version", v)}
		}
		res, err := s.types.DeleteOne(ctx, asRead)
		if err != nil {
			return explain(err, doing)
		}
		if res.DeletedCount > 0 {
			return s.typesChanged(ctx)
		}
		// Somebody changed or deleted it in between.
	}
}

// typesChanged makes every process read the types again. A writer that dies before it is
// heard of with the next change, or by whoever starts anew; its caller has no answer and
// repeats the command.
func (s *Types) typesChanged(ctx context.Context) error {
	return s.controlRoom.updateControl(ctx, "telling the workers of a changed type", bson.D{d("$inc", bson.D{d("types", 1)})})
}
