package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// documentBytes is about what a new task needs beside its arguments.
const documentBytes = 384

func returnAfter() *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(options.After)
}

// Insert stores new tasks in one unordered insert and says which of them exist
// already: exists[i] is true and nothing of task i was written. An *[InsertError] names
// single tasks that the server refused, or whose keys somebody's open transaction holds
// ([ErrHeld]), with exists valid for all others; any other error means that nothing is
// known of any of them. In the caller's transaction, where a refused insert would abort
// everything, upserts that change nothing do the same. Index: _id, the only unique one.
func (s *Tasks) Insert(ctx context.Context, tasks []*model.Task) (exists []bool, err error) {
	return s.insert(ctx, tasks, false)
}

// InsertAgain is [Tasks.Insert] for tasks that an earlier call may have stored: then a task is no other's, and one that
// has moved to the history since is not stored again. Indexes: _id; task of the history.
func (s *Tasks) InsertAgain(ctx context.Context, tasks []*model.Task) (exists []bool, err error) {
	return s.insert(ctx, tasks, true)
}

func (s *Tasks) insert(ctx context.Context, tasks []*model.Task, again bool) (exists []bool, err error) {
	exists = make([]bool, len(tasks))
	if len(tasks) == 0 {
		return exists, nil
	}
	if InTransaction(ctx) {
		return exists, s.upsertNew(ctx, tasks, exists)
	}
	var over map[string]bool
	if again {
		if over, err = s.alreadyOver(ctx, tasks); err != nil {
			return exists, err
		}
	}
	first := make(map[string]int, len(tasks)) // of several with one id the first is stored
	statements := make([]statement, 0, len(tasks))
	for i, t := range tasks {
		if _, again := first[t.ID]; !again {
			if first[t.ID] = i; over[t.ID] {
				continue
			}
			statements = append(statements, statement{ids: []string{t.ID},
				insert: codec.AppendTask(make([]byte, 0, len(t.Args.Value)+documentBytes), t)})
		}
	}
	x, err := s.send(ctx, s.tasks, "storing task", statements, Patience)
	if err != nil {
		return exists, err
	}
	if again {
		x.late = make(map[string]bool, len(tasks))
		for _, t := range tasks {
			x.late[t.ID] = true
		}
	}
	if err := s.lookAtInserts(ctx, tasks, &x); err != nil {
		return exists, err
	}
	failed := map[int]error{}
	for i, t := range tasks {
		switch {
		case x.refused[t.ID] != nil:
			failed[i] = x.refused[t.ID]
		case x.held[t.ID], !x.exists[t.ID] && !x.done(t.ID):
			failed[i] = fmt.Errorf("storing task %s: %w", t.ID, ErrHeld)
		default:
			exists[i] = x.exists[t.ID] || first[t.ID] != i
		}
	}
	if len(failed) > 0 {
		return exists, &InsertError{Refused: failed}
	}
	return exists, nil
}

// alreadyOver finds the tasks that an earlier insert stored and that have moved to the history
// since, while this process stood still, say. Their keys are free, and a second task would have the
// generation of the first. That may be greater by then, if the database was restored. Index: task of the history.
func (s *Tasks) alreadyOver(ctx context.Context, tasks []*model.Task) (over map[string]bool, err error) {
	given, since := map[string]*model.Task{}, int64(math.MaxInt64)
	for _, t := range slices.Backward(tasks) { // of several with one id the first is stored
		given[t.ID], since = t, min(since, t.Generation)
	}
	over = map[string]bool{}
	lives := bson.D{d("task_id", in(slices.Collect(maps.Keys(given)))), d("generation", bson.D{d("$gte", since)})}
	o := options.Find().SetHint(indexTask).SetProjection(fields("task_id", "generation", "args"))
	err = readEach(ctx, s.durable(s.history), "looking for stored tasks in the history", lives, o, func(doc bson.Raw) bool {
		life := keyOf(doc)
		if t := given[life.id]; life.generation >= t.Generation && t.Args.Equal(doc.Lookup("args")) {
			over[t.ID] = true
		}
		return true
	})
	return over, err
}

