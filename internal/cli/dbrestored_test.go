package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/upkeep"
)

func TestARestoredDatabaseIsPreparedOnceNoWorkerIsAlive(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "a")
	s.ok("send", "t", "--key", "b", "--held")
	db := database(t, s)
	rev := func() (task struct{ Rev int64 }) {
		require.NoError(t, db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: "-/t/a"}}).Decode(&task))
		return task
	}
	r := s.ok("db", "restored", "--dry-run")
	require.Contains(t, r.stderr, "nothing was changed")
	require.Contains(t, r.stdout, "2, whose revs would be raised")
	require.EqualValues(t, 1, rev().Rev)
	s.fails(ExitUsage, []string{"Raise the rev of 2 tasks", "pass --yes"}, "db", "restored")

	_, err := db.Collection("workers").UpdateByID(t.Context(), "w", bson.D{{Key: "$currentDate", Value: bson.D{{Key: "heartbeat_at", Value: true}}}, {Key: "$set", Value: bson.D{{Key: "types", Value: bson.A{"t"}}}}}, options.UpdateOne().SetUpsert(true))
	require.NoError(t, err)
	s.fails(ExitRefused, []string{"workers are alive: w (heartbeat"}, "db", "restored", "--yes")
	require.EqualValues(t, 1, rev().Rev)
	_, err = db.Collection("workers").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "w"}})
	require.NoError(t, err)

	var sum upkeep.RestoredSum
	s.ok("db", "restored", "--yes", "-o", "json").json(&sum)
	require.Equal(t, upkeep.RestoredSum{Tasks: 2}, sum)
	require.Greater(t, rev().Rev, int64(1000))
	require.Contains(t, s.ok("audit", "list").stdout, "db restored")
}

func TestATaskThatCannotBeDecodedIsNamedWhenTheOthersOfARestoredDatabaseArePrepared(t *testing.T) {
	s := newSession(t)
	for _, key := range []string{"a", "b", "c"} {
		s.ok("send", "t", "--key", key)
	}
	tasks := database(t, s).Collection("tasks")
	_, err := tasks.UpdateByID(t.Context(), "-/t/b", bson.D{{Key: "$set", Value: bson.D{{Key: "generation", Value: "one"}}}})
	require.NoError(t, err)
	r := s.fails(ExitFailed, []string{"cannot decode 1 task: t/b."}, "db", "restored", "--yes", "-o", "json")
	var sum upkeep.RestoredSum
	r.json(&sum)
	require.Equal(t, upkeep.RestoredSum{Tasks: 2, Unreadable: []string{"-/t/b"}}, sum)
	raised, err := tasks.CountDocuments(t.Context(), bson.D{{Key: "rev", Value: bson.D{{Key: "$gt", Value: 1000}}}})
	require.NoError(t, err)
	require.EqualValues(t, 2, raised)
}
