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
	Key      string // begins so
	Statuses []model.Status
	Category string
	Creator  string
	WorkerID string   // has an execution by that worker
	Error    string   // has this text in its last error, in upper or lower case
	Args     []string // PATH=VALUE: the arguments have that value at that path
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
			return input.Invalid("status", "is %q; want one of %s", s, input.Names(lifecycle.Statuses))
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
	if err := f.CheckSearch(); err != nil {
		return err
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		return input.Invalid("after", "is %v, which is not before %v", f.After, f.Before)
	}
	return nil
}

// query: ids begin with tenant and type, so those two make a range of the primary key; so does
// one status of [rare]. The rest is looked at in the documents: an index for it would cost every
// task's writes.
func (f Filter) query() bson.D { return f.queryBy("_id") }

// queryBy is the query for a collection that has the task's id in that field.
func (f Filter) queryBy(id string) bson.D {
	q := f.rangeBy(id)
	if f.keyed() {
		q = bson.D{d("$and", bson.A{q, bson.D{d(id, f.keyPattern())}})}
	}
	switch {
	case f.Type != "":
		q = append(q, d("type", f.Type))
	case len(f.Statuses) == 0: // the sentinel has none of them
		q = append(q, present)
	}
	switch len(f.Statuses) {
	case 0:
	case 1: // which a partial index wants to be told
		q = append(q, d("status", f.Statuses[0]))
	default:
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
	return f.search(q)
}

// rangeBy is the part of the query that an index on the task's id answers.
func (f Filter) rangeBy(id string) bson.D {
	q := bson.D{}
	if f.Tenant != "" {
		from, to := f.ids()
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

// rare are the statuses whose tasks have indexes of their own: of all of them, and by type. Tasks come
// there only if they end without success, so no claim, ping or success writes to these indexes.
var rare = map[model.Status]struct{ all, byType string }{
	model.StatusPending: {indexPending, indexPendingType},
	model.StatusFailure: {indexFailure, indexFailureType},
}

// parts are filters of tasks that together select what f does. Each of them has an index of its own if all
// statuses that are wanted do.
func (f Filter) parts() []Filter {
	if len(f.Statuses) == 0 || slices.ContainsFunc(f.Statuses, func(s model.Status) bool { return rare[s].all == "" }) {
		return []Filter{f}
	}
	var out []Filter
	for _, s := range slices.Compact(slices.Sorted(slices.Values(f.Statuses))) {
		part := f
		part.Statuses = []model.Status{s}
		out = append(out, part)
	}
	return out
}

// index is the one of the tasks that a part of a filter has for itself; "" = none but that of the ids.
func (f Filter) index() string {
	if len(f.Statuses) != 1 {
		return ""
	}
	own := rare[f.Statuses[0]]
	if f.Type != "" && f.Tenant == "" { // ids begin with both
		return own.byType
	}
	return own.all
}

// indexed says whether an index selects exactly what the filter does: that on ids, or the filter's own.
func (f Filter) indexed(own bool) bool {
	return (own || len(f.Statuses) == 0 && (f.Type == "" || f.Tenant != "")) && f.Category == "" && f.Creator == "" && f.WorkerID == "" && f.Before.IsZero() && f.After.IsZero() && !f.searched() && !f.keyed()
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
