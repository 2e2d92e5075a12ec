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

// LivesPage is one page, ordered by task id and generation, see [Filter.Descending].
type LivesPage struct {
	Docs []bson.Raw // those of the history with the task's id as _id
	Next *Place     // where the following page begins; nil when this is the last
}

// Extent bounds what one page takes.
type Extent struct {
	Limit int // lives
	// Examine is how many lives the server looks at in each collection; 0 = as many as it takes to find
	// one. Where few lives meet the filter a page may have none, and a following one.
	Examine int

	names bool // only ids and generations are read
}

// pageBytes is how large the documents of a page may be together, beside the last one.
const pageBytes = 8 << 20

// FindLives reads one page over the tasks, the history or both. The order is that of
// (task id, generation), which no life ever changes, so a life that is there all the while
// is on exactly one page, also when it moves from the one collection to the other in
// between. Within a page the tasks are read first: what moves then is found twice and
// shown once, instead of never. Indexes: _id of the tasks, or those of [rare]
// statuses; task of the history.
func (s *History) FindLives(ctx context.Context, f Filter, where Where, e Extent) (LivesPage, error) {
	for {
		page, err := s.findLives(ctx, f, where, e)
		if err != nil || len(page.Docs) > 0 || page.Next == nil || e.Examine > 0 {
			return page, err
		}
		// All of the page were copies whose lives are still tasks.
		f.AfterID, f.AfterGeneration = page.Next.ID, page.Next.Generation
	}
}

// LifeNames is [History.FindLives] for callers that need only to know which lives there are.
func (s *History) LifeNames(ctx context.Context, f Filter, where Where, e Extent) (names []Place, next *Place, err error) {
	e.names = true
	page, err := s.FindLives(ctx, f, where, e)
	for _, raw := range page.Docs {
		k := keyOf(raw)
		names = append(names, Place{k.id, k.generation})
	}
	return names, page.Next, err
}

func (s *History) findLives(ctx context.Context, f Filter, where Where, e Extent) (LivesPage, error) {
	all := merged{compare: compareKeys}
	order := 1
	if f.Descending {
		order, all.compare = -1, func(a, b lifeKey) int { return compareKeys(b, a) }
	}
	if where != InHistory {
		for _, part := range f.parts() {
			l := listing{coll: s.tasks, id: "_id", sort: bson.D{d("_id", order)}, index: part.index(), doing: "listing tasks"}
			if l.own = l.index != ""; !l.own {
				l.index = "_id_"
			}
			docs, end, err := l.read(ctx, part, e)
			if err != nil {
				return LivesPage{}, err
			}
			all.add(docs, end)
		}
	}
	if where != InTasks {
		old, end, err := listing{coll: s.history, id: "task_id", sort: bson.D{d("task_id", order), d("generation", order)}, index: indexTask, doing: "listing the history"}.read(ctx, f, e)
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
		if err := all.addOld(old, end, stale); err != nil {
			return LivesPage{}, err
		}
	}
	return all.page(e.Limit), nil
}

// listing is a list of the lives of a collection.
type listing struct {
	coll  *mongo.Collection
	id    string // the field that has the task's id
	sort  bson.D
	index string
	own   bool // the index is that of the filter's status
	doing string
}

// read reads the first lives that the filter selects, one more than a page has if there are so many.
// Behind end it does not know any; nil = it knows all.
func (l listing) read(ctx context.Context, f Filter, e Extent) (docs []bson.Raw, end *lifeKey, err error) {
	if f.keyed() && !l.own {
		return l.jump(ctx, f, e)
	}
	filter := f.queryBy(l.id)
	if e.Examine > 0 && !f.indexed(l.own) {
		if end, err = l.end(ctx, f, e.Examine); err != nil {
			return nil, nil, err
		}
		if end != nil {
			upTo := "$lte"
			if f.Descending {
				upTo = "$gte"
			}
			filter = bson.D{d("$and", bson.A{filter, bson.D{d(l.id, bson.D{d(upTo, end.id)})}})}
		}
	}
	o := options.Find().SetSort(l.sort).SetHint(l.index).SetLimit(int64(e.Limit + 1))
	if e.names {
		o.SetProjection(fields("task_id", "generation"))
	}
	bytes := 0
	err = readEach(ctx, l.coll, l.doing, filter, o, func(doc bson.Raw) bool {
		docs = append(docs, slices.Clone(doc))
		bytes += len(doc)
		return bytes < pageBytes
	})
	if err == nil && (len(docs) > e.Limit || bytes >= pageBytes) {
		end = new(keyOf(docs[len(docs)-1]))
	}
	return docs, end, err
}

