package embedded

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

// inc is {$inc: {n: 1}}.
var inc = bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// begin starts a transaction that ends with the test at the latest.
func begin(t *testing.T, client *mongo.Client) context.Context {
	t.Helper()
	session, err := client.StartSession()
	require.NoError(t, err)
	require.NoError(t, session.StartTransaction())
	t.Cleanup(func() { session.EndSession(context.Background()) })
	return mongo.NewSessionContext(t.Context(), session)
}

func commit(t *testing.T, txn context.Context) {
	t.Helper()
	require.NoError(t, mongo.SessionFromContext(txn).CommitTransaction(txn))
}

func number(t *testing.T, c *mongo.Collection, ctx context.Context, id any) int {
	t.Helper()
	var doc struct{ N int }
	require.NoError(t, c.FindOne(ctx, byID(id)).Decode(&doc))
	return doc.N
}

func TestTransactionIsSeenWholeOrNotAtAll(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	other := client.Database("test").Collection("other")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)

	txn := begin(t, client)
	_, err = c.UpdateOne(txn, byID(1), inc)
	require.NoError(t, err)
	_, err = other.InsertOne(txn, byID(7)) // a collection that did not exist
	require.NoError(t, err)
	require.Equal(t, 1, number(t, c, txn, 1), "its own writes")
	require.Equal(t, 0, number(t, c, t.Context(), 1), "nobody else's")
	// Other documents are free meanwhile.
	_, err = c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 2}, {Key: "n", Value: 0}})
	require.NoError(t, err)
	require.ErrorIs(t, c.FindOne(txn, byID(2)).Err(), mongo.ErrNoDocuments, "a snapshot")
	commit(t, txn)
	require.Equal(t, 1, number(t, c, t.Context(), 1))
	require.NoError(t, other.FindOne(t.Context(), byID(7)).Err())

	txn = begin(t, client)
	_, err = c.UpdateOne(txn, byID(1), inc)
	require.NoError(t, err)
	require.NoError(t, mongo.SessionFromContext(txn).AbortTransaction(txn))
	require.Equal(t, 1, number(t, c, t.Context(), 1))
}

func TestTransactionsThatCollideAreTriedAgain(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)
	const workers, each = 8, 20
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			session, err := client.StartSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer session.EndSession(context.Background())
			for range each {
				_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
					var doc struct{ N int }
					if err := c.FindOne(ctx, byID(1)).Decode(&doc); err != nil {
						return nil, err
					}
					return c.UpdateOne(ctx, byID(1), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: doc.N + 1}}}})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, workers*each, number(t, c, t.Context(), 1))
}

func TestTransactionConflictsAtTheWrite(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	_, err := c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "u", Value: 1}}, Options: options.Index().SetUnique(true)})
	require.NoError(t, err)
	_, err = c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}, {Key: "u", Value: 1}})
	require.NoError(t, err)
	conflicts := func(err error) {
		t.Helper()
		var command mongo.CommandError
		require.ErrorAs(t, err, &command)
		require.Equal(t, mongoerr.WriteConflict, command.Code)
		require.True(t, command.HasErrorLabel("TransientTransactionError"))
	}

	first, second := begin(t, client), begin(t, client)
	_, err = c.UpdateOne(first, byID(1), inc)
	require.NoError(t, err)
	_, err = c.UpdateOne(second, byID(1), inc)
	conflicts(err) // with an open one
	require.Error(t, mongo.SessionFromContext(second).CommitTransaction(second), "the conflict has ended it")

	second = begin(t, client)
	require.Equal(t, 0, number(t, c, second, 1)) // takes its snapshot
	commit(t, first)
	_, err = c.UpdateOne(second, byID(1), inc)
	conflicts(err) // with a committed one

	first, second = begin(t, client), begin(t, client)
	_, err = c.InsertOne(first, bson.D{{Key: "u", Value: 2}})
	require.NoError(t, err)
	_, err = c.InsertOne(second, bson.D{{Key: "u", Value: 2}})
	conflicts(err) // about a unique key
	_, err = c.InsertOne(first, bson.D{{Key: "u", Value: 1}})
	require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
}

func TestWriterWaitsForTheTransactionThatHoldsItsDocument(t *testing.T) {
	client := connect(t, start(t, Options{}))
	c := client.Database("test").Collection("c")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)
	txn := begin(t, client)
	_, err = c.UpdateOne(txn, byID(1), inc)
	require.NoError(t, err)

	err = client.Database("test").RunCommand(t.Context(), bson.D{{Key: "update", Value: "c"},
		{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: byID(1)}, {Key: "u", Value: inc}}}}, {Key: "maxTimeMS", Value: 20}}).Err()
	var command mongo.CommandError
	require.ErrorAs(t, err, &command)
	require.Equal(t, mongoerr.MaxTimeMSExpired, command.Code)

	done := make(chan error, 1)
	go func() {
		_, err := c.UpdateOne(t.Context(), byID(1), inc)
		done <- err
	}()
	commit(t, txn)
	require.NoError(t, <-done)
	require.Equal(t, 2, number(t, c, t.Context(), 1))
}

