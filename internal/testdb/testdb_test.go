package testdb

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestMain(m *testing.M) { Main(m) }

func TestEachTestHasADatabaseOfItsOwnThatIsDropped(t *testing.T) {
	a, b := New(t), New(t)
	_, err := a.Collection("things").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	n, err := b.Collection("things").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n)

	var inner string
	t.Run("inner", func(t *testing.T) {
		db := New(t)
		inner = db.Name()
		_, err := db.Collection("things").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
		require.NoError(t, err)
	})
	n, err = a.Client().Database(inner).Collection("things").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n, "the inner test's database was dropped at its end")
}
