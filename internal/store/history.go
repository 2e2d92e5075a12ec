package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// The history holds lives that are over: a copy of the task's document as it was then,
// unknown fields and all, under the id of the life, with the task's id in task_id, the
// time of the copy in archived_at and, unless the history is kept for ever, the time at
// which the TTL index removes it in delete_at.
//
// A copy is made before what it was made of is changed or deleted, so a life is at every
// moment in at least one of the two collections. Where it is in both, because somebody
// died between the two writes or is just about to make the second, the task counts.

// DefaultHistory is for how long a life stays in the history unless somebody said
// otherwise.
const DefaultHistory = 90 * 24 * time.Hour

// unfinishedHistory is the least time for a life of which something must still follow.
const unfinishedHistory = 7 * 24 * time.Hour

func lifeID(id string, generation int64) string { return id + "@" + strconv.FormatInt(generation, 10) }

// life is a task's document that is to be copied to the history.
type life struct {
	task            bson.Raw
	taskID          string
	generation, rev int64
	copied          bson.Raw // as the history has it
}

func (l *life) id() string { return lifeID(l.taskID, l.generation) }

// newLife makes the copy of a document of tasks. keep is how long it stays; 0 = for ever.
func newLife(raw bson.Raw, now time.Time, keep time.Duration) (*life, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("reading a task for the history: %w", err)
	}
	l := life{task: raw}
	var rest []byte
	archived, unfinished := raw.Lookup("archive_at").Type != 0, false
	for _, e := range elements {
		v := e.Value()
		switch e.Key() {
		case "_id":
			l.taskID, _ = v.StringValueOK()
			continue
		case "archive_at", "archived_at", "delete_at":
			continue
		case "generation":
			l.generation, _ = v.AsInt64OK()
		case "rev":
			l.rev, _ = v.AsInt64OK()
		case "outbox_at":
			unfinished = true
		case "status":
			// What waits for the delivery of its callback has no archive_at.
			status, _ := v.StringValueOK()
			// Pending never has one, and its callback may still be under way, too.
			waits := slices.Contains([]model.Status{model.StatusCompleted, model.StatusFailure, model.StatusPending}, model.Status(status))
			unfinished = unfinished || waits && !archived
		}
		rest = append(rest, e...)
	}
	if l.taskID == "" || l.generation == 0 || l.rev == 0 {
		return nil, errNoLife
	}
	if unfinished && keep > 0 {
		keep = max(keep, unfinishedHistory)
	}
	start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(raw)+200))
	doc = bsoncore.AppendStringElement(doc, "_id", l.id())
	doc = bsoncore.AppendStringElement(doc, "task_id", l.taskID)
	doc = append(doc, rest...)
	doc = bsoncore.AppendDateTimeElement(doc, "archived_at", now.UnixMilli())
	if keep > 0 {
		doc = bsoncore.AppendDateTimeElement(doc, "delete_at", now.Add(keep).UnixMilli())
	}
	doc, err = bsoncore.AppendDocumentEnd(doc, start)
	l.copied = bson.Raw(doc)
	return &l, err
}

var errNoLife = errors.New("reading a task for the history: its _id is not a text, or generation or rev is missing or not an integer")

