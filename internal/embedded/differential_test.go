package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
)

// TestAnIndependentEngineAnswersTheSame sends the same random commands through
// the driver to this server and to secantusd, and compares answers and documents
// afterwards. Each difference must be one that differences_test.go explains.
// MSCHEDULER_FUZZ_COMMANDS asks for more, MSCHEDULER_FUZZ_SEED repeats a run.
func TestAnIndependentEngineAnswersTheSame(t *testing.T) {
	other, err := engine.Secantusd().Start(t.Context())
	var gone *engine.MissingError
	if errors.As(err, &gone) {
		t.Skipf("no engine to compare with: %v", gone)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	ours, err := engine.Embedded(embedded.Options{}).Start(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, ours.Close()) }()
	a, b := engine.Connect(t, ours.URI), engine.Connect(t, other.URI)

	commands := envInt("MSCHEDULER_FUZZ_COMMANDS", 500)
	seed := uint64(1) // a normal run is always the same
	if os.Getenv("MSCHEDULER_FUZZ_COMMANDS") != "" {
		seed = uint64(envInt("MSCHEDULER_FUZZ_SEED", int(clock.System().Now().UnixNano()&0xffffff)))
	}
	t.Logf("seed %d, %d commands", seed, commands)
	same, explained := 0, map[string]int{}
	const perWorld = 25
	for world := uint64(0); int(world)*perWorld < commands; world++ {
		w := &twin{generator: generator{Rand: rand.New(rand.NewPCG(seed, world))}, name: fmt.Sprintf("world%d", world)}
		w.ours, w.theirs = a.Database(w.name), b.Database(w.name)
		w.run(t, perWorld, &same, explained)
		if t.Failed() && os.Getenv("EXPLORE") == "" {
			t.Fatalf("seed %d, world %d", seed, world)
		}
	}
	t.Logf("%d the same; explained: %v", same, explained)
	require.Greater(t, same, commands/2)
}

func envInt(name string, missing int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return missing
}

// twin is a collection that both servers have.
type twin struct {
	generator
	name         string
	ours, theirs *mongo.Database
	indexes      []string
}

func (w *twin) run(t *testing.T, commands int, same *int, explained map[string]int) {
	defer func() {
		require.NoError(t, w.ours.Drop(t.Context()))
		require.NoError(t, w.theirs.Drop(t.Context()))
	}()
	w.reset(t)
	defer func() {
		var report struct{ Valid bool }
		require.NoError(t, w.ours.RunCommand(t.Context(), bson.D{{Key: "validate", Value: "c"}}).Decode(&report))
		require.True(t, report.Valid)
	}()
	for range commands {
		cmd := w.command()
		got, want := answer(t.Context(), w.ours, cmd), answer(t.Context(), w.theirs, cmd)
		writes := slices.Contains([]string{"insert", "update", "delete", "findAndModify"}, cmd[0].Key)
		if writes {
			got.after, want.after = w.documents(t, w.ours), w.documents(t, w.theirs)
		}
		if got.equal(want) {
			*same++
			continue
		}
		why := explain(cmd, got, want)
		if scan := answer(t.Context(), w.theirs, append(slices.Clone(cmd), bson.E{Key: "hint", Value: d("$natural", 1)})); why == "" && !writes && got.equal(scan) {
			why = "secantusd finds it without its index"
		}
		if why == "" {
			t.Errorf("%s\n indexes: %v\n ours:   %s\n theirs: %s", extJSON(cmd), w.indexes, got.without(want), want.without(got))
			why = "unexplained"
		}
		explained[why]++
		if writes && got.after != want.after {
			w.reset(t)
		}
	}
}

