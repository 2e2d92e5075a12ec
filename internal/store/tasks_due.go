package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// dueQuery is the filter and the sort that find due tasks in the order of the queue. The way
// in which they name priorities decides whether MongoDB merges ranges of the index or sorts
// every due task in memory (measured: 5 ms or 90 ms with 60,000 due tasks):
//
//   - One priority: equality, sorted by due_at alone. Type, audience and priority are points
//     then, and MongoDB merges one range for each.
//   - Several: one range from the least to the greatest, with the full sort. MongoDB merges
//     one range for each type and audience. Points, as equality or $in, would not fit that
//     sort.
//   - All: no condition, with the full sort.
//
// from bounds due_at below; zero = no bound. Index: due.
func dueQuery(types, audience []string, priorities []int, from, until time.Time) (filter, sort bson.D) {
	filter = bson.D{d("type", in(types)), d("audience", in(audience))}
	sort = bson.D{d("priority", -1), d("due_at", 1)}
	switch n := len(priorities); {
	case n == 1:
		filter, sort = append(filter, d("priority", priorities[0])), bson.D{d("due_at", 1)}
	case n > 1:
		filter = append(filter, d("priority", bson.D{d("$gte", priorities[0]), d("$lte", priorities[n-1])}))
	}
	due := bson.D{d("$lte", until)}
	if !from.IsZero() {
		due = bson.D{d("$gte", from), d("$lte", until)}
	}
	return append(filter, d("due_at", due)), sort
}

// allPriorities are all that a task may have, ascending.
func allPriorities() []int {
	all := make([]int, input.MaxPriority+1)
	for p := range all {
		all[p] = p
	}
	return all
}

// LastDue is the latest due_at until now of the tasks of one type, audience and priority;
// zero when there is none from the given time on. Index: due, read backwards from one place.
func (s *Tasks) LastDue(ctx context.Context, typ, audience string, priority int, from time.Time) (time.Time, error) {
	doc, _, err := readOne[Next](ctx, s.tasks, "finding the last due task", bson.D{
		d("type", typ), d("audience", audience), d("priority", priority),
		d("due_at", bson.D{d("$gte", from), d("$lte", s.Clock.Now())}),
	}, options.FindOne().SetSort(bson.D{d("due_at", -1)}).SetHint(IndexDue).SetProjection(bson.D{d("_id", 0), d("due_at", 1)}))
	return doc.DueAt, err
}

// NextQuery asks when something is due.
type NextQuery struct {
	Types    []string
	WorkerID string
	After    time.Time             // the caller's last look at what is due
	Until    time.Time             // later ones do not matter
	Only     *lifecycle.Conditions // what the worker takes; nil = everything
	Labels   []string              // audiences to look at in the place of everybody's; nil = everybody's

	Priorities []int // those to look at; nil = all
}

// Next is the task that is due next.
type Next struct {
	Type     string    `bson:"type"`
	Priority int       `bson:"priority"`
	DueAt    time.Time `bson:"due_at"` // zero = there is none
}

// audiences are those to look at.
func (q *NextQuery) audiences() []string {
	return append(audiences(q.Labels, q.WorkerID), lifecycle.AudienceMany)
}

// NextDue finds the task with the earliest due_at after q.After and not after q.Until.
// Index: due, with the priorities as points, since without them it gives no order by time.
func (s *Tasks) NextDue(ctx context.Context, q NextQuery) (Next, error) {
	priorities := q.Priorities
	if len(priorities) == 0 {
		priorities = allPriorities()
	}
	look := q.audiences()
	atOnce := max(1, maxRanges/(len(look)*len(priorities))) // types; one of very many labels is sorted, of few documents
	types, until := q.Types, q.Until
	var earliest Next
	for len(types) > 0 {
		n := min(len(types), atOnce)
		filter := only(bson.D{
			d("type", in(types[:n])), d("audience", in(look)),
			d("priority", in(priorities)), d("due_at", bson.D{d("$gt", q.After), d("$lte", until)}),
		}, q.Only)
		types = types[n:]
		doc, there, err := readOne[Next](ctx, s.tasks, "finding the next due task", filter, options.FindOne().SetSort(fields("due_at")).SetHint(IndexDue).
			SetProjection(bson.D{d("_id", 0), d("type", 1), d("priority", 1), d("due_at", 1)}))
		switch {
		case err != nil:
			return Next{}, err
		case !there:
		case earliest.DueAt.IsZero() || doc.DueAt.Before(earliest.DueAt):
			earliest, until = doc, doc.DueAt
		}
	}
	return earliest, nil
}