// keepLife copies a life to the history before a new one begins. Of a copy that is
// there already the content changes only when it was made of an earlier state of the same life (see
// history_archive.go). It may be part of the caller's transaction, in which a duplicate
// key would be the end, so it does not provoke one. Index: _id.
func (s *History) keepLife(ctx context.Context, t *model.Task) error {
	if t.Generation == 0 || t.Rev == 0 {
		return errNoLife
	}
	raw, err := s.settled(ctx, s.tasks, "copying task "+t.ID+" to the history", asRead(t), options.FindOne())
	if raw == nil || err != nil {
		return err // without it our new life will not begin: something crossed it, perhaps another, whose beginner kept this one
	}
	l, err := newLife(raw, s.Clock.Now(), s.keptFor(ctx, historyID, DefaultHistory))
	if err != nil {
		return err
	}
	elements, err := l.copied.Elements()
	if err != nil {
		return fmt.Errorf("copying task %s to the history: %w", t.ID, err)
	}
	var fields []byte // without the id, which the filter gives
	for _, e := range elements[1:] {
		fields = append(fields, e...)
	}
	onInsert := bson.Raw(bsoncore.BuildDocument(nil, fields))
	res, err := s.history.UpdateOne(ctx, bson.D{d("_id", l.id())}, bson.D{d("$setOnInsert", onInsert)}, options.UpdateOne().SetUpsert(true))
	switch {
	case IsDuplicate(err): // two made it at once
	case err != nil:
		return explain(err, "copying task "+t.ID+" to the history")
	case res.UpsertedCount > 0:
		return nil
	}
	same, anew := keptAnew(l)
	if res, err := s.history.UpdateOne(ctx, same, anew); err != nil || res.MatchedCount > 0 {
		return explain(err, "copying task "+t.ID+" to the history")
	}
	// An archiver may take the earlier copy back at this moment, but not within a transaction, which would fail then. An
	// upsert finds the place taken if the copy is as new.
	_, err = s.history.ReplaceOne(ctx, olderCopy(l), l.copied, options.Replace().SetUpsert(!InTransaction(ctx)))
	if IsDuplicate(err) {
		return nil
	}
	return explain(err, "copying task "+t.ID+" to the history")
}

// keptAnew is for a copy of the life as it is, of somebody who died before the life was over, with the times of this copy.
// It leaves everything else: if the life is over all the same, its copy may have changed without a new rev.
func keptAnew(l *life) (filter, update bson.D) {
	same := bson.D{d("_id", l.id()), d("rev", l.rev)}
	times := bson.D{d("archived_at", l.copied.Lookup("archived_at"))}
	if until := l.copied.Lookup("delete_at"); until.Type != 0 {
		return append(same, d("delete_at", bson.D{d("$lt", until)})), bson.D{d("$set", append(times, d("delete_at", until)))}
	}
	return append(same, d("delete_at", exists)), bson.D{d("$set", times), d("$unset", bson.D{d("delete_at", "")})}
}

// olderCopy matches a copy of the life that was made before its last change.
func olderCopy(l *life) bson.D {
	return bson.D{d("_id", l.id()), d("rev", bson.D{d("$lt", l.rev)})}
}

// Life reads one life of a task, where it is now: among the tasks or in the history, and there as a failover cannot
// undo it; of generation 0 the newest. [ErrNotFound] when it is in neither. Indexes: _id of both, task.
func (s *History) Life(ctx context.Context, id string, generation int64) (*model.Task, error) {
	raw, err := s.LifeRaw(ctx, id, generation)
	if err != nil {
		return nil, err
	}
	return Decode(raw)
}

