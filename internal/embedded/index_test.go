package embedded

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func in(values ...any) bson.D { return bson.D{{Key: "$in", Value: append(bson.A{}, values...)}} }

// TestClaimReadsOnlyWhatItReturns is the shape of the scheduler's hottest query,
// with an array in the index.
func TestClaimReadsOnlyWhatItReturns(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
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

	explain := func(cmd bson.D) planned {
		reply, err := db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: cmd}}).Raw()
		require.NoError(t, err)
		return explained(reply)
	}
	e := explain(find)
	require.Equal(t, planned{plan: "FETCH SORT_MERGE IXSCAN due", branches: 6, returned: 50, keys: e.keys, docs: e.docs}, e)
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
	e = explain(next)
	require.Equal(t, "FETCH SORT_MERGE IXSCAN due", e.plan)
	require.LessOrEqual(t, e.keys, 2*40+2)

	// Too many ranges to merge are sorted, as MongoDB does.
	var many []any
	for i := range 101 {
		many = append(many, fmt.Sprint("t", i))
	}
	filter[0].Value = in(many...)
	require.Equal(t, "SORT FETCH IXSCAN due", explain(find).plan)
}