// reset gives both servers the same documents and indexes.
func (w *twin) reset(t *testing.T) {
	setUp := []bson.D{{{Key: "drop", Value: "c"}}, {{Key: "create", Value: "c"}}}
	w.indexes = nil
	for i := range w.IntN(4) {
		index := w.index(i)
		w.indexes = append(w.indexes, extJSON(index))
		setUp = append(setUp, bson.D{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: bson.A{index}}})
	}
	docs := bson.A{}
	for i := range 12 {
		docs = append(docs, w.document(i))
	}
	setUp = append(setUp, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: docs}, {Key: "ordered", Value: false}})
	for _, cmd := range setUp {
		got, want := answer(t.Context(), w.ours, cmd), answer(t.Context(), w.theirs, cmd)
		if cmd[0].Key == "insert" && got.text != want.text && explain(cmd, got, want) == "" {
			t.Errorf("set-up %s\n ours:   %s\n theirs: %s", extJSON(cmd), got, want)
		}
	}
	if w.documents(t, w.ours) != w.documents(t, w.theirs) {
		w.reset(t) // an index that one of them refused: other documents, other indexes
	}
}

func (w *twin) documents(t *testing.T, db *mongo.Database) string {
	a := answer(t.Context(), db, bson.D{{Key: "find", Value: "c"}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}}})
	require.Zero(t, a.code, "%s", a)
	return a.text
}

// reply is what counts of an answer.
type reply struct {
	code    int32  // of the command, or of its first write error; 0 for none
	message string // of all errors
	text    string
	after   string // all documents after a write
}

func (r reply) equal(o reply) bool { return r.code == o.code && r.text == o.text && r.after == o.after }

func (r reply) String() string {
	s := r.text
	if r.code != 0 {
		s = fmt.Sprintf("error %d %s %s", r.code, r.message, r.text)
	}
	if r.after != "" {
		s += "\n         after: " + r.after
	}
	return s
}

// without is r less the lines that o has too.
func (r reply) without(o reply) reply {
	cut := func(text, other string) string {
		others := strings.Split(other, "\n")
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return slices.Contains(others, l) })
		return strings.Join(lines, "\n")
	}
	r.text, r.after = cut(r.text, o.text), cut(r.after, o.after)
	return r
}

func answer(ctx context.Context, db *mongo.Database, cmd bson.D) (r reply) {
	raw, err := db.RunCommand(ctx, cmd).Raw()
	var write mongo.WriteException
	var command mongo.CommandError
	switch {
	case errors.As(err, &write):
		raw = write.Raw
	case errors.As(err, &command):
		return reply{code: command.Code, message: command.Message}
	case err != nil:
		return reply{code: -1, message: err.Error()}
	}
	if list, err := raw.LookupErr("writeErrors"); err == nil {
		all, _ := list.Array().Values()
		for i, e := range all {
			if i == 0 {
				r.code = int32(e.Document().Lookup("code").AsInt64())
			}
			r.message += e.Document().Lookup("errmsg").StringValue() + "; "
		}
	}
	var out []string
	for _, name := range []string{"n", "nModified", "upserted", "lastErrorObject", "value"} {
		if v, err := raw.LookupErr(name); err == nil {
			out = append(out, name+" "+v.String())
		}
	}
	for _, path := range [][]string{{"cursor", "firstBatch"}, {"values"}} {
		list, err := raw.LookupErr(path...)
		if err != nil {
			continue
		}
		values, _ := list.Array().Values()
		rendered := make([]string, len(values))
		for i, v := range values {
			rendered[i] = v.String()
		}
		if !ordered(cmd) {
			slices.Sort(rendered)
		}
		out = append(out, strings.Join(rendered, "\n         "))
	}
	r.text = strings.Join(out, "; ")
	return r
}

// ordered reports whether the order of the results is defined.
func ordered(cmd bson.D) bool {
	text := extJSON(cmd)
	return strings.Contains(text, `sort"`) && !strings.Contains(text, "$group")
}

