package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// Unreadable is a document that this release cannot read: a later one wrote it, or a person
// did by hand. It must not keep anybody from the others.
type Unreadable struct {
	ID     string
	Living string // of a rule: tenant and name; "" = it was deleted
	Err    error
}

// isUnreadable says whether the error is about what a document has in a field.
func isUnreadable(err error) bool {
	var field *bson.DecodeError
	var unread *model.UnreadableError
	return errors.As(err, &field) || errors.As(err, &unread)
}

// CannotRead is the error about a task that [Tasks.ByIDs], [Tasks.States] or [Tasks.Lives] returned as nil.
func CannotRead(id string) error {
	return &model.UnreadableError{Documents: map[string]error{id: fmt.Errorf("this release cannot read the task %s; the log says why", id)}}
}

// complain tells the operator of a document that cannot be read, not at every look.
func (s *core) complain(coll *mongo.Collection, raw bson.Raw, err error) Unreadable {
	s.about(coll, raw, err).Msg("a document cannot be read; other documents are not affected")
	u := Unreadable{Err: err}
	u.ID, _ = raw.Lookup("_id").StringValueOK()
	return u
}

// about is a line of the log about a document; nil, which logs nothing, if there was one a moment ago.
func (s *core) about(coll *mongo.Collection, raw bson.Raw, err error) *zerolog.Event {
	id, ok := raw.Lookup("_id").StringValueOK()
	if !ok {
		id = raw.Lookup("_id").String()
	}
	if !s.complained.Again(coll.Name()+" "+id, s.local) {
		return nil
	}
	return s.log.Error().Err(err).Str("collection", coll.Name()).Str("id", id)
}

// byIDs reads tasks or lives by their ids. One that is there and cannot be read is nil; the log says
// so. It asks for one more than there can be. So the first reply brings all of them, as far as they
// fit one reply, and ends the cursor: the server need not be asked for more.
func (s *core) byIDs(ctx context.Context, coll *mongo.Collection, doing string, ids []string, o *options.FindOptionsBuilder) (map[string]*model.Task, error) {
	out, _, err := s.byIDsWithin(ctx, coll, doing, ids, o.SetBatchSize(int32(len(ids)+1)), 0)
	return out, err
}

// byIDsWithin is [core.byIDs] that stops when it has read so many bytes; 0 = never.
func (s *core) byIDsWithin(ctx context.Context, coll *mongo.Collection, doing string, ids []string, o *options.FindOptionsBuilder, most int) (out map[string]*model.Task, size int, err error) {
	out = make(map[string]*model.Task, len(ids))
	if len(ids) == 0 {
		return out, 0, nil
	}
	tasks, unread, size, err := s.readable(ctx, coll, doing, bson.D{d("_id", in(ids))}, o, most)
	for _, t := range tasks {
		out[t.ID] = t
	}
	for _, u := range unread {
		out[u.ID] = nil
	}
	return out, size, err
}

// readable finds tasks, but for those that this release cannot read: they stand in nobody's way. It
// stops when it has read so many bytes; 0 = never.
func (s *core) readable(ctx context.Context, coll *mongo.Collection, doing string, filter bson.D, o *options.FindOptionsBuilder, most int) (tasks []*model.Task, unread []Unreadable, size int, err error) {
	var read codec.TaskReader
	err = readEach(ctx, coll, doing, filter, o, func(doc bson.Raw) bool {
		size += len(doc)
		if t, err := read.Read(doc); err == nil {
			tasks = append(tasks, t)
		} else {
			unread = append(unread, s.complain(coll, doc, err))
		}
		return most == 0 || size < most
	})
	return tasks, unread, size, err
}

// unreadTries is how often [Store.findReadable] asks for others in the place of tasks that
// it could not read.
const unreadTries = 3

// findReadable finds tasks, and others in the place of those that this
// release cannot read: a few of them at the head of a queue keep nobody from the rest. It
// finds no more than a batch has room for; learn, if not nil, hears of the sizes.
func (s *core) findReadable(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder, learn *sizes) ([]*model.Task, error) {
	look := filter
	var ids bson.A
	for tries := 0; ; tries++ {
		tasks, unread, size, err := s.readable(ctx, s.tasks, doing, look, o, batchBytes)
		if err == nil && learn != nil {
			learn.saw(len(tasks)+len(unread), size)
		}
		if err != nil || len(unread) == 0 || tries == unreadTries {
			return tasks, err
		}
		for _, u := range unread {
			ids = append(ids, u.ID)
		}
		look = bson.D{d("$and", bson.A{filter, bson.D{d("_id", bson.D{d("$nin", ids)})}})}
	}
}