func TestTransactionEndsWithItsClient(t *testing.T) {
	s := start(t, Options{})
	c := connect(t, s).Database("test").Collection("c")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)

	hold := func() *mongo.Client {
		client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
		require.NoError(t, err)
		session, err := client.StartSession()
		require.NoError(t, err)
		require.NoError(t, session.StartTransaction())
		_, err = client.Database("test").Collection("c").UpdateOne(mongo.NewSessionContext(t.Context(), session), byID(1), inc)
		require.NoError(t, err)
		return client
	}
	client := hold()
	for conn := range s.liveConns() {
		if conn != nil && s.sessions.heldBy(conn) {
			conn.hangUp() // as if the process had died
		}
	}
	_, err = c.UpdateOne(t.Context(), byID(1), inc) // waits for the abort
	require.NoError(t, err)
	require.Equal(t, 1, number(t, c, t.Context(), 1))
	require.NoError(t, client.Disconnect(context.Background()))
}

func TestTransactionEndsAfterItsLifetime(t *testing.T) {
	clock := &testClock{now: time.Unix(1_700_000_000, 0)}
	s := start(t, Options{Now: clock.Now})
	client := connect(t, s)
	c := client.Database("test").Collection("c")
	_, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	require.NoError(t, err)
	txn := begin(t, client)
	_, err = c.UpdateOne(txn, byID(1), inc)
	require.NoError(t, err)
	clock.Add(61 * time.Second)
	s.sessions.sweep()
	_, err = c.UpdateOne(t.Context(), byID(1), inc)
	require.NoError(t, err)
	err = mongo.SessionFromContext(txn).CommitTransaction(txn)
	var command mongo.CommandError
	require.ErrorAs(t, err, &command)
	require.Equal(t, mongoerr.NoSuchTransaction, command.Code)
	require.Equal(t, 1, number(t, c, t.Context(), 1))
}

func TestRetriedWriteTakesEffectOnce(t *testing.T) {
	for _, path := range []string{"", t.TempDir() + "/db"} {
		s := start(t, Options{Path: path})
		client := connect(t, s)
		db := client.Database("test")
		_, err := db.Collection("c").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
		require.NoError(t, err)
		lsid := bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}}}
		numbered := func(n int, cmd ...bson.E) bson.D {
			return append(bson.D(cmd), bson.E{Key: "lsid", Value: lsid}, bson.E{Key: "txnNumber", Value: int64(n)})
		}
		update := numbered(1, bson.E{Key: "update", Value: "c"}, bson.E{Key: "updates", Value: bson.A{
			bson.D{{Key: "q", Value: byID(1)}, {Key: "u", Value: inc}},
			bson.D{{Key: "q", Value: byID("new")}, {Key: "u", Value: inc}, {Key: "upsert", Value: true}},
		}})
		modify := numbered(2, bson.E{Key: "findAndModify", Value: "c"}, bson.E{Key: "query", Value: byID(1)},
			bson.E{Key: "update", Value: inc}, bson.E{Key: "new", Value: true})
		remove := numbered(3, bson.E{Key: "delete", Value: "c"}, bson.E{Key: "deletes", Value: bson.A{
			bson.D{{Key: "q", Value: byID("new")}, {Key: "limit", Value: 1}}}})
		for i, cmd := range []bson.D{update, modify, remove} {
			once, again := s.command(t, "test", cmd), s.command(t, "test", cmd)
			require.Equal(t, withoutTime(once), withoutTime(again), "command %d", i)
			if path != "" {
				require.NoError(t, s.Close())
				s = start(t, Options{Path: path})
				require.Equal(t, withoutTime(once), withoutTime(s.command(t, "test", cmd)), "after a restart")
			}
		}
		old := s.command(t, "test", update)
		require.Equal(t, mongoerr.TransactionTooOld, old.Lookup("code").Int32())
		c := connect(t, s).Database("test").Collection("c")
		require.Equal(t, 2, number(t, c, t.Context(), 1))
		require.ErrorIs(t, c.FindOne(t.Context(), byID("new")).Err(), mongo.ErrNoDocuments)
	}
}

// withoutTime is a reply without what differs each time.
func withoutTime(reply bson.Raw) string {
	s := ""
	elements, _ := reply.Elements()
	for _, e := range elements {
		if e.Key() != "$clusterTime" && e.Key() != "operationTime" {
			s += e.String() + " "
		}
	}
	return s
}

func TestWhatWasRememberedOfDeadClientsExpires(t *testing.T) {
	path := t.TempDir() + "/db"
	s := start(t, Options{Path: path})
	write := bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{byID(1)}},
		{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}}}}, {Key: "txnNumber", Value: int64(1)}}
	require.EqualValues(t, 1, s.command(t, "test", write).Lookup("n").Int32())
	require.NoError(t, s.Close())

	clock := &testClock{now: time.Unix(4_000_000_000, 0)}
	s = start(t, Options{Path: path, Now: clock.Now})
	require.Len(t, s.store.Remembered(), 1)
	s.sessions.sweep()
	require.Len(t, s.store.Remembered(), 1, "it may still come again")
	clock.Add(31 * time.Minute)
	s.sessions.sweep()
	require.Empty(t, s.store.Remembered())
}
