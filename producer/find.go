package producer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Filter selects tasks. A zero field selects everything; the fields are joined by and.
type Filter struct {
	Tenant   string         // model.NoTenant for tasks without one
	Type     string         // exact
	Statuses []model.Status // any of them
	Category string         // exact
	Creator  string         // exact
	WorkerID string         // has or had an execution that the task still lists
	After    time.Time      // created then or later
	Before   time.Time      // created earlier than that
}

func (f *Filter) validate() error {
	if f.Tenant != "" {
		if err := model.ValidName("tenant", f.Tenant); err != nil {
			return err
		}
	}
	if f.Type != "" {
		if err := model.ValidName("type", f.Type); err != nil {
			return err
		}
	}
	for _, s := range f.Statuses {
		if !slices.Contains(model.Statuses, s) {
			return model.Invalid("status", "is %q; want one of %v", s, model.Statuses)
		}
	}
	if err := model.ValidLabel("category", f.Category); err != nil {
		return err
	}
	if err := model.ValidLabel("creator", f.Creator); err != nil {
		return err
	}
	if f.WorkerID != "" {
		if err := model.ValidWorkerID("worker_id", f.WorkerID); err != nil {
			return err
		}
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		return model.Invalid("after", "is %v, which is not before %v", f.After, f.Before)
	}
	return nil
}

func (f *Filter) query(afterID string) store.Filter {
	return store.Filter{
		Tenant: f.Tenant, Type: f.Type, Statuses: f.Statuses, Category: f.Category, Creator: f.Creator,
		WorkerID: f.WorkerID, Before: f.Before, After: f.After, AfterID: afterID,
	}
}

// Bounds of a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// Page is a part of what a [Filter] selects, ordered by task id.
type Page struct {
	Tasks []*model.Task
	// Documents are the same tasks as they are stored, with fields that this release may
	// not know.
	Documents []bson.Raw
	// Next is the token of the following page; "" when this is the last.
	Next string
}

// Find reads one page of the tasks that the filter selects: at most size, from 1 to
// 1,000, 0 for 100. token is "" for the first page and the Next of the page before for
// the others; one that Find did not make for an equal filter is model.ErrInvalid. Paging
// is stable: a task that is there all the while appears once, whatever comes and goes.
func (p *Producer) Find(ctx context.Context, f Filter, size int, token string) (Page, error) {
	if size == 0 {
		size = DefaultPageSize
	}
	after, err := f.after(token)
	if err == nil {
		err = f.validate()
	}
	if err == nil && (size < 1 || size > MaxPageSize) {
		err = model.Invalid("page_size", "is %d; want 1 to %d, or 0 for %d", size, MaxPageSize, DefaultPageSize)
	}
	if err != nil {
		return Page{}, fmt.Errorf("finding tasks: %w", err)
	}
	docs, err := p.store.List(ctx, f.query(after), size+1) // one more tells whether a page follows
	if err != nil {
		return Page{}, err
	}
	page := Page{Documents: docs[:min(len(docs), size)]}
	for _, doc := range page.Documents {
		t, err := store.Decode(doc)
		if err != nil {
			return Page{}, fmt.Errorf("finding tasks: %w", err)
		}
		page.Tasks = append(page.Tasks, t)
	}
	if len(docs) > size {
		page.Next = f.token(page.Tasks[size-1].ID)
	}
	return page, nil
}

// Count counts the tasks that the filter selects.
func (p *Producer) Count(ctx context.Context, f Filter) (int64, error) {
	if err := f.validate(); err != nil {
		return 0, fmt.Errorf("counting tasks: %w", err)
	}
	return p.store.Count(ctx, f.query(""))
}

// Counts counts the tasks of each type and status.
func (p *Producer) Counts(ctx context.Context) (map[string]map[model.Status]int64, error) {
	return p.store.StatusCounts(ctx)
}
