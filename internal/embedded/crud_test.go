package embedded

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func TestTheDriverReadsWhatItWrote(t *testing.T) {
	db := newDB(t, Options{})
	ctx := t.Context()
	c := db.Collection("c")
	_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "a", Value: 1}}, Options: options.Index().SetUnique(true)})
	require.NoError(t, err)
	var docs []any
	for i := range 1000 {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "a", Value: i * 2}})
	}
	_, err = c.InsertMany(ctx, docs)
	require.NoError(t, err)
	_, err = c.InsertOne(ctx, bson.D{{Key: "a", Value: 4}})
	require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)

	var got []bson.M
	cur, err := c.Find(ctx, bson.D{{Key: "a", Value: bson.D{{Key: "$gte", Value: 1000}}}}, options.Find().SetSort(bson.D{{Key: "a", Value: -1}}).SetBatchSize(10))
	require.NoError(t, err)
	require.NoError(t, cur.All(ctx, &got))
	require.Len(t, got, 500)
	require.EqualValues(t, 1998, got[0]["a"])

	res, err := c.UpdateMany(ctx, bson.D{{Key: "a", Value: bson.D{{Key: "$lt", Value: 10}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "b", Value: true}}}})
	require.NoError(t, err)
	require.EqualValues(t, 5, res.ModifiedCount)
	res, err = c.UpdateOne(ctx, bson.D{{Key: "_id", Value: "new"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: "x"}}}}, options.UpdateOne().SetUpsert(true))
	require.NoError(t, err)
	require.Equal(t, "new", res.UpsertedID)

	var one bson.M
	require.NoError(t, c.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: 3}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "a", Value: 1}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&one))
	require.EqualValues(t, 7, one["a"])

	n, err := c.CountDocuments(ctx, bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1001, n)
	del, err := c.DeleteMany(ctx, bson.D{{Key: "b", Value: true}})
	require.NoError(t, err)
	require.EqualValues(t, 5, del.DeletedCount)
	n, err = c.EstimatedDocumentCount(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 996, n)
	names, err := db.ListCollectionNames(ctx, bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, names)
	require.NoError(t, db.Drop(ctx))
}

func TestNoStageMakesADocumentThatIsTooLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	db := newDB(t, Options{})
	c := db.Collection("c")
	for range 17 {
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "a", Value: bytes.Repeat([]byte{1}, 1<<20)}})
		require.NoError(t, err)
	}
	all := bson.D{{Key: "_id", Value: nil}, {Key: "all", Value: bson.D{{Key: "$push", Value: "$a"}}}}
	group := bson.A{bson.D{{Key: "$group", Value: all}}}
	_, err := c.Aggregate(t.Context(), group)
	var e mongo.CommandError
	require.ErrorAs(t, err, &e)
	require.Equal(t, mongoerr.BSONObjectTooLarge, e.Code)
	_, err = c.Aggregate(t.Context(), append(group, bson.D{{Key: "$unwind", Value: "$all"}}))
	require.NoError(t, err)
}

// A cursor is read on by another connection than the one that opened it, and the
// time between does not count.
func TestCursorOutlivesTheCommandThatOpenedIt(t *testing.T) {
	clock := &testClock{now: time.Unix(1_700_000_000, 0)}
	s := start(t, Options{Now: clock.Now})
	c := connect(t, s).Database("test").Collection("c")
	_, err := c.InsertMany(t.Context(), slices.Repeat([]any{bson.D{}}, 600))
	require.NoError(t, err)
	reply := s.command(t, "test", bson.D{{Key: "find", Value: "c"}, {Key: "batchSize", Value: 1}, {Key: "maxTimeMS", Value: 1000}})
	clock.Add(2 * time.Second)
	reply = s.command(t, "test", bson.D{{Key: "getMore", Value: reply.Lookup("cursor", "id")}, {Key: "collection", Value: "c"}})
	require.EqualValues(t, 1, reply.Lookup("ok").Double(), "%s", reply)
	batch, err := reply.Lookup("cursor", "nextBatch").Array().Values()
	require.NoError(t, err)
	require.Len(t, batch, 599)
}