// lookAtInserts finds out which of the tasks exist because this insert stored them, by a
// command that ran out of time. A generation is the millisecond in which a life began: only
// the same task, sent by two processes in the same millisecond, would count for both.
// Index: _id.
func (s *Tasks) lookAtInserts(ctx context.Context, tasks []*model.Task, x *executed) error {
	var ids []string
	for id := range x.exists {
		if x.late[id] {
			ids = append(ids, id)
		}
	}
	for id := range x.held {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	// No command has waited until a majority has what is there of the held ones.
	current, err := s.byIDs(ctx, s.durable(s.tasks), "looking at stored tasks", ids,
		options.Find().SetProjection(bson.D{d("generation", 1), d("args", 1)}))
	if err != nil {
		return err
	}
	for _, t := range tasks {
		cur := current[t.ID]
		if cur == nil {
			continue
		}
		if x.late[t.ID] && cur.Generation == t.Generation && cur.Args.Equal(t.Args) {
			delete(x.exists, t.ID)
			delete(x.held, t.ID)
			delete(x.unsure, t.ID)
		}
	}
	return nil
}

// insertTasks carries an insert out as a retryable write, which the driver repeats once where the answer
// is lost: a task that has run and has moved to the history by then is not stored a second time.
func (b *batch) insertTasks(ctx context.Context, c command, limit time.Duration) (n int, err error) {
	docs := collect(c.parts, func(st statement) bson.Raw { return st.insert })
	opts := options.InsertMany().SetOrdered(false)
	if limit > 0 {
		if err := xoptions.SetInternalInsertManyOptions(opts, "addCommandFields", timeLimit(limit)); err != nil {
			return 0, err
		}
	}
	_, err = b.coll.InsertMany(ctx, docs, opts)
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		we := mongo.WriteException{WriteConcernError: bulk.WriteConcernError, Labels: bulk.Labels}
		for _, e := range bulk.WriteErrors {
			we.WriteErrors = append(we.WriteErrors, e.WriteError)
		}
		err = we
	}
	return len(docs), err
}

// insertedLate repeats an insert that the primary has done, and whose time passed while the
// majority lagged: its answer waits for all of it.
func (b *batch) insertedLate(ctx context.Context, c command, we mongo.WriteException) error {
	failed := map[int]bool{}
	for _, e := range we.WriteErrors {
		failed[e.Index] = true
		b.existed(c.parts[e.Index].ids[0])
	}
	_, err := b.run(ctx, c, 0)
	var again mongo.WriteException
	if err != nil && (!errors.As(err, &again) || again.WriteConcernError != nil || !onlyDuplicates(again)) {
		return explain(err, b.doing+"s")
	}
	b.inserted(&c, failed)
	return nil
}

func onlyDuplicates(we mongo.WriteException) bool {
	return !slices.ContainsFunc(we.WriteErrors, func(e mongo.WriteError) bool { return e.Code != duplicateKey })
}

// timeLimit is the field of a command that bounds its time, for options of the driver that
// have no name for it. The context of such a command is an [ownTimeLimit].
func timeLimit(d time.Duration) bson.D { return bson.D{{Key: "maxTimeMS", Value: ms(d)}} }

// InsertError says which tasks of an insert the server refused, by index, although it
// carried out the command: a validator of the database's owner, for example.
type InsertError struct{ Refused map[int]error }

// Unwrap returns the reasons.
func (e *InsertError) Unwrap() []error { return slices.Collect(maps.Values(e.Refused)) }

func (e *InsertError) Error() string {
	for i, err := range e.Refused {
		return fmt.Sprintf("the database refused %d tasks, among them number %d: %v", len(e.Refused), i, err)
	}
	return "no task was refused"
}

func (s *Tasks) upsertNew(ctx context.Context, tasks []*model.Task, exists []bool) error {
	models := make([]mongo.WriteModel, len(tasks))
	for i, t := range tasks {
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{d("_id", t.ID)}).
			SetUpdate(bson.D{d("$setOnInsert", t)}).SetUpsert(true)
	}
	res, err := s.tasks.BulkWrite(ctx, models)
	if err != nil {
		return explain(err, "storing tasks")
	}
	for i := range tasks {
		_, created := res.UpsertedIDs[int64(i)]
		exists[i] = !created
	}
	return nil
}

