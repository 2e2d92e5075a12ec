package dropdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/dropdb"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// readWriteAnyDatabase does not have dropDatabase, on Atlas with another code.
func TestADatabaseIsEmptiedByAUserWhoMayNotDropIt(t *testing.T) {
	for _, code := range []int32{13, 8000} {
		p := testdb.Behind(t)
		db := testdb.Through(t, p)
		for _, name := range []string{"tasks", "flows"} {
			_, err := db.Collection(name).InsertOne(t.Context(), bson.D{})
			require.NoError(t, err)
		}
		refused := p.Set(proxy.Rule{Command: "dropDatabase", Times: -1, Do: proxy.Refuse, Code: code})
		require.NoError(t, dropdb.Drop(t.Context(), db))
		require.Equal(t, 1, refused.Sprung())
		names, err := db.ListCollectionNames(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

func TestARefusalToDropACollectionIsToldWithThatOfTheDatabase(t *testing.T) {
	p := testdb.Behind(t)
	db := testdb.Through(t, p)
	_, err := db.Collection("tasks").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	for _, command := range []string{"dropDatabase", "drop"} {
		p.Set(proxy.Rule{Command: command, Do: proxy.Refuse, Code: 13})
	}
	require.ErrorContains(t, dropdb.Drop(t.Context(), db), "dropping the collection tasks: ")
}

func TestAnotherErrorIsReturned(t *testing.T) {
	p := testdb.Behind(t)
	db := testdb.Through(t, p)
	p.Set(proxy.Rule{Command: "dropDatabase", Do: proxy.Refuse, Code: 20})
	dropped := p.Set(proxy.Rule{Command: "drop"})
	require.Error(t, dropdb.Drop(t.Context(), db))
	require.Zero(t, dropped.Sprung())
}
