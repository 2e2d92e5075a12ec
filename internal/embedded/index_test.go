package embedded

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// explained is what the tests look at of an explain.
type explainedFind struct {
	stages      string // from the outermost, "FETCH SORT_MERGE IXSCAN"
	index       string
	keys, docs  int
	returned    int
	inputStages int
}

func explainCommand(t *testing.T, db *mongo.Database, cmd bson.D) (e explainedFind) {
	t.Helper()
	raw, err := db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: cmd}, {Key: "verbosity", Value: "executionStats"}}).Raw()
	require.NoError(t, err)
	stage := raw.Lookup("queryPlanner", "winningPlan").Document()
	for {
		e.stages += stage.Lookup("stage").StringValue() + " "
		if v, err := stage.LookupErr("indexName"); err == nil {
			e.index = v.StringValue()
		}
		if v, err := stage.LookupErr("inputStages"); err == nil {
			list, _ := v.Array().Values()
			e.inputStages = len(list)
			stage = list[0].Document()
		} else if v, err := stage.LookupErr("inputStage"); err == nil {
			stage = v.Document()
		} else {
			break
		}
	}
	e.stages = strings.TrimSpace(e.stages)
	stats := raw.Lookup("executionStats").Document()
	e.keys, e.docs = int(stats.Lookup("totalKeysExamined").Int32()), int(stats.Lookup("totalDocsExamined").Int32())
	e.returned = int(stats.Lookup("nReturned").Int32())
	return e
}

func in(values ...any) bson.D { return bson.D{{Key: "$in", Value: append(bson.A{}, values...)}} }

// TestClaimReadsOnlyWhatItReturns is the shape of the scheduler's hottest query,
// with an array in the index.
func TestClaimReadsOnlyWhatItReturns(t *testing.T) {
	db := newDB(t, Options{})
	c := db.Collection("tasks")
	_, err := c.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys:    bson.D{{Key: "type", Value: 1}, {Key: "audience", Value: 1}, {Key: "priority", Value: -1}, {Key: "due_at", Value: 1}},
		Options: options.Index().SetName("due").SetPartialFilterExpression(bson.D{{Key: "due_at", Value: bson.D{{Key: "$exists", Value: true}}}}),
	})
	require.NoError(t, err)
	now := time.Unix(1_700_000_000, 0)
	var docs []any
	for i := range 20_000 {
		d := bson.D{{Key: "_id", Value: i}, {Key: "type", Value: fmt.Sprint("t", i%5)}, {Key: "priority", Value: i % 10}}
		audience := bson.A{"*"}
		if i%7 == 0 {
			audience = bson.A{"w1", "w2", "*"}
		}
		d = append(d, bson.E{Key: "audience", Value: audience})
		if i%3 > 0 {
			d = append(d, bson.E{Key: "due_at", Value: now.Add(time.Duration(i-10_000) * time.Second)})
		}
		docs = append(docs, d)
	}
	_, err = c.InsertMany(t.Context(), docs)
	require.NoError(t, err)
	filter := bson.D{{Key: "type", Value: in("t0", "t1", "t2")}, {Key: "audience", Value: in("*", "w1")}, {Key: "due_at", Value: bson.D{{Key: "$lte", Value: now}}}}
	order := bson.D{{Key: "priority", Value: -1}, {Key: "due_at", Value: 1}}
	find := bson.D{{Key: "find", Value: "tasks"}, {Key: "filter", Value: filter}, {Key: "sort", Value: order}, {Key: "limit", Value: 50}}

	e := explainCommand(t, db, find)
	require.Equal(t, explainedFind{stages: "FETCH SORT_MERGE IXSCAN", index: "due", inputStages: 6, returned: 50, keys: e.keys, docs: e.docs}, e)
	require.LessOrEqual(t, e.keys, 50+50/7*2+2*6+10, "keys")
	require.LessOrEqual(t, e.docs, 50+6)

	// Sorted the long way, it is the same.
	var fast, slow []struct {
		ID       int `bson:"_id"`
		Priority int
		DueAt    time.Time `bson:"due_at"`
	}
	cur, err := c.Find(t.Context(), filter, options.Find().SetSort(order).SetLimit(500))
	require.NoError(t, err)
	require.NoError(t, cur.All(t.Context(), &fast))
	cur, err = c.Find(t.Context(), filter, options.Find().SetSort(order).SetLimit(500).SetHint("_id_"))
	require.NoError(t, err)
	require.NoError(t, cur.All(t.Context(), &slow))
	require.Equal(t, slow, fast)

	// The next future time: the priorities as points give the order.
	next := bson.D{{Key: "find", Value: "tasks"}, {Key: "limit", Value: 1}, {Key: "sort", Value: bson.D{{Key: "due_at", Value: 1}}}, {Key: "filter", Value: bson.D{
		{Key: "type", Value: in("t0", "t1")}, {Key: "audience", Value: in("*", "w1")}, {Key: "priority", Value: in(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		{Key: "due_at", Value: bson.D{{Key: "$gt", Value: now}}}}}}
	e = explainCommand(t, db, next)
	require.Equal(t, "FETCH SORT_MERGE IXSCAN", e.stages)
	require.LessOrEqual(t, e.keys, 2*40+2)

	// Too many ranges to merge are sorted, as MongoDB does.
	var many []any
	for i := range 101 {
		many = append(many, fmt.Sprint("t", i))
	}
	filter[0].Value = in(many...)
	require.Equal(t, "SORT FETCH IXSCAN", explainCommand(t, db, find).stages)
}

func TestPlansAreWhatTheySay(t *testing.T) {
	db := newDB(t, Options{})
	c := db.Collection("c")
	insertIDs(t, c, 1, 2, 3, 4, 5)
	_, err := c.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "p", Value: 1}, {Key: "q", Value: "x"}}}})
	require.NoError(t, err)
	_, err = c.Indexes().CreateMany(t.Context(), []mongo.IndexModel{
		{Keys: bson.D{{Key: "p", Value: 1}}, Options: options.Index().SetPartialFilterExpression(bson.D{{Key: "p", Value: bson.D{{Key: "$gt", Value: 0}}}})},
		{Keys: bson.D{{Key: "q", Value: 1}, {Key: "n", Value: 1}}, Options: options.Index().SetName("qn")},
	})
	require.NoError(t, err)
	find := func(filter bson.D, more ...bson.E) bson.D {
		return append(bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: filter}}, more...)
	}
	for _, c := range []struct {
		cmd    bson.D
		stages string
		keys   int
	}{
		{find(byID(3)), "IDHACK", 1},
		{find(bson.D{{Key: "_id", Value: in(1, 3, 9)}}), "FETCH IXSCAN", 4},
		{find(bson.D{{Key: "p", Value: 1}}), "FETCH IXSCAN", 5},
		{find(bson.D{{Key: "p", Value: bson.D{{Key: "$gte", Value: 0}}}}), "COLLSCAN", 0},
		{find(bson.D{}, bson.E{Key: "sort", Value: bson.D{{Key: "q", Value: -1}, {Key: "n", Value: -1}}}), "FETCH IXSCAN", 5},
		{find(bson.D{}, bson.E{Key: "sort", Value: bson.D{{Key: "q", Value: -1}, {Key: "n", Value: 1}}}), "SORT COLLSCAN", 0},
		{find(bson.D{{Key: "$or", Value: bson.A{byID(1), bson.D{{Key: "q", Value: "y"}}}}}), "FETCH OR IXSCAN", 1},
		{find(bson.D{{Key: "q", Value: in()}}), "EOF", 0},
		{find(bson.D{{Key: "n", Value: 0}}), "COLLSCAN", 0},
		{find(bson.D{}, bson.E{Key: "hint", Value: "qn"}), "FETCH IXSCAN", 5},
		{bson.D{{Key: "count", Value: "c"}, {Key: "query", Value: bson.D{{Key: "q", Value: "x"}}}}, "FETCH IXSCAN", 5},
		{bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "q", Value: "x"}}}}}}, {Key: "cursor", Value: bson.D{}}}, "FETCH IXSCAN", 5},
		{bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: byID(3)}, {Key: "limit", Value: 0}}}}}, "IDHACK", 1},
	} {
		e := explainCommand(t, db, c.cmd)
		require.Equal(t, c.stages, e.stages, "%v", c.cmd)
		require.LessOrEqual(t, e.keys, c.keys+1, "%v", c.cmd)
	}
	err = c.FindOne(t.Context(), bson.D{}, options.FindOne().SetHint("nope")).Err()
	require.ErrorContains(t, err, "hint provided does not correspond to an existing index")
}