func extJSON(v any) string {
	b, err := bson.MarshalExtJSON(v, true, false)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// generator makes commands of what a scheduler and a user's test beside it use.
type generator struct{ *rand.Rand }

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

func d(key string, v any) bson.D { return bson.D{{Key: key, Value: v}} }

func (g generator) field() string { return pick(g, "a", "b", "c") }

func (g generator) path() string {
	if g.IntN(3) > 0 {
		return g.field()
	}
	return pick(g, "a.x", "b.x", "b.y", "c.x", "a.0", "a.1.x", "b.x.y")
}

func (g generator) scalar() any {
	return pick[any](g, 0, 1, 2, 3, int64(2), int64(1)<<40, 1.0, 2.5, "a", "b", "ab", nil, true, false,
		bson.DateTime(1_700_000_000_000), bson.DateTime(1_700_000_000_001), bson.ObjectID{1}, bson.Binary{Data: []byte{1}})
}

func (g generator) value(depth int) any {
	switch n := g.IntN(10); {
	case n < 6 || depth == 0:
		return g.scalar()
	case n < 8:
		a := bson.A{}
		for range g.IntN(4) {
			a = append(a, g.value(depth-1))
		}
		return a
	}
	doc := bson.D{}
	for _, name := range []string{"x", "y"} {
		if g.IntN(3) > 0 {
			doc = append(doc, bson.E{Key: name, Value: g.value(depth - 1)})
		}
	}
	return doc
}

func (g generator) document(id int) bson.D {
	doc := bson.D{{Key: "_id", Value: id}}
	for _, name := range []string{"a", "b", "c"} {
		if g.IntN(5) > 0 {
			doc = append(doc, bson.E{Key: name, Value: g.value(2)})
		}
	}
	return doc
}

func (g generator) index(i int) bson.D {
	key := bson.D{}
	for range 1 + g.IntN(2) {
		path := pick(g, "a", "b", "c", "a.x", "b.y")
		if !slices.ContainsFunc(key, func(e bson.E) bool { return e.Key == path }) {
			key = append(key, bson.E{Key: path, Value: pick(g, 1, -1)})
		}
	}
	spec := bson.D{{Key: "key", Value: key}, {Key: "name", Value: fmt.Sprintf("i%d", i)}}
	switch g.IntN(6) {
	case 0:
		spec = append(spec, bson.E{Key: "unique", Value: true})
	case 1:
		spec = append(spec, bson.E{Key: "sparse", Value: true})
	case 2:
		spec = append(spec, bson.E{Key: "partialFilterExpression", Value: d(g.field(), d(pick(g, "$exists", "$exists"), true))})
	}
	return spec
}

func (g generator) list() bson.A {
	a := bson.A{}
	for range g.IntN(4) {
		a = append(a, g.value(1))
	}
	return a
}

func (g generator) condition(depth int) any {
	switch g.IntN(16) {
	case 0, 1, 2:
		return g.value(1)
	case 3:
		return d(pick(g, "$in", "$nin"), g.list())
	case 4, 5:
		return d(pick(g, "$gt", "$gte", "$lt", "$lte"), g.value(1))
	case 6:
		return bson.D{{Key: "$gte", Value: g.IntN(3)}, {Key: "$lt", Value: 1 + g.IntN(3)}}
	case 7:
		return d("$exists", pick(g, true, false))
	case 8:
		return d(pick(g, "$ne", "$eq"), g.value(1))
	case 9:
		return d("$type", pick[any](g, "int", "long", "double", "string", "array", "object", "null", "bool", "date", "number", 2))
	case 10:
		return d("$all", g.list())
	case 11:
		return d("$size", g.IntN(3))
	case 12:
		return d("$mod", bson.A{2, g.IntN(2)})
	case 13:
		return d("$regex", pick(g, "^a", "b", "A"))
	case 14:
		if depth == 0 {
			return 1
		}
		return d("$not", d(pick(g, "$gt", "$lt", "$eq"), g.scalar()))
	}
	if depth == 0 || g.IntN(2) == 0 {
		return d("$elemMatch", bson.D{{Key: pick(g, "$gte", "$lt"), Value: g.IntN(3)}})
	}
	return d("$elemMatch", d(pick(g, "x", "y"), g.condition(depth-1)))
}

func (g generator) filter(depth int) bson.D {
	filter := bson.D{}
	used := map[string]bool{}
	for range g.IntN(3) {
		path := g.path()
		if used[path] {
			continue
		}
		used[path] = true
		filter = append(filter, bson.E{Key: path, Value: g.condition(1)})
	}
	if depth > 0 && g.IntN(4) == 0 {
		branches := bson.A{}
		for range 1 + g.IntN(2) {
			branches = append(branches, g.filter(depth-1))
		}
		filter = append(filter, bson.E{Key: pick(g, "$or", "$or", "$and", "$nor"), Value: branches})
	}
	if g.IntN(4) == 0 {
		filter = append(filter, bson.E{Key: "_id", Value: pick[any](g, g.IntN(14), d("$in", bson.A{g.IntN(14), g.IntN(14), 1}), d("$gt", g.IntN(14)))})
	}
	return filter
}

// sort ends with _id, so that the order is defined.
func (g generator) sort() bson.D {
	sort := bson.D{}
	if g.IntN(2) == 0 {
		sort = d(pick(g, "a", "b", "c", "b.x"), pick(g, 1, -1))
	}
	return append(sort, bson.E{Key: "_id", Value: pick(g, 1, -1)})
}

func (g generator) projection() bson.D {
	switch g.IntN(5) {
	case 0:
		return bson.D{{Key: g.path(), Value: 1}}
	case 1:
		return bson.D{{Key: g.path(), Value: 0}}
	case 2:
		return bson.D{{Key: "a", Value: 1}, {Key: "b.x", Value: 1}, {Key: "_id", Value: 0}}
	case 3:
		return d(g.field(), d("$slice", pick[any](g, 1, -1, bson.A{1, 1})))
	}
	return bson.D{{Key: "a", Value: d("$elemMatch", d("x", g.scalar()))}}
}

func (g generator) update() any {
	if g.IntN(8) == 0 {
		return g.document(0)[1:] // a replacement
	}
	u := bson.D{}
	for range 1 + g.IntN(2) {
		op := pick(g, "$set", "$set", "$unset", "$inc", "$mul", "$min", "$max", "$rename", "$setOnInsert", "$push", "$pull", "$pullAll", "$addToSet", "$pop")
		if slices.ContainsFunc(u, func(e bson.E) bool { return e.Key == op }) {
			continue
		}
		path := pick(g, g.path(), g.path(), g.field()+".$[]", g.field()+".$[].x", g.field()+".$[e]", g.field()+".$")
		var arg any
		switch op {
		case "$inc", "$mul":
			arg = pick[any](g, 1, 2, int64(3), 0.5, -1)
		case "$unset":
			arg = ""
		case "$rename":
			path, arg = g.field(), pick(g, "n", "b", "c.z")
		case "$push":
			arg = g.value(1)
			if g.IntN(2) == 0 {
				each := bson.D{{Key: "$each", Value: g.list()}}
				if g.IntN(2) == 0 {
					each = append(each, bson.E{Key: "$slice", Value: g.IntN(5) - 2})
				}
				if g.IntN(2) == 0 {
					each = append(each, bson.E{Key: "$position", Value: g.IntN(3)})
				}
				if g.IntN(2) == 0 {
					each = append(each, bson.E{Key: "$sort", Value: pick[any](g, 1, -1, d("x", 1))})
				}
				arg = each
			}
		case "$pull":
			arg = pick[any](g, g.value(1), d(pick(g, "$gt", "$in"), bson.A{1}), d("$lt", g.scalar()), d("x", g.condition(0)))
		case "$pullAll":
			arg = g.list()
		case "$addToSet":
			arg = pick[any](g, g.value(1), d("$each", g.list()))
		case "$pop":
			arg = pick(g, 1, -1)
		default:
			arg = g.value(1)
		}
		u = append(u, bson.E{Key: op, Value: d(path, arg)})
	}
	return u
}

// command makes one whose answer is defined: writes of one document name it.
func (g generator) command() bson.D {
	one := func() bson.D { return append(d("_id", g.IntN(14)), g.filter(1)...) }
	noID := func(filter bson.D) bson.D {
		out := bson.D{}
		for i, e := range filter {
			if e.Key != "_id" || i == 0 {
				out = append(out, e)
			}
		}
		return out
	}
	switch g.IntN(10) {
	case 0, 1, 2:
		cmd := bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: g.filter(2)}, {Key: "sort", Value: g.sort()}}
		if g.IntN(3) == 0 {
			cmd = append(cmd, bson.E{Key: "skip", Value: g.IntN(4)}, bson.E{Key: "limit", Value: g.IntN(6)})
		}
		if g.IntN(3) == 0 {
			cmd = append(cmd, bson.E{Key: "projection", Value: g.projection()})
		}
		return cmd
	case 3:
		return bson.D{{Key: "count", Value: "c"}, {Key: "query", Value: g.filter(2)}, {Key: "limit", Value: g.IntN(4)}}
	case 4:
		return bson.D{{Key: "distinct", Value: "c"}, {Key: "key", Value: g.path()}, {Key: "query", Value: g.filter(1)}}
	case 5:
		return bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: g.pipeline()}, {Key: "cursor", Value: bson.D{}}}
	case 6, 7:
		u := bson.D{{Key: "q", Value: noID(one())}, {Key: "u", Value: g.update()}, {Key: "upsert", Value: g.IntN(3) == 0}}
		if g.IntN(4) == 0 {
			u[0].Value = g.filter(1)
			u = append(u[:2], bson.E{Key: "multi", Value: true})
		}
		if strings.Contains(extJSON(u), "$[e]") {
			u = append(u, bson.E{Key: "arrayFilters", Value: bson.A{pick(g, d("e", g.condition(0)), d("e.x", g.condition(0)))}})
		}
		return bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{u}}}
	case 8:
		return bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: noID(one())}, {Key: "limit", Value: 1}}}}}
	}
	if g.IntN(4) == 0 {
		return bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{g.document(g.IntN(14))}}}
	}
	cmd := bson.D{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: g.filter(1)}, {Key: "sort", Value: g.sort()}}
	if g.IntN(4) == 0 {
		return append(cmd, bson.E{Key: "remove", Value: true})
	}
	cmd = append(cmd, bson.E{Key: "update", Value: g.update()}, bson.E{Key: "new", Value: pick(g, true, false)})
	if g.IntN(3) == 0 {
		cmd[1].Value = noID(one())
		cmd = append(cmd, bson.E{Key: "upsert", Value: true})
	}
	return cmd
}

