package embedded

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestAStoredDocumentTakesNoMoreMemoryThanItsLength(t *testing.T) {
	s := start(t, Options{})
	c := connect(t, s).Database("test").Collection("c")
	big := strings.Repeat("x", 10_000)
	for i, update := range []bson.D{
		{{Key: "$unset", Value: bson.D{{Key: "payload", Value: 1}}}},
		{{Key: "$set", Value: bson.D{{Key: "payload", Value: strings.ToUpper(big)}}}},
		{{Key: "$set", Value: bson.D{{Key: "payload", Value: 1}, {Key: "more", Value: big}}}},
		{{Key: "$unset", Value: bson.D{{Key: "sub.a", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "sub.b", Value: big}}}},
		{{Key: "$rename", Value: bson.D{{Key: "payload", Value: "sub.payload"}}}, {Key: "$pop", Value: bson.D{{Key: "list", Value: 1}}}},
		{{Key: "$push", Value: bson.D{{Key: "list", Value: big}}}, {Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}},
	} {
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "payload", Value: big}, {Key: "sub", Value: bson.D{{Key: "a", Value: big}}}, {Key: "list", Value: bson.A{big, big}}, {Key: "_id", Value: i}})
		require.NoError(t, err)
		res, err := c.UpdateOne(t.Context(), byID(i), update)
		require.NoError(t, err)
		require.EqualValues(t, 1, res.ModifiedCount)
	}
	_, err := c.ReplaceOne(t.Context(), byID(0), bson.D{{Key: "_id", Value: 0}, {Key: "r", Value: 1}})
	require.NoError(t, err)
	_, err = c.InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}})
	require.NoError(t, err)
	_, err = c.UpdateOne(t.Context(), byID(big), bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
	require.NoError(t, err)
	for it := s.store.Snapshot().Collection("test.c").Scan(); it.Next(); {
		doc := it.Item().Doc
		require.Equal(t, len(doc), cap(doc), "%.100s", doc)
	}
}