func TestIndexDefinitionsThatContradictAreRefused(t *testing.T) {
	s := start(t, Options{})
	create := func(spec ...bson.E) int32 {
		reply := s.command(t, "test", bson.D{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: bson.A{bson.D(spec)}}})
		code, _ := reply.Lookup("code").AsInt64OK()
		return int32(code)
	}
	key := bson.E{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}
	name := func(n string) bson.E { return bson.E{Key: "name", Value: n} }
	require.Zero(t, create(key, name("a_1")))
	require.Zero(t, create(key, name("a_1")), "the same again")
	require.EqualValues(t, 85, create(key, name("other")))
	require.EqualValues(t, 86, create(bson.E{Key: "key", Value: bson.D{{Key: "b", Value: 1}}}, name("a_1")))
	require.EqualValues(t, 86, create(key, name("a_1"), bson.E{Key: "unique", Value: true}))
	require.EqualValues(t, 85, create(key, name("a_1"), bson.E{Key: "expireAfterSeconds", Value: 5}))
	require.EqualValues(t, 238, create(bson.E{Key: "key", Value: bson.D{{Key: "t", Value: "text"}}}, name("t")))
	require.EqualValues(t, 197, create(key, name("x"), bson.E{Key: "nonsense", Value: 1}))

	require.Zero(t, s.command(t, "test", bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "b", Value: 1}}, bson.D{{Key: "b", Value: 1}}}}}).Lookup("code").Type)
	require.EqualValues(t, 11000, create(bson.E{Key: "key", Value: bson.D{{Key: "b", Value: 1}}}, name("b_1"), bson.E{Key: "unique", Value: true}))
	list := s.command(t, "test", bson.D{{Key: "listIndexes", Value: "c"}})
	indexes, err := list.Lookup("cursor", "firstBatch").Array().Values()
	require.NoError(t, err)
	require.Len(t, indexes, 2, "none is left half built")
}

func TestDocumentsExpire(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := start(t, Options{Now: func() time.Time { return now }, TTLInterval: -1})
	c := connect(t, s).Database("test").Collection("c")
	_, err := c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(60)})
	require.NoError(t, err)
	_, err = c.InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: "old"}, {Key: "at", Value: now.Add(-61 * time.Second)}},
		bson.D{{Key: "_id", Value: "new"}, {Key: "at", Value: now.Add(-59 * time.Second)}},
		bson.D{{Key: "_id", Value: "no date"}, {Key: "at", Value: 5}},
		bson.D{{Key: "_id", Value: "none"}},
	})
	require.NoError(t, err)
	n, err := s.expire(context.Background())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.ErrorIs(t, c.FindOne(t.Context(), byID("old")).Err(), mongo.ErrNoDocuments)
	require.NoError(t, c.FindOne(t.Context(), byID("new")).Err())
}
