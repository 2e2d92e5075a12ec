package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// openAs opens the store of a fresh database by a client of its own; direct is that database
// by the client that all tests share.
func openAs(t *testing.T, o *options.ClientOptions) (s *store.Store, direct *mongo.Database) {
	t.Helper()
	direct = testdb.New(t)
	client, err := mongo.Connect(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	s, err = store.Open(store.Config{Database: client.Database(direct.Name())})
	require.NoError(t, err)
	return s, direct
}
