package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
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
	require.Contains(t, r.stdout, "2, whose tokens would be raised")
	require.EqualValues(t, 1, rev().Rev)
	s.fails(ExitUsage, []string{"Raise the tokens of 2 tasks", "pass --yes"}, "db", "restored")

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

// A dry run counts as the run does, and a task whose end the database refuses, because it is as large as a document may
// be, keeps no other from it.
func TestOpenExecutionsOfARestoredDatabaseAreCountedAndReleased(t *testing.T) {
	s := newSession(t)
	for _, key := range []string{"a", "b"} {
		s.ok("send", "t", "--key", key)
	}
	db := database(t, s)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	got, err := pull.New(p).Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"t"}, Max: 2})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.NoError(t, p.Close(t.Context()))
	_, err = db.Collection("workers").DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	var sum upkeep.RestoredSum
	s.ok("db", "restored", "--dry-run", "-o", "json").json(&sum)
	require.Equal(t, upkeep.RestoredSum{Tasks: 2, Released: 2}, sum)

	a := bson.D{{Key: "_id", Value: "-/t/a"}}
	raw, err := db.Collection("tasks").FindOne(t.Context(), a).Raw()
	require.NoError(t, err)
	pad := bson.D{{Key: "$set", Value: bson.D{{Key: "pad", Value: strings.Repeat("x", 16<<20-len(raw)-20)}}}}
	_, err = db.Collection("tasks").UpdateOne(t.Context(), a, pad)
	require.NoError(t, err)
	r := s.fails(ExitFailed, []string{"cannot change 1 task: t/a."}, "db", "restored", "--yes", "-o", "json")
	sum = upkeep.RestoredSum{}
	r.json(&sum)
	require.Equal(t, upkeep.RestoredSum{Tasks: 1, Released: 1, Refused: []string{"-/t/a"}}, sum)
}
