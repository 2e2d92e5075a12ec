package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestAliveAreThoseHeardOfLatelyThatServeATypeInTheOrderOfTheirIDs(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	none, err := s.Workers.Alive(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Empty(t, none)
	for id, types := range map[string][]string{"w3": {"a"}, "w1": {"a", "b"}, "w2": {"b"}, "w4": {"c"}, "w0": {"a"}} {
		require.NoError(t, s.Workers.Heartbeat(t.Context(), store.Worker{ID: id, Types: types}))
	}
	_, err = db.Collection("workers").UpdateByID(t.Context(), "w0",
		bson.D{{Key: "$set", Value: bson.D{{Key: "heartbeat_at", Value: time.Now().Add(-4 * store.HeartbeatInterval)}}}})
	require.NoError(t, err)
	for _, c := range []struct{ types, want []string }{
		{[]string{"a"}, []string{"w1", "w3"}},
		{[]string{"b", "a"}, []string{"w1", "w2", "w3"}},
		{[]string{"c"}, []string{"w4"}},
	} {
		ids, err := s.Workers.Alive(t.Context(), c.types)
		require.NoError(t, err)
		require.Equal(t, c.want, ids, fmt.Sprint(c.types))
	}
}
