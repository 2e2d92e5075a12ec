package embedded

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// nextEvent waits for the next event and returns it as "operation id".
func nextEvent(t *testing.T, stream *mongo.ChangeStream) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.True(t, stream.Next(ctx), "%v", stream.Err())
	kind := stream.Current.Lookup("operationType").StringValue()
	if key, err := stream.Current.LookupErr("documentKey", "_id"); err == nil {
		n, _ := key.AsInt64OK()
		return fmt.Sprint(kind, " ", n)
	}
	return kind
}

func insertIDs(t *testing.T, c *mongo.Collection, ids ...int) {
	t.Helper()
	for _, id := range ids {
		_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 0}})
		require.NoError(t, err)
	}
}

func TestStreamTellsWhatHappened(t *testing.T) {
	db := newDB(t, Options{})
	c := db.Collection("c")
	ctx := t.Context()
	collection, err := c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(t, err)
	defer collection.Close(ctx)
	whole, err := db.Watch(ctx, mongo.Pipeline{})
	require.NoError(t, err)
	defer whole.Close(ctx)
	some, err := db.Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "delete"}}}},
		{{Key: "$project", Value: bson.D{{Key: "documentKey", Value: 1}, {Key: "operationType", Value: 1}}}}})
	require.NoError(t, err)
	defer some.Close(ctx)

	insertIDs(t, c, 1)
	insertIDs(t, db.Collection("d"), 2)
	_, err = c.UpdateOne(ctx, byID(1), bson.D{{Key: "$set", Value: bson.D{{Key: "x.y", Value: 5}}}, {Key: "$unset", Value: bson.D{{Key: "n", Value: 1}}}})
	require.NoError(t, err)
	_, err = c.ReplaceOne(ctx, byID(1), bson.D{{Key: "z", Value: 1}})
	require.NoError(t, err)
	_, err = c.DeleteOne(ctx, byID(1))
	require.NoError(t, err)
	require.NoError(t, c.Drop(ctx))

	require.Equal(t, "insert 1", nextEvent(t, collection))
	require.EqualValues(t, 0, collection.Current.Lookup("fullDocument", "n").AsInt64())
	require.Equal(t, "update 1", nextEvent(t, collection))
	require.Equal(t, bson.TypeNull, collection.Current.Lookup("fullDocument").Type, "looked up, and gone")
	require.JSONEq(t, `{"updatedFields": {"x": {"y": {"$numberInt":"5"}}},"removedFields": ["n"],"truncatedArrays": []}`,
		collection.Current.Lookup("updateDescription").String())
	require.Equal(t, "replace 1", nextEvent(t, collection))
	require.Equal(t, "delete 1", nextEvent(t, collection))
	require.Equal(t, "drop", nextEvent(t, collection))
	require.Equal(t, "invalidate", nextEvent(t, collection))
	require.False(t, collection.Next(ctx), "the end")

	for _, want := range []string{"insert 1", "insert 2", "update 1", "replace 1", "delete 1", "drop"} {
		require.Equal(t, want, nextEvent(t, whole))
	}
	require.Equal(t, "delete 1", nextEvent(t, some))
	_, err = some.Current.LookupErr("ns")
	require.Error(t, err, "projected away")
}

func TestStreamShowsTransactionsOnceCommitted(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	stream, err := c.Watch(t.Context(), mongo.Pipeline{})
	require.NoError(t, err)
	defer stream.Close(t.Context())
	txn := begin(t, client)
	_, err = c.InsertOne(txn, byID(1))
	require.NoError(t, err)
	insertIDs(t, c, 2)
	commit(t, txn)
	require.Equal(t, "insert 2", nextEvent(t, stream))
	require.Equal(t, "insert 1", nextEvent(t, stream))
	require.EqualValues(t, 1, stream.Current.Lookup("txnNumber").AsInt64())
}