func (g generator) pipeline() bson.A {
	p := bson.A{d("$match", g.filter(1)), d("$sort", g.sort())}
	for range g.IntN(3) {
		switch g.IntN(5) {
		case 0:
			p = append(p, d("$project", bson.D{{Key: "a", Value: 1}, {Key: g.path() + "z", Value: 1}}))
		case 1:
			p = append(p, d("$unwind", pick[any](g, "$"+g.field(), bson.D{{Key: "path", Value: "$" + g.field()}, {Key: "preserveNullAndEmptyArrays", Value: true}})))
		case 2:
			p = append(p, d("$skip", 1+g.IntN(3)), d("$limit", 1+g.IntN(6)))
		case 3:
			p = append(p, d("$match", g.filter(1)))
		case 4:
			p = append(p, d("$project", d(g.field(), 0)))
		}
	}
	switch g.IntN(4) {
	case 0:
		p = append(p, d("$count", "n"))
	case 1, 2:
		group := bson.D{{Key: "_id", Value: pick[any](g, nil, "$"+g.path(), bson.D{{Key: "k", Value: "$a"}})}}
		for i, op := range []string{"$sum", "$avg", "$min", "$max", "$first", "$last", "$push"} {
			if g.IntN(3) == 0 {
				group = append(group, bson.E{Key: fmt.Sprintf("f%d", i), Value: d(op, pick[any](g, "$"+g.path(), 1))})
			}
		}
		p = append(p, d("$group", group))
	}
	return p
}
