package mstest

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Sent returns the arguments of all tasks of the type that the database holds, whatever
// became of them, in the order in which they were sent, and tasks of the same millisecond in the order of their ids.
// It looks at collections without a prefix, and ends the test when the
// arguments of a task cannot be decoded.
func Sent[A, R any](t testing.TB, db *mongo.Database, typ model.Type[A, R]) []A {
	t.Helper()
	tasks, err := all(t, db, admin.Filter{Type: typ.Name()})
	if err != nil {
		t.Fatalf("reading the tasks of type %s: %v", typ.Name(), err)
	}
	slices.SortStableFunc(tasks, func(a, b *model.Task) int { return a.CreatedAt.Compare(b.CreatedAt) })
	args := make([]A, len(tasks))
	for i, task := range tasks {
		if err := codec.DecodeValue(task.Args, &args[i]); err != nil {
			t.Fatalf("decoding the arguments of task %s: %v", task.ID, err)
		}
	}
	return args
}

// all reads every page of what the filter selects, ordered by id.
func all(t testing.TB, db *mongo.Database, f admin.Filter) (tasks []*model.Task, err error) {
	p, err := producer.New(producer.Config{Database: db})
	if err != nil {
		return nil, err
	}
	a := admin.New(p)
	for token := ""; ; {
		page, err := a.Find(t.Context(), f, 1000, token)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, page.Tasks...)
		if token = page.Next; token == "" {
			return tasks, p.Close(t.Context())
		}
	}
}