func TestStreamResumesAfterARestart(t *testing.T) {
	path := t.TempDir() + "/db"
	s, err := Start(Options{Path: path})
	require.NoError(t, err)
	c := connect(t, s).Database("test").Collection("c")
	stream, err := c.Watch(t.Context(), mongo.Pipeline{})
	require.NoError(t, err)
	insertIDs(t, c, 1, 2, 3)
	_, err = c.UpdateOne(t.Context(), byID(2), inc)
	require.NoError(t, err)
	require.Equal(t, "insert 1", nextEvent(t, stream))
	require.Equal(t, "insert 2", nextEvent(t, stream))
	token := stream.ResumeToken()
	at := stream.Current.Lookup("clusterTime")
	require.NoError(t, stream.Close(t.Context()))
	require.NoError(t, s.Close())

	c = connect(t, start(t, Options{Path: path})).Database("test").Collection("c")
	insertIDs(t, c, 4)
	for name, opt := range map[string]*options.ChangeStreamOptionsBuilder{
		"resumeAfter": options.ChangeStream().SetResumeAfter(token),
		"startAfter":  options.ChangeStream().SetStartAfter(token),
	} {
		stream, err := c.Watch(t.Context(), mongo.Pipeline{}, opt)
		require.NoError(t, err, name)
		for _, want := range []string{"insert 3", "update 2", "insert 4"} {
			require.Equal(t, want, nextEvent(t, stream), name)
		}
		require.NoError(t, stream.Close(t.Context()))
	}
	ts, i := at.Timestamp()
	stream, err = c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: ts, I: i}))
	require.NoError(t, err)
	require.Equal(t, "insert 2", nextEvent(t, stream), "startAtOperationTime has the event of that time")
	require.NoError(t, stream.Close(t.Context()))
}

func TestStreamSaysWhenHistoryIsLost(t *testing.T) {
	path := t.TempDir() + "/db"
	s, err := Start(Options{Path: path, LogBytes: 10_000})
	require.NoError(t, err)
	c := connect(t, s).Database("test").Collection("c")
	stream, err := c.Watch(t.Context(), mongo.Pipeline{})
	require.NoError(t, err)
	insertIDs(t, c, 1, 2)
	require.Equal(t, "insert 1", nextEvent(t, stream))
	token := stream.ResumeToken()
	require.NoError(t, stream.Close(t.Context()))
	for i := range 100 {
		insertIDs(t, c, 10+i)
	}
	lost := func() {
		_, err = c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
		var command mongo.CommandError
		require.ErrorAs(t, err, &command)
		require.Equal(t, mongoerr.ChangeStreamHistoryLost, command.Code)
	}
	lost()
	require.NoError(t, s.Close())
	s = start(t, Options{Path: path, LogBytes: 10_000})
	c = connect(t, s).Database("test").Collection("c")
	insertIDs(t, c, 1000) // the file is trimmed with the next write
	lost()
	require.Less(t, s.store.Log().Bytes(), 10_001)
}

func TestWaitingGetMoreEndsAtOnce(t *testing.T) {
	s := start(t, Options{})
	// open sends a getMore that waits for an hour, on a connection of its own.
	open := func() (net.Conn, int64) {
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		reply := roundTrip(t, nc, bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}},
			{Key: "cursor", Value: bson.D{}}, {Key: "$db", Value: "test"}})
		id := reply.Lookup("cursor", "id").AsInt64()
		send(t, nc, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "maxTimeMS", Value: 3_600_000}, {Key: "$db", Value: "test"}})
		require.Eventually(t, func() bool {
			s.cursors.mu.Lock()
			defer s.cursors.mu.Unlock()
			c := s.cursors.m[id]
			return c != nil && c.busy
		}, 10*time.Second, time.Millisecond)
		return nc, id
	}
	nc, id := open()
	killed := s.command(t, "test", bson.D{{Key: "killCursors", Value: "c"}, {Key: "cursors", Value: bson.A{id}}})
	require.Equal(t, id, killed.Lookup("cursorsKilled", "0").AsInt64())
	m, err := wire.Read(nc)
	require.NoError(t, err)
	require.EqualValues(t, 237, m.Body.Lookup("code").Int32(), "CursorKilled")
	require.NoError(t, nc.Close())

	nc, _ = open()
	require.NoError(t, nc.Close())
	require.Eventually(t, func() bool { return len(s.liveConns()) == 0 }, 10*time.Second, time.Millisecond, "nobody waits for a client that left")

	nc, _ = open()
	require.NoError(t, s.Close()) // would hang for an hour
	require.NoError(t, nc.Close())
}
