package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// documentBytes is about what a new task needs beside its arguments.
const documentBytes = 384

func returnAfter() *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(options.After)
}

func isNone(err error) bool { return errors.Is(err, mongo.ErrNoDocuments) }

// Insert stores new tasks in one unordered insert and says which of them exist
// already: exists[i] is true and nothing of task i was written. An *[InsertError] names
// single tasks that the server refused, with exists valid for all others; any other
// error means that nothing is known of any of them. In the caller's transaction, where
// a refused insert would abort everything, upserts that change nothing do the same.
// Index: _id, the only unique one.
func (s *Store) Insert(ctx context.Context, tasks []*model.Task) (exists []bool, err error) {
	exists = make([]bool, len(tasks))
	if len(tasks) == 0 {
		return exists, nil
	}
	if InTransaction(ctx) {
		return exists, s.upsertNew(ctx, tasks, exists)
	}
	docs := make([]bson.Raw, len(tasks))
	for i, t := range tasks {
		docs[i] = model.AppendTask(make([]byte, 0, len(t.Args.Value)+documentBytes), t)
	}
	_, err = s.tasks.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil {
		refused := map[int]error{}
		for _, e := range bulk.WriteErrors {
			switch {
			case e.Code == 11000:
				exists[e.Index] = true
			case ofDeployment(e.Code): // what else was met the same again will tell
				return exists, explain(mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{e}, Labels: bulk.Labels}, "storing tasks")
			default:
				refused[e.Index] = &FatalError{Reason: "storing task " + tasks[e.Index].ID, Err: e}
			}
		}
		if len(refused) > 0 {
			return exists, &InsertError{Refused: refused}
		}
		return exists, nil
	}
	return exists, explain(err, "storing tasks")
}

// InsertError says which tasks of an insert the server refused, by index, although it
// carried out the command: a validator of the database's owner, for example.
type InsertError struct{ Refused map[int]error }

func (e *InsertError) Error() string {
	for i, err := range e.Refused {
		return fmt.Sprintf("%d tasks were refused, among them number %d: %v", len(e.Refused), i, err)
	}
	return "no task was refused"
}

func (s *Store) upsertNew(ctx context.Context, tasks []*model.Task, exists []bool) error {
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
// nobody interferes. decide returns its argument when nothing is to change. Before a new
// life begins the old one is copied to the history, ended or waiting for its retry. It is
// safe in the caller's transaction. Index: _id.
func (s *Store) Change(ctx context.Context, id string, decide func(*model.Task) (*model.Task, error)) (before, after *model.Task, err error) {
	for tries := 0; ; tries++ {
		before, err = s.Get(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		after, err = decide(before)
		if err != nil || after == before {
			return before, after, err
		}
		if after.Generation != before.Generation {
			if err := s.keepLife(ctx, before); err != nil {
				return nil, nil, err
			}
		}
		res, err := s.tasks.UpdateOne(ctx, s.guardOf(Write{Before: before}), model.Diff(before, after))
		if err != nil {
			return nil, nil, explain(err, "changing task "+id)
		}
		if res.MatchedCount > 0 {
			return before, after, nil
		}
		if tries >= 50 {
			return nil, nil, fmt.Errorf("changing task %s: somebody else changed it %d times in between", id, tries)
		}
		// Somebody was quicker; they made progress, so this loop does too.
	}
}

// Lives reads only status, generation and rev of tasks, for those who wait. Index: _id.
func (s *Store) Lives(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	tasks, err := s.find(ctx, "looking at awaited tasks", bson.D{d("_id", in(ids))},
		options.Find().SetProjection(bson.D{d("status", 1), d("generation", 1), d("rev", 1)}))
	out := make(map[string]*model.Task, len(tasks))
	for _, t := range tasks {
		out[t.ID] = t
	}
	return out, err
}

// Filter selects tasks. Zero fields select everything.
type Filter struct {
	Tenant   string // [model.NoTenant] = those without one
	Type     string
	Statuses []model.Status
	Category string
	Creator  string
	WorkerID string // has an execution by that worker
	Before   time.Time
	After    time.Time // created in [After, Before)
	AfterID  string    // paging: only ids greater than this one
	// AfterGeneration makes paging go by life: later lives of AfterID come, too.
	AfterGeneration int64
}

// query: ids begin with tenant and type, so those two make a range of the primary key;
// the rest is looked at in the documents. Operators' queries get no index of their own:
// it would cost every task's writes.
func (f Filter) query() bson.D { return f.queryBy("_id") }

// queryBy is the query for a collection that has the task's id in that field.
func (f Filter) queryBy(id string) bson.D {
	q := bson.D{}
	if f.Tenant != "" {
		prefix := f.Tenant + "/"
		if f.Type != "" {
			prefix += f.Type + "/"
		}
		q = append(q, d(id, bson.D{d("$gte", max(prefix, f.AfterID)), d("$lt", prefix[:len(prefix)-1]+"0")})) // '0' follows '/'
	}
	switch {
	case f.AfterGeneration != 0: // the first condition is the range of the index
		q = append(q, d("$and", bson.A{bson.D{d(id, bson.D{d("$gte", f.AfterID)})}}), d("$or", bson.A{
			bson.D{d(id, bson.D{d("$gt", f.AfterID)})}, bson.D{d("generation", bson.D{d("$gt", f.AfterGeneration)})},
		}))
	case f.AfterID != "":
		q = append(q, d("$and", bson.A{bson.D{d(id, bson.D{d("$gt", f.AfterID)})}}))
	}
	if f.Type != "" {
		q = append(q, d("type", f.Type))
	} else {
		q = append(q, present)
	}
	if len(f.Statuses) > 0 {
		q = append(q, d("status", in(f.Statuses)))
	}
	if f.Category != "" {
		q = append(q, d("category", f.Category))
	}
	if f.Creator != "" {
		q = append(q, d("creator", f.Creator))
	}
	if f.WorkerID != "" {
		q = append(q, d("worker_states.worker_id", f.WorkerID))
	}
	if created := timeRange(f.After, f.Before); created != nil {
		q = append(q, d("created_at", created))
	}
	return q
}

func timeRange(from, to time.Time) bson.D {
	var r bson.D
	if !from.IsZero() {
		r = append(r, d("$gte", from))
	}
	if !to.IsZero() {
		r = append(r, d("$lt", to))
	}
	return r
}

// List reads the documents of one page as they are stored, by id, which is stable
// while tasks come and go. Index: _id.
func (s *Store) List(ctx context.Context, f Filter, limit int) ([]bson.Raw, error) {
	cur, err := s.tasks.Find(ctx, f.query(), options.Find().SetSort(bson.D{d("_id", 1)}).SetLimit(int64(limit)))
	if err != nil {
		return nil, explain(err, "listing tasks")
	}
	var out []bson.Raw
	if err := cur.All(ctx, &out); err != nil {
		return nil, explain(err, "listing tasks")
	}
	return out, nil
}

// Decode reads a document of the tasks or the history as a task. Fields that this
// release does not know are left out.
func Decode(raw bson.Raw) (*model.Task, error) {
	var read model.TaskReader
	t, err := read.Read(raw)
	if err != nil {
		return nil, fmt.Errorf("decoding a task: %w", err)
	}
	return t, nil
}
