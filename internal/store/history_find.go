package store

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/model"
)

// Where says in which collections a query looks.
type Where uint8

// The places of lives.
const (
	InTasks   Where = iota // present lives
	InBoth                 // present lives and those of the history
	InHistory              // only the history
)

// Place of a page: behind this life.
type Place struct {
	ID         string
	Generation int64
}

// LivesPage is one page, ordered by task id and generation.
type LivesPage struct {
	Docs []bson.Raw // those of the history with the task's id as _id
	Next *Place     // where the following page begins; nil when this is the last
}

// FindLives reads one page over the tasks, the history or both. The order is that of
// (task id, generation), which no life ever changes, so a life that is there all the while
// is on exactly one page, also when it moves from the one collection to the other in
// between. Within a page the tasks are read first: what moves then is found twice and
// shown once, instead of never. Indexes: _id of the tasks, task of the history.
func (s *History) FindLives(ctx context.Context, f Filter, where Where, limit int) (LivesPage, error) {
	for {
		page, err := s.findLives(ctx, f, where, limit)
		if err != nil || len(page.Docs) > 0 || page.Next == nil {
			return page, err
		}
		// All of the page were copies whose lives are still tasks.
		f.AfterID, f.AfterGeneration = page.Next.ID, page.Next.Generation
	}
}

func (s *History) findLives(ctx context.Context, f Filter, where Where, limit int) (LivesPage, error) {
	var all merged
	if where != InHistory {
		docs, err := s.tasksRoom.List(ctx, f, limit+1)
		if err != nil {
			return LivesPage{}, err
		}
		all.add(docs, limit)
	}
	if where != InTasks {
		old, err := s.listHistory(ctx, f, limit+1)
		if err != nil {
			return LivesPage{}, err
		}
		present, err := s.stillTasks(ctx, collect(old, func(raw bson.Raw) string { return keyOf(raw).id }))
		if err != nil {
			return LivesPage{}, err
		}
		stale := func(raw bson.Raw) bool {
			k := keyOf(raw)
			now, there := present[k.id]
			return there && keyOf(now).generation == k.generation
		}
		if err := all.addOld(old, limit, stale); err != nil {
			return LivesPage{}, err
		}
	}
	return all.page(limit), nil
}

// listHistory is [Tasks.List] for the history. Index: task.
func (s *History) listHistory(ctx context.Context, f Filter, limit int) ([]bson.Raw, error) {
	return readAll[bson.Raw](ctx, s.history, "listing the history", f.queryBy("task_id"), options.Find().
		SetSort(bson.D{d("task_id", 1), d("generation", 1)}).SetHint(indexTask).SetLimit(int64(limit)))
}

// merged are lives of both collections.
type merged struct {
	docs  []bson.Raw
	bound *lifeKey // what lies behind it is not known: a list was cut off there
}

func (m *merged) add(docs []bson.Raw, limit int) {
	m.docs = append(m.docs, docs...)
	m.cut(docs, limit)
}

// addOld adds lives of the history without those that are stale.
func (m *merged) addOld(docs []bson.Raw, limit int, stale func(bson.Raw) bool) error {
	m.cut(docs, limit)
	for _, raw := range docs {
		if stale(raw) {
			continue
		}
		doc, err := asTask(raw)
		if err != nil {
			return err
		}
		m.docs = append(m.docs, doc)
	}
	return nil
}

func (m *merged) cut(docs []bson.Raw, limit int) {
	if len(docs) <= limit {
		return
	}
	last := keyOf(docs[len(docs)-1])
	if m.bound == nil || compareKeys(last, *m.bound) < 0 {
		m.bound = &last
	}
}

// page is the first of them, as far as they are known.
func (m *merged) page(limit int) LivesPage {
	// Stable: of two with the same key the one of the tasks comes first, and stays.
	slices.SortStableFunc(m.docs, func(a, b bson.Raw) int { return compareKeys(keyOf(a), keyOf(b)) })
	m.docs = slices.CompactFunc(m.docs, func(a, b bson.Raw) bool { return keyOf(a) == keyOf(b) })
	if m.bound != nil {
		m.docs = slices.DeleteFunc(m.docs, func(raw bson.Raw) bool { return compareKeys(keyOf(raw), *m.bound) > 0 })
	}
	switch {
	case len(m.docs) > limit:
		k := keyOf(m.docs[limit-1])
		return LivesPage{Docs: m.docs[:limit], Next: &Place{k.id, k.generation}}
	case m.bound != nil: // fewer, because some were dropped
		return LivesPage{Docs: m.docs, Next: &Place{m.bound.id, m.bound.generation}}
	default:
		return LivesPage{Docs: m.docs}
	}
}

func compareKeys(a, b lifeKey) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.generation, b.generation))
}

// Count counts the tasks that the filter selects.
func (s *History) Count(ctx context.Context, f Filter) (int64, error) {
	return s.CountLives(ctx, f, InTasks)
}

// CountLives counts what the filter selects there. What moves to the history while both
// are counted may be counted twice.
func (s *History) CountLives(ctx context.Context, f Filter, where Where) (int64, error) {
	var sum int64
	if where != InHistory {
		n, err := s.tasks.CountDocuments(ctx, f.query())
		if err != nil {
			return 0, explain(err, "counting tasks")
		}
		sum += n
	}
	if where != InTasks {
		n, err := s.history.CountDocuments(ctx, f.queryBy("task_id"))
		if err != nil {
			return 0, explain(err, "counting the history")
		}
		sum += n
	}
	return sum, nil
}

// StatusCounts counts the lives of each type and status; see [History.CountLives].
func (s *History) StatusCounts(ctx context.Context, where Where) (map[string]map[model.Status]int64, error) {
	out := map[string]map[model.Status]int64{}
	if where != InHistory {
		if err := addCounts(ctx, s.tasks, out); err != nil {
			return nil, explain(err, "counting tasks")
		}
	}
	if where != InTasks {
		if err := addCounts(ctx, s.history, out); err != nil {
			return nil, explain(err, "counting the history")
		}
	}
	return out, nil
}

func addCounts(ctx context.Context, coll *mongo.Collection, to map[string]map[model.Status]int64) error {
	cur, err := coll.Aggregate(ctx, mongo.Pipeline{{d("$group", bson.D{
		d("_id", bson.D{d("type", "$type"), d("status", "$status")}), d("n", bson.D{d("$sum", 1)}),
	})}})
	if err != nil {
		return err
	}
	var rows []struct {
		ID struct {
			Type   string       `bson:"type"`
			Status model.Status `bson:"status"`
		} `bson:"_id"`
		N int64 `bson:"n"`
	}
	if err := cur.All(ctx, &rows); err != nil {
		return err
	}
	for _, r := range rows {
		if r.ID.Type == sentinelID { // a $match would cost more
			continue
		}
		if to[r.ID.Type] == nil {
			to[r.ID.Type] = map[model.Status]int64{}
		}
		to[r.ID.Type][r.ID.Status] += r.N
	}
	return nil
}