// end is the key of the life that is so many behind the beginning of the list; nil = there are fewer. It
// looks at the index alone.
func (l listing) end(ctx context.Context, f Filter, examine int) (*lifeKey, error) {
	var row struct {
		ID string `bson:"_id"`
		Of string `bson:"task_id"`
	}
	f.AfterGeneration = 0
	q := f.rangeBy(l.id)
	if l.own {
		q = append(q, d("status", f.Statuses[0]))
		if f.Type != "" && f.Tenant == "" {
			q = append(q, d("type", f.Type))
		}
	}
	cur, err := l.coll.Find(ctx, q, options.Find().SetSort(l.sort).SetHint(l.index).SetProjection(bson.D{d(l.id, 1)}).
		SetSkip(int64(examine-1)).SetLimit(1))
	if err != nil {
		return nil, explain(err, l.doing)
	}
	defer func() { _ = cur.Close(ctx) }()
	if !cur.Next(ctx) {
		return nil, explain(cur.Err(), l.doing)
	}
	if err := cur.Decode(&row); err != nil {
		return nil, explain(err, l.doing)
	}
	if l.id != "_id" {
		row.ID = row.Of
	}
	return f.behind(row.ID), nil
}

// merged are lives of both collections.
type merged struct {
	docs  []bson.Raw
	bound *lifeKey // what lies behind it is not known: a list was cut off there

	compare func(a, b lifeKey) int // the order of the list
}

func (m *merged) add(docs []bson.Raw, end *lifeKey) {
	m.docs = append(m.docs, docs...)
	m.cut(end)
}

// addOld adds lives of the history without those that are stale.
func (m *merged) addOld(docs []bson.Raw, end *lifeKey, stale func(bson.Raw) bool) error {
	m.cut(end)
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

func (m *merged) cut(end *lifeKey) {
	if end != nil && (m.bound == nil || m.compare(*end, *m.bound) < 0) {
		m.bound = end
	}
}

// page is the first of them, as far as they are known.
func (m *merged) page(limit int) LivesPage {
	// Stable: of two with the same key the one of the tasks comes first, and stays.
	slices.SortStableFunc(m.docs, func(a, b bson.Raw) int { return m.compare(keyOf(a), keyOf(b)) })
	m.docs = slices.CompactFunc(m.docs, func(a, b bson.Raw) bool { return keyOf(a) == keyOf(b) })
	if m.bound != nil {
		m.docs = slices.DeleteFunc(m.docs, func(raw bson.Raw) bool { return m.compare(keyOf(raw), *m.bound) > 0 })
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
		for _, part := range f.parts() {
			o := options.Count()
			if index := part.index(); index != "" {
				o.SetHint(index)
			}
			n, err := s.tasks.CountDocuments(ctx, part.query(), o)
			if err != nil {
				return 0, explain(err, "counting tasks")
			}
			sum += n
		}
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

// StatusCounts counts what the filter selects there, by type and status; see [History.CountLives].
func (s *History) StatusCounts(ctx context.Context, f Filter, where Where) (map[string]map[model.Status]int64, error) {
	out := map[string]map[model.Status]int64{}
	if where != InHistory {
		for _, part := range f.parts() { // the server chooses the index: the status is the one of a partial one
			if err := addCounts(ctx, s.tasks, out, part.matching("_id")...); err != nil {
				return nil, explain(err, "counting tasks")
			}
		}
	}
	if where != InTasks {
		if err := addCounts(ctx, s.history, out, f.matching("task_id")...); err != nil {
			return nil, explain(err, "counting the history")
		}
	}
	return out, nil
}

// matching is the stage of an aggregation for the filter; none for one that selects everything, which
// is quicker.
func (f Filter) matching(id string) []bson.E {
	if q := f.queryBy(id); f.Type != "" || len(f.Statuses) > 0 || len(q) > 1 {
		return []bson.E{d("$match", q)}
	}
	return nil
}

// addCounts counts what the stages before leave of a collection.
func addCounts(ctx context.Context, coll *mongo.Collection, to map[string]map[model.Status]int64, before ...bson.E) error {
	var stages mongo.Pipeline
	for _, stage := range before {
		stages = append(stages, bson.D{stage})
	}
	cur, err := coll.Aggregate(ctx, append(stages, bson.D{d("$group", bson.D{
		d("_id", bson.D{d("type", "$type"), d("status", "$status")}), d("n", bson.D{d("$sum", 1)}),
	})}))
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
