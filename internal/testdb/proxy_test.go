package testdb

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestAProxyLosesWhatItIsToldTo(t *testing.T) {
	db := New(t)
	proxy := NewProxy(t)
	client, err := mongo.Connect(options.Client().ApplyURI(proxy.URI()).SetRetryWrites(false))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	through := client.Database(db.Name()).Collection("things")
	insert := func(id int) error {
		_, err := through.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
		return err
	}
	count := func() int64 {
		n, err := db.Collection("things").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		return n
	}
	require.NoError(t, insert(1))

	lose := func(v Verdict) {
		proxy.Judge(func(command string) Verdict {
			if command == "insert" {
				return v
			}
			return Pass
		})
	}
	lose(LoseRequest)
	require.True(t, mongo.IsNetworkError(insert(2)))
	require.EqualValues(t, 1, count())
	lose(LoseReply)
	require.True(t, mongo.IsNetworkError(insert(3)))
	require.EqualValues(t, 2, count())
	proxy.Judge(nil)
	require.NoError(t, insert(4))

	proxy.SetDown(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100e6)
	defer cancel()
	_, err = through.InsertOne(ctx, bson.D{})
	require.Error(t, err)
	proxy.SetDown(false)
	require.NoError(t, insert(5))
}
