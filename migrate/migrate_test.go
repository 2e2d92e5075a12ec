package migrate

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestUpSetsAnEmptyDatabaseUpAndMayBeRepeated(t *testing.T) {
	db := testdb.New(t)
	before, err := Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.False(t, before.Current)
	require.Zero(t, before.Version)
	require.Contains(t, before.Missing, "tasks.due")
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names, "Status changes nothing")

	for range 2 {
		after, err := Up(t.Context(), Config{Database: db})
		require.NoError(t, err)
		require.True(t, after.Current)
		require.Equal(t, after.Wanted, after.Version)
		require.Empty(t, after.Missing)
		now, err := Status(t.Context(), Config{Database: db})
		require.NoError(t, err)
		require.Equal(t, after, now)
	}
}

func TestUpMakesAnIndexThatIsMissing(t *testing.T) {
	db := testdb.New(t)
	_, err := Up(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, db.Collection("tasks").Indexes().DropOne(t.Context(), "lapse"))
	st, err := Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.Equal(t, []string{"tasks.lapse"}, st.Missing)
	require.False(t, st.Current)
	st, err = Up(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.True(t, st.Current)
}

func TestUpMayRunInSeveralProcessesAtOnce(t *testing.T) {
	db := testdb.New(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := Up(t.Context(), Config{Database: db}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	st, err := Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.True(t, st.Current)
}

func TestAPrefixHasASchemaOfItsOwn(t *testing.T) {
	db := testdb.New(t)
	_, err := Up(t.Context(), Config{Database: db, Prefix: "a_"})
	require.NoError(t, err)
	plain, err := Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.False(t, plain.Current)
	prefixed, err := Status(t.Context(), Config{Database: db, Prefix: "a_"})
	require.NoError(t, err)
	require.True(t, prefixed.Current)
}

func TestUpRefusesACollectionThatIsNotOurs(t *testing.T) {
	for _, name := range []string{"tasks", "signals", "rates", "workers", "audit", "control", "plans", "tokens", "series", "meta"} {
		t.Run(name, func(t *testing.T) { refusesForeign(t, name, bson.NewObjectID()) })
	}
	for _, name := range []string{"tasks", "task_history", "signals", "rates", "workers", "periodic_runs", "flows", "flow_nodes", "plans", "plan_history", "plan_results", "tokens", "answers", "audit", "series"} {
		t.Run(name+" with ids that are strings", func(t *testing.T) { refusesForeign(t, name, "mine") })
	}
}

// An index that deletes old documents on a collection of an application would be the end of these.
func refusesForeign(t *testing.T, name string, id any) {
	t.Helper()
	db := testdb.New(t)
	_, err := db.Collection(name).InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "title", Value: "buy milk"}, {Key: "at", Value: time.Unix(0, 0)}})
	require.NoError(t, err)
	st, err := Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.True(t, st.Foreign)
	_, err = Up(t.Context(), Config{Database: db})
	require.ErrorContains(t, err, "did not write")
	st, err = Status(t.Context(), Config{Database: db})
	require.NoError(t, err)
	require.Zero(t, st.Version, "nothing was made")
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{name}, names)
	_, err = Up(t.Context(), Config{Database: db, Prefix: "ms_"})
	require.NoError(t, err, "a prefix helps")
}

// A collection that a later release adds may be an application's in a database that has been set up for long.
func TestUpRefusesANewCollectionThatIsNotOurs(t *testing.T) {
	db := testdb.New(t)
	up := Config{Database: db}
	_, err := Up(t.Context(), up)
	require.NoError(t, err)
	require.NoError(t, db.Collection("audit").Drop(t.Context()))
	older := bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: -1}}}}
	_, err = db.Collection("meta").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "schema"}}, older)
	require.NoError(t, err)
	_, err = db.Collection("audit").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "mine"}, {Key: "delete_at", Value: time.Unix(0, 0)}})
	require.NoError(t, err)
	// Tasks are in no new collection, also if a restore made no indexes.
	_, err = db.Collection("tasks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "-/t/k"}, {Key: "type", Value: "t"}})
	require.NoError(t, err)
	require.NoError(t, db.Collection("tasks").Indexes().DropAll(t.Context()))
	// A document in a collection with indexes of ours came later, and is no reason to refuse.
	_, err = db.Collection("tokens").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "mine"}})
	require.NoError(t, err)

	st, err := Status(t.Context(), up)
	require.NoError(t, err)
	require.True(t, st.Foreign)
	require.Equal(t, st.Wanted-1, st.Version)
	require.False(t, st.Current)
	_, err = Up(t.Context(), up)
	require.ErrorContains(t, err, "audit contains documents that mscheduler did not write")
	made, err := db.Collection("audit").Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	require.Len(t, made, 1, "only that of _id")

	_, err = db.Collection("audit").DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	st, err = Up(t.Context(), up)
	require.NoError(t, err)
	require.True(t, st.Current)
	require.False(t, st.Foreign)
}

func TestUpLeavesANewerSchemaAlone(t *testing.T) {
	db := testdb.New(t)
	newer := bson.D{{Key: "_id", Value: "schema"}, {Key: "version", Value: int32(99)}, {Key: "min_reader", Value: int32(1)}}
	_, err := db.Collection("meta").InsertOne(t.Context(), newer)
	require.NoError(t, err)
	st, err := Up(t.Context(), Config{Database: db})
	require.NoError(t, err, "this release can still read it")
	require.Equal(t, 99, st.Version)
	var doc bson.D
	require.NoError(t, db.Collection("meta").FindOne(t.Context(), bson.D{}).Decode(&doc))
	require.Equal(t, newer, doc)

	_, err = db.Collection("meta").UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "min_reader", Value: 99}}}})
	require.NoError(t, err)
	_, err = Up(t.Context(), Config{Database: db})
	require.ErrorContains(t, err, "too new")
}

func TestBadInputIsRefused(t *testing.T) {
	_, err := Up(t.Context(), Config{})
	require.ErrorIs(t, err, model.ErrInvalid)
	_, err = Status(t.Context(), Config{Database: testdb.New(t), Prefix: "a$"})
	require.ErrorIs(t, err, model.ErrInvalid)
}
