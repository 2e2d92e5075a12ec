package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// gen makes random documents, indexes and queries over a few fields, so that
// they meet often.
type gen struct {
	*rand.Rand
	prefer []string // paths to take most of the time
}

func pick[T any](g gen, list ...T) T { return list[g.IntN(len(list))] }

func doc(name string, v any) bson.D { return bson.D{{Key: name, Value: v}} }

func (g gen) scalar() any {
	return pick[any](g, nil, true, false, int32(g.IntN(6)-2), int64(g.IntN(6)), float64(g.IntN(8))/2, math.NaN(),
		math.Inf(1), "", "a", "ab", "b", "a\x00b", bson.DateTime(g.IntN(4)*1000), bson.Timestamp{T: uint32(g.IntN(3))},
		bson.ObjectID{11: byte(g.IntN(3))}, bson.MinKey{}, bson.MaxKey{}, doc("x", g.IntN(3)), bson.Regex{Pattern: "a"},
		bson.Binary{Data: []byte{byte(g.IntN(3))}}, int64(1<<53+1), int64(math.MinInt64),
		bson.NewDecimal128(0x3040000000000000, uint64(g.IntN(3))))
}

func (g gen) list(n int, element func() any) bson.A {
	a := bson.A{}
	for range g.IntN(n) {
		a = append(a, element())
	}
	return a
}

func (g gen) value(depth int) any {
	switch n := g.IntN(10); {
	case n < 6 || depth == 0:
		return g.scalar()
	case n < 9:
		return g.list(4, func() any { return g.value(depth - 1) })
	}
	return g.object(depth - 1)
}

func (g gen) object(depth int) any {
	d := bson.D{}
	for _, k := range []string{"x", "y"} {
		if g.IntN(3) > 0 {
			d = append(d, bson.E{Key: k, Value: g.value(depth)})
		}
	}
	return d
}

func (g gen) document(id int) bson.D {
	d := doc("_id", id)
	for _, k := range []string{"a", "b", "c"} {
		if g.IntN(4) > 0 {
			d = append(d, bson.E{Key: k, Value: g.value(2)})
		}
	}
	if g.IntN(4) > 0 {
		d = append(d, bson.E{Key: "n", Value: g.IntN(5)})
	}
	if g.IntN(2) > 0 {
		d = append(d, bson.E{Key: "arr", Value: g.list(4, func() any { return g.object(1) })})
	}
	return d
}

func (g gen) path() string {
	if len(g.prefer) > 0 && g.IntN(4) > 0 {
		return pick(g, g.prefer...)
	}
	return pick(g, "a", "b", "c", "n", "n", "a.x", "b.y", "arr.x", "arr.y", "a.0", "_id")
}

func (g gen) fields(n int) bson.D {
	d := bson.D{}
	for range n {
		if p := g.path(); !slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == p }) {
			d = append(d, bson.E{Key: p, Value: pick(g, 1, -1)})
		}
	}
	return d
}

func (g gen) index(i int) bson.D {
	d := bson.D{{Key: "key", Value: g.fields(1 + g.IntN(3))}, {Key: "name", Value: fmt.Sprint("i", i)}}
	switch g.IntN(4) {
	case 0:
		d = append(d, bson.E{Key: "sparse", Value: true})
	case 1:
		d = append(d, bson.E{Key: "partialFilterExpression", Value: doc(g.path(), pick[any](g,
			doc("$exists", true), doc("$gt", g.IntN(3)), doc("$lte", g.scalar()), g.IntN(3)))})
	}
	return d
}

func (g gen) condition() any {
	list := g.list(5, func() any { return g.value(1) })
	switch g.IntN(12) {
	case 0, 1, 2:
		return g.value(1)
	case 3, 4:
		return doc("$in", list)
	case 5, 6:
		return doc(pick(g, "$gt", "$gte", "$lt", "$lte"), g.value(1))
	case 7, 8:
		v := g.IntN(4)
		return append(doc(pick(g, "$gt", "$gte"), v), doc(pick(g, "$lt", "$lte"), v+g.IntN(3))...)
	case 9:
		return doc("$exists", g.IntN(3) > 0)
	case 10:
		return doc(pick(g, "$ne", "$nin"), pick[any](g, list, list, bson.A{g.scalar()}))
	}
	return doc("$elemMatch", doc("x", g.scalar()))
}

func (g gen) filter(depth int) bson.D {
	d := bson.D{}
	for range g.IntN(4) {
		d = append(d, bson.E{Key: g.path(), Value: g.condition()})
	}
	if depth > 0 && g.IntN(3) == 0 {
		branches := append(g.list(3, func() any { return g.filter(depth - 1) }), g.filter(depth-1))
		d = append(d, bson.E{Key: pick(g, "$or", "$or", "$and", "$nor"), Value: branches})
	}
	return d
}

// TestIndexAnswersAsScanDoes compares, for random documents, indexes and
// queries, what the chosen plan delivers with what a look at every document
// does. MSCHEDULER_FUZZ_QUERIES asks for more than the usual number,
// MSCHEDULER_FUZZ_SEED repeats a run.
func TestIndexAnswersAsScanDoes(t *testing.T) {
	queries := envInt("MSCHEDULER_FUZZ_QUERIES", 5000)
	seed := uint64(envInt("MSCHEDULER_FUZZ_SEED", int(clock.System().Now().UnixNano()&0xffffff)))
	t.Logf("seed %d, %d queries", seed, queries)
	const perWorld = 50
	used := 0
	for world := uint64(0); int(world)*perWorld < queries; world++ {
		used += fuzzWorld(t, gen{Rand: rand.New(rand.NewPCG(seed, world))}, perWorld)
		if t.Failed() {
			t.Fatalf("seed %d, world %d", seed, world)
		}
	}
	t.Logf("%d of %d queries used an index", used, queries)
	require.Greater(t, used, queries/4)
}

