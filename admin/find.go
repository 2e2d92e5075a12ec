package admin

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Filter selects tasks. A task must match all fields; a zero field matches every task.
type Filter struct {
	Tenant   string         // model.NoTenant for tasks without one
	Type     string         // exact
	Key      string         // the key begins with this text
	Statuses []model.Status // any of them
	Category string         // exact
	Creator  string         // exact
	WorkerID string         // has an execution in the task's list, open or ended
	After    time.Time      // created at this time or later
	Before   time.Time      // created before this time
	Error    string         // the last error contains this text, in upper or lower case
	Args     []string       // PATH=VALUE, such as order.id=17: the arguments have each of these texts, numbers, true or false
	// Past selects past lives, too: those that moved to the history because their retention had passed
	// or their key began a new life. OnlyPast selects nothing else.
	Past, OnlyPast bool
	// Descending has [Admin.Find] list the greatest ids, and the newest generations, first.
	Descending bool
}

func (f *Filter) where() store.Where {
	switch {
	case f.OnlyPast:
		return store.InHistory
	case f.Past:
		return store.InBoth
	default:
		return store.InTasks
	}
}

func (f *Filter) validate() error { return f.query(store.Place{}).Check() }

func (f *Filter) query(after store.Place) store.Filter {
	q := store.Filter{
		Tenant: f.Tenant, Type: f.Type, Key: f.Key, Statuses: f.Statuses, Category: f.Category, Creator: f.Creator,
		WorkerID: f.WorkerID, Error: f.Error, Args: f.Args, Before: f.Before, After: f.After, AfterID: after.ID, Descending: f.Descending,
	}
	if f.where() != store.InTasks {
		q.AfterGeneration = after.Generation
	}
	return q
}

// Bounds of a page.
const (
	defaultPageSize = 100
	maxPageSize     = 1000
	// pageExamines is how many lives the server looks at for a page, in the tasks and in the history.
	pageExamines = 10_000
)

// Page is one page of the tasks that a [Filter] selects, ordered by task id and, with the
// history, by generation; see [Filter.Descending].
type Page struct {
	// Tasks are current lives and past lives. Past lives have an ArchivedAt.
	Tasks []*model.Task
	// Documents are the stored documents of Tasks, including fields that this release does not
	// know. For past lives, too, _id is the task's id.
	Documents []bson.Raw
	// Next is the token of the next page; "" on the last page.
	Next string
}

// Find reads one page of the tasks that the filter selects: at most size, from 1 to 1,000, or
// 100 if size is 0. token is "" for the first page, and Next of the previous page for later
// ones. If Find did not return the token for an equal filter, the error is model.ErrInvalid.
// Paging is stable under concurrent changes: a task that exists during the whole listing
// appears once, and so does a life that moves to the history in between, if the filter includes
// the history. A page may have fewer than size tasks, or none, and still have a Next: it takes at most
// about 8 MiB, and the server looks at no more than 10,000 lives for it, or twice as many with the history. For a Key without a Tenant or a Type it
// looks at no more than 100 pairs of a tenant and a type.
// If this release cannot read some tasks, Find returns the others and a [*model.UnreadableError] with the ids.
func (a *Admin) Find(ctx context.Context, f Filter, size int, token string) (Page, error) {
	if size == 0 {
		size = defaultPageSize
	}
	after, err := f.after(token)
	if err == nil {
		err = f.validate()
	}
	if err == nil && (size < 1 || size > maxPageSize) {
		err = input.Invalid("page_size", "is %d; want 1 to %d, or 0 for %d", size, maxPageSize, defaultPageSize)
	}
	if err != nil {
		return Page{}, fmt.Errorf("finding tasks: %w", err)
	}
	found, err := a.room.Store.History.FindLives(ctx, f.query(after), f.where(), store.Extent{Limit: size, Examine: pageExamines})
	if err != nil {
		return Page{}, err
	}
	page, bad := Page{}, store.Unread{}
	for _, doc := range found.Docs {
		t, err := store.Decode(doc)
		if err != nil {
			id := doc.Lookup("_id").StringValue() // the list is sorted by it
			bad.Note("task", []store.Unreadable{{ID: id, Err: err}})
			continue
		}
		page.Tasks, page.Documents = append(page.Tasks, t), append(page.Documents, doc)
	}
	if found.Next != nil {
		page.Next = f.token(*found.Next)
	}
	return page, bad.Err()
}

// Count counts the tasks that the filter selects. With the history, it may count a task twice
// that moves there during the count.
func (a *Admin) Count(ctx context.Context, f Filter) (int64, error) {
	if err := f.validate(); err != nil {
		return 0, fmt.Errorf("counting tasks: %w", err)
	}
	return a.room.Store.History.CountLives(ctx, f.query(store.Place{}), f.where())
}

// Counts counts the tasks that the filter selects by type and status; see [Admin.Count].
func (a *Admin) Counts(ctx context.Context, f Filter) (map[string]map[model.Status]int64, error) {
	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("counting tasks: %w", err)
	}
	return a.room.Store.History.StatusCounts(ctx, f.query(store.Place{}), f.where())
}
