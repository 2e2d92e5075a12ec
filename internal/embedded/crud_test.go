package embedded

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
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