func envInt(name string, missing int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return missing
}

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	require.NoError(t, err)
	return b
}

const ns = "t.c"

// fuzzWorld fills a collection, changes it and queries it.
func fuzzWorld(t *testing.T, g gen, queries int) (used int) {
	s, err := storage.Open(storage.Options{Now: func() time.Time { return time.Unix(1, 0) }})
	require.NoError(t, err)
	w := s.Writer(t.Context(), nil)
	defer func() { require.NoError(t, w.Finish()) }()
	for i := range 1 + g.IntN(5) {
		spec, err := storage.ParseIndexSpec(raw(t, g.index(i)))
		if err != nil {
			continue // some random definitions are no indexes
		}
		_, _, _, _ = w.CreateIndexes(ns, []*storage.IndexSpec{spec}) // nor may all exist beside each other
	}
	for i := range 40 {
		change(t, g, w, i)
	}
	for range queries {
		change(t, g, w, g.IntN(40))
		if c := w.View(ns); c != nil {
			used += compare(t, g, c)
		}
	}
	return used
}

// change inserts, updates or deletes a document, so that indexes are maintained too.
func change(t *testing.T, g gen, w *storage.Writer, id int) {
	rec, ok := w.FindID(ns, raw(t, doc("_id", id)).Lookup("_id"))
	var err error
	if !ok {
		err = w.Insert(ns, raw(t, g.document(id)))
	} else {
		_, err = w.Modify(ns, rec.ID, func(storage.Record) (bson.Raw, storage.Verdict, error) {
			if g.IntN(8) == 0 {
				return nil, storage.Remove, nil
			}
			return raw(t, g.document(id)), storage.Supply, nil
		})
	}
	if err != nil {
		require.Equal(t, mongoerr.CannotIndexParallelArrays, mongoerr.Code(err), "%v", err)
	}
}

// compare runs a random query both ways.
func compare(t *testing.T, g gen, c *storage.Collection) int {
	x := c.Indexes[g.IntN(len(c.Indexes))].Spec
	for _, f := range x.Fields {
		g.prefer = append(g.prefer, f.Path)
	}
	spec := g.filter(2)
	filter, err := query.CompileFilter(raw(t, spec))
	if err != nil {
		return 0
	}
	q := plan.Query{Filter: filter}
	order := bson.D{}
	if g.IntN(2) == 0 {
		if order = g.fields(1 + g.IntN(2)); g.IntN(2) == 0 {
			// Take an index's own order, forwards or backwards.
			order = nil
			way := pick(g, 1, -1)
			for _, f := range x.Fields[g.IntN(len(x.Fields)):] {
				order = append(order, bson.E{Key: f.Path, Value: map[bool]int{false: way, true: -way}[f.Descending]})
			}
		}
		q.Sort, err = query.CompileSort(raw(t, order))
		require.NoError(t, err)
		if g.IntN(2) == 0 {
			q.Limit = 1 + g.IntN(5)
		}
	}
	if g.IntN(2) == 0 && !x.Sparse {
		q.Hint = value.String(x.Name)
	}
	p, err := plan.Choose(c, q)
	if err != nil {
		require.ErrorContains(t, err, "partial")
		return 0
	}
	rows, err := p.Run(t.Context())
	if err != nil {
		return 0 // parallel arrays cannot be sorted
	}
	got, err := answers(q, q.Limit, rows.Next)
	require.NoError(t, rows.Err())
	it := c.Scan()
	want, wantErr := answers(q, 0, func() (storage.Record, bool) {
		for it.Next() {
			if filter.Match(it.Item().Doc) {
				return it.Item(), true
			}
		}
		return storage.Record{}, false
	})
	if err != nil || wantErr != nil {
		return 0 // parallel arrays; an index may not meet them
	}
	slices.SortStableFunc(want, func(a, b answer) int { return strings.Compare(a.key, b.key) })
	explained := fmt.Sprint(p.Explain())
	if !equalAnswers(got, want, q.Limit) {
		t.Errorf("filter %v\nsort %v limit %d\nplan %s\n got %v\nwant %v", spec, order, q.Limit, explained, got, want)
	}
	if strings.Contains(explained, "IXSCAN") {
		return 1
	}
	return 0
}

type answer struct {
	id  uint64
	key string // its sort key
	doc bson.Raw
}

// answers are the first limit (0: all) records that next delivers.
func answers(q plan.Query, limit int, next func() (storage.Record, bool)) (list []answer, err error) {
	for limit == 0 || len(list) < limit {
		rec, ok := next()
		if !ok {
			break
		}
		a := answer{id: rec.ID, doc: rec.Doc}
		if q.Sort != nil {
			key, err := q.Sort.Key(rec.Doc)
			if err != nil {
				return nil, err
			}
			a.key = string(key)
		}
		list = append(list, a)
	}
	return list, nil
}

// equalAnswers compares the documents, and the order where the sort defines it.
// Documents that share their sort key may come in any order.
func equalAnswers(got, want []answer, limit int) bool {
	n := len(want)
	if limit > 0 {
		n = min(n, limit)
	}
	seen := map[uint64]bool{}
	for i, a := range got {
		same := func(b answer) bool { return a.id == b.id }
		if i >= n || a.key != want[i].key || seen[a.id] || !slices.ContainsFunc(want, same) {
			return false
		}
		seen[a.id] = true
	}
	return len(got) == n
}
