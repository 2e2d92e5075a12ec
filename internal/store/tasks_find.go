package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// maxRanges is how many index ranges MongoDB merges in order; beyond that it would
// silently sort in memory, so the store refuses to ask.
const maxRanges = 200

// MaxTypes is how many types one due query may name: each is a range for everybody
// and one for the worker itself.
const MaxTypes = maxRanges / 2

// DueQuery asks for tasks that a worker may claim.
type DueQuery struct {
	Types    []string // at most [MaxTypes]
	WorkerID string
	Limit    int
	Skip     int
	Exclude  []string              // ids that this worker knows it is not given now; at most a few dozen
	Only     *lifecycle.Conditions // what the worker takes; nil = everything
	Labels   []string              // audiences to look at in the place of everybody's; nil = everybody's
	Brief    bool                  // reads of each task only what it is sorted by
	Own      bool                  // only tasks that name this worker

	Priorities []int     // those to look at, ascending, and all between them; nil = all
	From       time.Time // tasks due before are not looked at; zero = no bound
}

// audiences are where a worker looks that is not one of several.
func audiences(labels []string, workerID string) []string {
	if len(labels) == 0 {
		return []string{lifecycle.AudienceAll, workerID}
	}
	return append(slices.Clone(labels), workerID)
}

// only adds the worker's conditions, which are looked at in the documents.
func only(filter bson.D, c *lifecycle.Conditions) bson.D {
	if c == nil {
		return filter
	}
	if len(c.Tenants) > 0 {
		tenants := make(bson.A, len(c.Tenants))
		for i, t := range c.Tenants {
			if tenants[i] = t; t == model.NoTenant {
				tenants[i] = nil // absent
			}
		}
		filter = append(filter, d("tenant", bson.D{d("$in", tenants)}))
	}
	if len(c.Categories) > 0 {
		filter = append(filter, d("category", in(c.Categories)))
	}
	if len(c.Creators) > 0 {
		filter = append(filter, d("creator", in(c.Creators)))
	}
	return filter
}

// MaxRanges is how many ranges [DueQuery.Types] times audiences may be.
const MaxRanges = maxRanges

// Due finds claimable tasks, the greatest priority first, then the longest due.
// Index: due, one range for each type and audience, merged without a sort. See [dueQuery].
func (s *Tasks) Due(ctx context.Context, q DueQuery) ([]*model.Task, error) {
	if len(q.Types) > MaxTypes {
		return nil, fmt.Errorf("a query over %d types would sort in memory; at most %d are allowed", len(q.Types), MaxTypes)
	}
	look := audiences(q.Labels, q.WorkerID)
	if q.Own {
		look = []string{q.WorkerID}
	}
	if n := len(q.Types) * len(look); n > maxRanges {
		return nil, fmt.Errorf("a query over %d types and %d audiences would sort in memory; at most %d ranges are allowed", len(q.Types), len(look), maxRanges)
	}
	filter, sort := dueQuery(q.Types, look, q.Priorities, q.From, s.Clock.Now())
	return s.due(ctx, filter, sort, q)
}

// DueMany is [Tasks.Due] for the tasks that want several workers, any of them: those
// this worker neither holds nor has done. Index: due; the array is looked at in the
// documents.
func (s *Tasks) DueMany(ctx context.Context, q DueQuery) ([]*model.Task, error) {
	look := []string{lifecycle.AudienceMany}
	if q.Own {
		look = append(look, q.WorkerID)
	}
	filter, sort := dueQuery(q.Types, look, q.Priorities, q.From, s.Clock.Now())
	filter = append(filter, d("worker_states", bson.D{d("$not", bson.D{d("$elemMatch", bson.D{
		d("worker_id", q.WorkerID), d("fail_time", nil),
	})})}))
	return s.due(ctx, filter, sort, q)
}

func (s *Tasks) due(ctx context.Context, filter, sort bson.D, q DueQuery) ([]*model.Task, error) {
	if len(q.Exclude) > 0 {
		filter = append(filter, d("_id", bson.D{d("$nin", q.Exclude)}))
	}
	filter = only(filter, q.Only)
	o := options.Find().SetSort(sort).SetHint(IndexDue).
		SetLimit(int64(q.Limit)).SetSkip(int64(q.Skip)).SetBatchSize(int32(q.Limit))
	learn := &s.sizes
	if q.Brief {
		o.SetProjection(bson.D{d("type", 1), d("priority", 1), d("due_at", 1), d("options.specific_worker_ids", 1)})
		learn = nil
	}
	return s.findReadable(For(ctx, Finding), "finding due tasks", filter, o, learn)
}

// NextType is the first type, in their order, from the given name on that has tasks due at
// some time; "" = there is none. One seek. Index: due.
func (s *Tasks) NextType(ctx context.Context, from string) (string, error) {
	return s.nextType(ctx, IndexDue, "due_at", from)
}

// nextType is the first type from the given name on that has tasks in an index of types, which have
// the field.
func (s *Tasks) nextType(ctx context.Context, index, field, from string) (string, error) {
	doc, _, err := readOne[Next](ctx, s.tasks, "finding the types that have tasks",
		bson.D{d("type", bson.D{d("$gte", from), d("$lt", sentinelID)}), d(field, exists)},
		options.FindOne().SetSort(fields("type")).SetHint(index).SetProjection(bson.D{d("_id", 0), d("type", 1)}))
	return doc.Type, err
}

// LapsedFrom is where a look at lapsed leases begins. The zero value is the beginning.
type LapsedFrom struct{ parts []place } // of each query

