package store

import (
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
var ErrTypeChanged = fmt.Errorf("the type was %w", model.ErrChanged)

// ErrNoType is returned for a type without a document.
var ErrNoType = missing("no such task type")

// List reads all documents of task_types, ordered by code. unread are those that this
// release cannot read. Index: _id.
func (s *Types) List(ctx context.Context) (types []*model.TaskType, unread []Unreadable, err error) {
	return readReadable[*model.TaskType](ctx, s.core, s.types, "reading the task types", bson.D{})
}

// Page reads documents of task_types by their codes: at most limit behind the given one, with those that this
// release cannot read among them. next is what the next page is behind; "" = there is none. Index: _id.
func (s *Types) Page(ctx context.Context, after string, limit int) (types []*model.TaskType, unread []Unreadable, next string, err error) {
	return pageByID[*model.TaskType](ctx, s.core, s.types, "reading the task types", bson.D{}, after, limit)
}

// pageByID reads a page of a collection that is sorted by its ids.
func pageByID[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, filter bson.D, after string, limit int) (page []T, unread []Unreadable, next string, err error) {
	n, last := 0, ""
	o := options.Find().SetSort(fields("_id")).SetHint("_id_").SetLimit(int64(limit) + 1) // one more tells whether there is a next page
	err = readEach(ctx, coll, doing, append(filter, d("_id", bson.D{d("$gt", after)})), o, func(doc bson.Raw) bool {
		if n == limit {
			next = last
			return false
		}
		n++
		last, _ = doc.Lookup("_id").StringValueOK()
		var x T
		if err := codec.Decode(doc, &x); err != nil {
			unread = append(unread, s.complain(coll, doc, err))
		} else {
			page = append(page, x)
		}
		return true
	})
	return page, unread, next, err
}

// readReadable reads a small collection, one by one, in the order of the ids.
func readReadable[T any](ctx context.Context, s *core, coll *mongo.Collection, doing string, filter bson.D) (all []T, unread []Unreadable, err error) {
	err = decodeEach(ctx, coll, doing, filter, options.Find().SetSort(fields("_id")).SetHint("_id_"),
		func(x *T) { all = append(all, *x) }, func(doc bson.Raw, err error) { unread = append(unread, s.complain(coll, doc, err)) })
	return all, unread, err
}

// Get reads one document of task_types, or returns [ErrNoType]. Index: _id.
func (s *Types) Get(ctx context.Context, code string) (*model.TaskType, error) {
	return readKnown[model.TaskType](ctx, s.types, "reading the task type "+code, bson.D{d("_id", code)}, ErrNoType, code)
}

// Put stores a type: a new one where t.Version is 0 (with the version that
// [Types.Delete] tells of), else the next version of the stored one, which must have
// that version ([ErrTypeChanged]). It sets t's version and times, and tells the workers. A field
// of the document that only a later release knows stays; one within a field does not. Repeating a call whose answer
// was lost is no error. Index: _id.
func (s *Types) Put(ctx context.Context, t *model.TaskType) error {
	if err := s.typesChanged(ctx); err != nil {
		return err
	}
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

func (s *Types) change(ctx context.Context, t *model.TaskType, seen int64) error {
	update, err := replaced(t, "_id", "created_at")
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	var stored model.TaskType
	err = s.types.FindOneAndUpdate(ctx, bson.D{d("_id", t.Code), d("version", seen)}, update, returnAfter()).Decode(&stored)
	t.CreatedAt = stored.CreatedAt
	return err //nolint:wrapcheck // the caller does
}

// settle says what it means that the type was not at the version that was seen: it
// was changed by somebody else, or by this very call, tried before.
func (s *Types) settle(ctx context.Context, t *model.TaskType, seen int64) error {
	stored, err := s.Get(ctx, t.Code)
	switch {
	case errors.Is(err, ErrNoType):
		return fmt.Errorf("%w: %s no longer exists", ErrTypeChanged, t.Code)
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
		return fmt.Errorf("%w: %s already exists at version %d", ErrTypeChanged, t.Code, stored.Version)
	}
	return fmt.Errorf("%w: %s is at version %d, not %d", ErrTypeChanged, t.Code, stored.Version, seen)
}

// Delete deletes a type's document of that version (0 = whichever): its tasks have
// the defaults again. Deleting one that is not there is [ErrNoType]. The control document
// keeps the greatest version that was ever deleted, and types that are made later begin
// above it: an edit of a type that was deleted cannot pass on a new one of its name. Index: _id.
func (s *Types) Delete(ctx context.Context, code string, version int64) error {
	if err := s.typesChanged(ctx); err != nil {
		return err
	}
	doing := "deleting the task type " + code
	for {
		raw, there, err := readOne[bson.Raw](ctx, s.types, doing, bson.D{d("_id", code)}, options.FindOne().SetProjection(fields("version")))
		if err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("%w: %s", ErrNoType, code)
		}
		stored, _ := raw.Lookup("version").AsInt64OK() // 0 in what a person wrote without one
		if version != 0 && stored != version {
			return fmt.Errorf("%w: %s is at version %d, not %d", ErrTypeChanged, code, stored, version)
		}
		// Before it is deleted: who dies in between leaves out a few versions and repeats none.
		if err := s.controlRoom.updateControl(ctx, doing, bson.D{d("$max", bson.D{d("deleted_version", stored)})}); err != nil {
			return err
		}
		asRead := bson.D{d("_id", code), d("version", absent)}
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

// typesChanged makes every process read the types again. Writers call it before and after a write. The first call
// counts if the writer dies after its write, or if the second call fails: the repeated command may find nothing left to
// write. The second call is for processes that have read in between.
func (s *Types) typesChanged(ctx context.Context) error {
	return s.controlRoom.updateControl(ctx, "telling the workers of a changed type", bson.D{d("$inc", bson.D{d("types", 1)})})
}