// Change reads a task, lets decide say what becomes of it and writes that, again until
// nobody interferes. decide returns its argument when nothing is to change; that, and what decide refuses, is answered
// when a majority has the task as it was read. Before a new
// life begins the old one is copied to the history, ended or waiting for its retry. It is
// safe in the caller's transaction. It waits while another client holds the task. Index: _id.
func (s *Tasks) Change(ctx context.Context, id string, decide func(*model.Task) (*model.Task, error)) (before, after *model.Task, err error) {
	return s.change(ctx, id, decide, func(w Write) (applied bool, err error) {
		if err := s.keepPast(ctx, w); err != nil {
			return false, err
		}
		res, err := s.tasks.UpdateOne(ctx, s.guardOf(w), codec.Diff(w.Before, w.After))
		return err == nil && res.MatchedCount > 0, explain(err, "changing task "+id)
	})
}

// ChangeUnlessHeld is [Tasks.Change] for callers that others wait for: it returns [ErrHeld] after a moment
// if another client holds the task. It is not for the caller's transaction. Index: _id.
func (s *Tasks) ChangeUnlessHeld(ctx context.Context, id string, decide func(*model.Task) (*model.Task, error)) error {
	held := fmt.Errorf("changing task %s: %w", id, ErrHeld)
	_, _, err := s.change(ctx, id, decide, func(w Write) (applied bool, err error) {
		if s.held.waits(s.tasks, id, s.local) {
			return false, held
		}
		short, cancel := context.WithTimeout(ctx, mostLimit)
		defer cancel()
		err = s.keepPast(short, w) // the copy may be of the transaction that holds the task
		switch {
		case ctx.Err() == nil && ranOut(err):
			s.held.note(s.tasks, id, mostLimit, s.local)
			return false, held
		case err != nil:
			return false, err
		}
		written, err := s.Writes(ctx, []Write{w}, 0)
		switch {
		case err != nil:
			return false, err
		case written[0].Held:
			return false, held
		case written[0].Refused != nil:
			return false, fmt.Errorf("changing task %s: %w", id, written[0].Refused)
		}
		return written[0].Applied, nil
	})
	return err
}

func (s *Tasks) change(ctx context.Context, id string, decide func(*model.Task) (*model.Task, error), write func(Write) (applied bool, err error)) (before, after *model.Task, err error) {
	for tries := 0; ; tries++ {
		if tries > 50 {
			return nil, nil, fmt.Errorf("changing task %s: %d attempts conflicted with other changes", id, tries)
		}
		before, err = s.Get(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		after, err = decide(before)
		if err != nil || after == before {
			if stays, unknown := s.Stays(ctx, before); unknown != nil {
				return nil, nil, unknown
			} else if stays {
				return before, after, err
			}
			continue
		}
		applied, err := write(Write{Before: before, After: after})
		if err != nil {
			return nil, nil, err
		}
		if applied {
			return before, after, nil
		}
		// Somebody was quicker; they made progress, so this loop does too.
	}
}

// keepPast copies the life to the history that ends with the write; nothing if it begins none.
func (s *Tasks) keepPast(ctx context.Context, w Write) error {
	if w.After.Generation == w.Before.Generation {
		return nil
	}
	return s.historyRoom.keepLife(ctx, w.Before)
}

// Lives reads only status, generation and rev of tasks, for those who wait. Index: _id.
func (s *Tasks) Lives(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.tasks, "looking at awaited tasks", ids, options.Find().SetProjection(fields("status", "generation", "rev")))
}

// DurableHeads is [Tasks.Durable] without what may be large and says nothing of how far a task is. The tasks are not to be
// written. Index: _id.
func (s *Tasks) DurableHeads(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	large := bson.D{d("args", 0), d("steps", 0), d("checkpoint", 0), d("result", 0), d("progress", 0), d("worker_states.checkpoint", 0), d("worker_states.returns", 0)}
	tasks := make(map[string]*model.Task, len(ids))
	for some := range slices.Chunk(ids, mostAtOnce) {
		found, err := s.byIDs(ctx, s.durable(s.tasks), "reading the states of tasks", some, options.Find().SetProjection(large))
		if err != nil {
			return nil, err
		}
		maps.Copy(tasks, found)
	}
	return tasks, nil
}

// Decode reads a document of the tasks or the history as a task. Fields that this
// release does not know are left out.
func Decode(raw bson.Raw) (*model.Task, error) {
	var read codec.TaskReader
	t, err := read.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("decoding a task: %w", err)
	}
	return t, nil
}
