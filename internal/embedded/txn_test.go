package embedded

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

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
	var doc struct{ N int }
	require.NoError(t, c.FindOne(t.Context(), byID(1)).Decode(&doc))
	require.Equal(t, workers*each, doc.N)
}

func TestPanicOfACommandLeavesTheStoreToOthers(t *testing.T) {
	commands["panic"] = &command{known: knownFields(generalFields, ""), inTxn: true, run: func(r *request) (*docBuilder, error) {
		return nil, r.change(func(w *storage.Writer) error {
			w.FindID("test.c", bson.RawValue{Type: bson.TypeNull}) // holds the lock
			panic("as it happens")
		})
	}}
	defer delete(commands, "panic")
	s := start(t, Options{})
	reply := s.command(t, "test", bson.D{{Key: "panic", Value: 1}})
	require.Contains(t, reply.Lookup("errmsg").StringValue(), "as it happens")
	reply = s.command(t, "test", bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{}}}})
	require.EqualValues(t, 1, reply.Lookup("n").Int32())

	txn := bson.D{{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}}}}, {Key: "txnNumber", Value: int64(1)}, {Key: "autocommit", Value: false}}
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	roundTrip(t, nc, append(bson.D{{Key: "panic", Value: 1}, {Key: "$db", Value: "test"}, {Key: "startTransaction", Value: true}}, txn...))
	reply = roundTrip(t, nc, append(bson.D{{Key: "commitTransaction", Value: 1}, {Key: "$db", Value: "admin"}}, txn...))
	require.NoError(t, nc.Close())
	require.Equal(t, mongoerr.NoSuchTransaction, reply.Lookup("code").Int32(), "%s", reply)
}