// Begins reports whether the look begins at the beginning.
func (f *LapsedFrom) Begins() bool {
	return !slices.ContainsFunc(f.parts, func(p place) bool { return !p.at.IsZero() })
}

// Leave leaves a task that was found out of the next looks.
func (f *LapsedFrom) Leave(t *model.Task) {
	for i := range f.parts {
		f.parts[i].leave(t.ID, t.LapseAt)
	}
}

// Lapsed finds tasks over a lapsed lease, the longest lapsed first; stragglers (see head)
// some seconds late. The next look begins at the last one. Index: lapse, one range for each type.
func (s *Tasks) Lapsed(ctx context.Context, types []string, from *LapsedFrom, limit int) ([]*model.Task, error) {
	var out []*model.Task
	h := s.head(IndexLapse, types...)
	l := h.begin(s.Clock.Now(), s.local.Monotonic())
	begins, parts := from.Begins(), slices.Clone(from.parts)
	n := 0
	for some := range slices.Chunk(types, maxRanges) {
		if n++; n > len(parts) {
			parts = append(parts, place{})
		}
		part := &parts[n-1]
		filter := append(part.narrow(l, "lapse_at"), d("type", in(some)))
		found, err := s.findReadable(ctx, "finding lapsed leases", filter,
			options.Find().SetSort(bson.D{d("lapse_at", 1)}).SetHint(IndexLapse).SetLimit(int64(limit)).SetProjection(forRules), nil)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			part.reach(found[len(found)-1].LapseAt)
		}
		out = append(out, found...)
	}
	if begins {
		var first time.Time
		for _, t := range out {
			if first.IsZero() || t.LapseAt.Before(first) {
				first = t.LapseAt
			}
		}
		h.end(l, first)
	}
	from.parts = parts
	return out, nil
}

// certainFor is how long a look without a bound proves that no lease is open.
const certainFor = time.Second

// NextLapse is the earliest lapse_at of any task of the types; zero where it found none, and
// sure reports whether it looked for all: then nothing is executing anywhere. Where it is not
// sure a straggler (see head) may be there, and a look a second later is. Index: lapse, one
// range for each type.
func (s *Tasks) NextLapse(ctx context.Context, types []string) (next time.Time, sure bool, err error) {
	h := s.head(IndexLapse, types...)
	l := h.begin(s.Clock.Now(), s.local.Monotonic())
	for {
		if next, err = s.nextLapse(ctx, types, l); err != nil {
			return time.Time{}, false, err
		}
		h.end(l, next)
		if !next.IsZero() || l.unbounded() || h.looked(l.began) < certainFor {
			return next, !next.IsZero() || l.unbounded(), nil
		}
		l = unboundedLook(l.until, l.began)
	}
}

func (s *Tasks) nextLapse(ctx context.Context, types []string, l look) (earliest time.Time, err error) {
	type next struct {
		LapseAt time.Time `bson:"lapse_at"`
	}
	for some := range slices.Chunk(types, maxRanges) {
		doc, there, err := readOne[next](ctx, s.tasks, "finding the next lapse", bson.D{d("type", in(some)), d("lapse_at", l.onward())},
			options.FindOne().SetSort(fields("lapse_at")).SetHint(IndexLapse).SetProjection(bson.D{d("_id", 0), d("lapse_at", 1)}))
		if err != nil {
			return time.Time{}, err
		}
		if there && (earliest.IsZero() || doc.LapseAt.Before(earliest)) {
			earliest = doc.LapseAt
		}
	}
	return earliest, nil
}

// ByIDs reads tasks by their ids. The result has no entry for an id that does not exist, and a nil entry
// for a task that this release cannot read. The log names the latter. Index: _id.
func (s *Tasks) ByIDs(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.tasks, "reading tasks by id", ids, options.Find())
}

// Durable is [Tasks.ByIDs] of what a failover cannot undo: a change that is under way is not there yet. Index: _id.
func (s *Tasks) Durable(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.durable(s.tasks), "reading tasks by id", ids, options.Find())
}

// forRules is [Tasks.ByIDs] without what no rule for executions looks at; see forRules.
// durable reads only what a failover cannot undo.
func (s *Tasks) forRules(ctx context.Context, ids []string, durable bool) (map[string]*model.Task, error) {
	tasks := s.tasks
	if durable {
		tasks = s.durable(tasks)
	}
	return s.byIDs(ctx, tasks, "reading tasks by id", ids, options.Find().SetProjection(forRules))
}

// States is [Tasks.ByIDs] for callers that need only the executions, the options and the status:
// what may be large is left out. The tasks are not to be written; see forState for the exception. Index: _id.
func (s *Tasks) States(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	return s.byIDs(ctx, s.tasks, "reading the states of tasks", ids, options.Find().SetProjection(forState))
}

// ErrNotFound is returned for a task id that does not exist.
var ErrNotFound = missing("no such task")

// Get reads one task, or returns [ErrNotFound]. Index: _id.
func (s *Tasks) Get(ctx context.Context, id string) (*model.Task, error) {
	raw, err := s.getRaw(ctx, id)
	if err != nil {
		return nil, err
	}
	t, err := new(codec.TaskReader).Read(raw)
	return t, explain(err, "reading task "+id)
}

// getRaw is [Tasks.Get] for the document as it is stored, unknown fields and all.
func (s *Tasks) getRaw(ctx context.Context, id string) (bson.Raw, error) {
	raw, there, err := readOne[bson.Raw](ctx, s.tasks, "reading task "+id, bson.D{d("_id", id)})
	if !there && err == nil {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return raw, err
}
