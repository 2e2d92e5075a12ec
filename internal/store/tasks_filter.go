package store

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

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
	// Descending begins with the greatest ids and generations: after means less, then.
	Descending bool
}

// Check says what is wrong with a filter that somebody wrote.
func (f Filter) Check() error {
	if f.Tenant != "" {
		if err := input.Name("tenant", f.Tenant); err != nil {
			return err
		}
	}
	if f.Type != "" {
		if err := input.Name("type", f.Type); err != nil {
			return err
		}
	}
	for _, s := range f.Statuses {
		if !slices.Contains(lifecycle.Statuses, s) {
			return input.Invalid("status", "is %q; want one of %v", s, lifecycle.Statuses)
		}
	}
	if err := input.Label("category", f.Category); err != nil {
		return err
	}
	if err := input.Label("creator", f.Creator); err != nil {
		return err
	}
	if f.WorkerID != "" {
		if err := input.WorkerID("worker_id", f.WorkerID); err != nil {
			return err
		}
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		return input.Invalid("after", "is %v, which is not before %v", f.After, f.Before)
	}
	return nil
}

// query: ids begin with tenant and type, so those two make a range of the primary key;
// the rest is looked at in the documents. Operators' queries get no index of their own:
// it would cost every task's writes.
func (f Filter) query() bson.D { return f.queryBy("_id") }

// queryBy is the query for a collection that has the task's id in that field.
func (f Filter) queryBy(id string) bson.D {
	q := f.rangeBy(id)
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

// rangeBy is the part of the query that an index on the task's id answers.
func (f Filter) rangeBy(id string) bson.D {
	q := bson.D{}
	if f.Tenant != "" {
		prefix := f.Tenant + "/"
		if f.Type != "" {
			prefix += f.Type + "/"
		}
		from, to := prefix, prefix[:len(prefix)-1]+"0" // '0' follows '/'
		if !f.Descending {
			from = max(from, f.AfterID)
		}
		q = append(q, d(id, bson.D{d("$gte", from), d("$lt", to)}))
	}
	after, here := "$gt", "$gte"
	if f.Descending {
		after, here = "$lt", "$lte"
	}
	switch {
	case f.AfterGeneration != 0: // the first condition is the range of the index
		q = append(q, d("$and", bson.A{bson.D{d(id, bson.D{d(here, f.AfterID)})}}), d("$or", bson.A{
			bson.D{d(id, bson.D{d(after, f.AfterID)})}, bson.D{d("generation", bson.D{d(after, f.AfterGeneration)})},
		}))
	case f.AfterID != "":
		q = append(q, d("$and", bson.A{bson.D{d(id, bson.D{d(after, f.AfterID)})}}))
	}
	return q
}

// indexed says whether the index on ids selects exactly what the filter does.
func (f Filter) indexed() bool {
	return (f.Type == "" || f.Tenant != "") && len(f.Statuses) == 0 && f.Category == "" && f.Creator == "" && f.WorkerID == "" && f.Before.IsZero() && f.After.IsZero()
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