// LifeRaw is [History.Life] for the document as it is stored, but for the task's id as _id.
func (s *History) LifeRaw(ctx context.Context, id string, generation int64) (bson.Raw, error) {
	// The tasks first: a life moves one way only, so what is not there any more is in the
	// history by then.
	raw, err := s.tasksRoom.getRaw(ctx, id)
	if err == nil {
		if is, _ := raw.Lookup("generation").AsInt64OK(); generation == 0 || is == generation {
			return raw, nil
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	filter, o := bson.D{d("_id", lifeID(id, generation))}, options.FindOne()
	if generation == 0 {
		filter = bson.D{d("task_id", id)}
		o.SetSort(bson.D{d("generation", -1)}).SetHint(indexTask)
	}
	raw, there, err := readOne[bson.Raw](ctx, s.durable(s.history), "reading the history of task "+id, filter, o)
	switch {
	case err != nil:
		return nil, err
	case there:
		return asTask(raw)
	case generation == 0:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	default:
		return nil, fmt.Errorf("%w: %s (generation %d)", ErrNotFound, id, generation)
	}
}

// AllLives reads the documents of all lives of a task, the newest first, those of the
// history as [History.LifeRaw] does; none when there never was such a task, or its history
// is over. Indexes: _id of tasks, task of the history.
func (s *History) AllLives(ctx context.Context, id string) ([]bson.Raw, error) {
	lives, _, err := s.LivesBefore(ctx, id, math.MaxInt64, 0)
	return lives, err
}

// LivesBefore is AllLives of the lives before a generation. A limit bounds their number, and the bytes of those in the
// history by [pageBytes]; 0 = all. more says that there are others.
func (s *History) LivesBefore(ctx context.Context, id string, generation int64, limit int) (lives []bson.Raw, more bool, err error) {
	present, err := s.tasksRoom.getRaw(ctx, id)
	switch {
	case err == nil && keyOf(present).generation < generation:
		lives = append(lives, present)
	case err == nil:
	case !errors.Is(err, ErrNotFound):
		return nil, false, err
	}
	find := options.Find().SetSort(bson.D{d("generation", -1)}).SetHint(indexTask)
	if limit > 0 {
		find.SetLimit(int64(limit + 2)) // one may be in both, and another tells that there are more
	}
	var wrong error
	bytes := 0
	err = readEach(ctx, s.history, "reading the history of task "+id, bson.D{d("task_id", id), d("generation", bson.D{d("$lt", generation)})}, find, func(raw bson.Raw) bool {
		if present != nil && keyOf(raw).generation == keyOf(present).generation {
			return true // in both: the task counts
		}
		if more = limit > 0 && (len(lives) == limit || bytes >= pageBytes); more {
			return false
		}
		if raw, wrong = asTask(slices.Clone(raw)); wrong != nil {
			return false
		}
		lives, bytes = append(lives, raw), bytes+len(raw)
		return true
	})
	return lives, more, errors.Join(err, wrong)
}

// asTask gives a document of the history the task's id, so that it reads as a task.
func asTask(raw bson.Raw) (bson.Raw, error) {
	elements, err := raw.Elements()
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	id, _ := raw.Lookup("task_id").StringValueOK()
	start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(raw)+40))
	doc = bsoncore.AppendStringElement(doc, "_id", id)
	for _, e := range elements {
		if k := e.Key(); k != "_id" && k != "task_id" {
			doc = append(doc, e...)
		}
	}
	// Copies of the first release do not say when they were made.
	if at, old := raw.Lookup("updated_at").DateTimeOK(); old && raw.Lookup("archived_at").Type == 0 {
		doc = bsoncore.AppendDateTimeElement(doc, "archived_at", at)
	}
	doc, err = bsoncore.AppendDocumentEnd(doc, start)
	return bson.Raw(doc), err
}

// historyID names the document of control with the retention of the history.
const historyID = "history"

// Retention is how long lives stay in the history; 0 = for ever. Index: _id.
func (s *History) Retention(ctx context.Context) (time.Duration, error) {
	return s.retention(ctx, historyID, DefaultHistory)
}

// SetRetention says how long what moves to the history from now on stays there;
// 0 = for ever. Other processes learn of it within a minute. Index: _id.
func (s *History) SetRetention(ctx context.Context, keep time.Duration) error {
	return s.setRetention(ctx, historyID, keep)
}

// lifeKey orders lives: by task, then by generation.
type lifeKey struct {
	id         string
	generation int64
}

// keyOf reads the key of a document of either collection.
func keyOf(raw bson.Raw) lifeKey {
	id, ok := raw.Lookup("task_id").StringValueOK()
	if !ok {
		id, _ = raw.Lookup("_id").StringValueOK()
	}
	generation, _ := raw.Lookup("generation").AsInt64OK()
	return lifeKey{id, generation}
}

// stillTasks are the generations and revs of those of the given lives' tasks that exist. Index: _id.
func (s *History) stillTasks(ctx context.Context, ids []string) (map[string]bson.Raw, error) {
	out := map[string]bson.Raw{}
	for some := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), maxStatementIDs) {
		found, err := readAll[bson.Raw](ctx, s.tasks, "checking which lives are still in tasks", bson.D{d("_id", in(some))},
			options.Find().SetProjection(fields("generation", "rev")))
		if err != nil {
			return nil, err
		}
		for _, raw := range found {
			out[keyOf(raw).id] = raw
		}
	}
	return out, nil
}
