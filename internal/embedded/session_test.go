package embedded

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// testSession is the id of a session, as it comes with commands.
func testSession() bson.D {
	return bson.D{{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: make([]byte, 16)}}}
}

func (l *sessions) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.m)
}

func TestASessionInWhichACommandRunsDoesNotExpire(t *testing.T) {
	clk := &testClock{now: time.Unix(1_700_000_000, 0)}
	s := start(t, Options{Now: clk.Now, SessionTimeout: time.Second})
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer nc.Close()
	of := func(cmd bson.D) bson.D {
		return append(cmd, bson.E{Key: "lsid", Value: testSession()}, bson.E{Key: "$db", Value: "test"})
	}
	reply := roundTrip(t, nc, of(bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}},
		{Key: "cursor", Value: bson.D{}}}))
	id := reply.Lookup("cursor", "id").AsInt64()
	send(t, nc, of(bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "maxTimeMS", Value: 3_600_000}}))
	require.Eventually(t, func() bool {
		s.cursors.mu.Lock()
		defer s.cursors.mu.Unlock()
		return s.cursors.m[id].busy
	}, patience, time.Millisecond)
	clk.Add(time.Minute)
	s.sessions.sweep()
	require.Equal(t, 1, s.sessions.len())
	s.command(t, "test", bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{byID(1)}}})
	m, err := wire.Read(nc)
	require.NoError(t, err)
	require.EqualValues(t, 1, m.Body.Lookup("cursor", "nextBatch", "0", "documentKey", "_id").AsInt64(), "%s", m.Body)

	s.sessions.sweep()
	require.Equal(t, 1, s.sessions.len(), "it was used until now")
	clk.Add(time.Minute)
	s.sessions.sweep()
	require.Zero(t, s.sessions.len())
	reply = roundTrip(t, nc, of(bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}}))
	require.Equal(t, mongoerr.CursorNotFound, reply.Lookup("code").Int32(), "%s", reply)
}

// Nobody would end such a transaction: the session is not in the list any more.
func TestNoTransactionBeginsInASessionThatWasRemoved(t *testing.T) {
	s := start(t, Options{})
	lsid, err := bson.Marshal(testSession())
	require.NoError(t, err)
	id, _ := value.Lookup(lsid, "id")
	begin := func(e *session) error {
		return (&request{s: s, c: &conn{}, session: e, txnNumber: 1, inTxn: true, startsTxn: true}).enterTxn()
	}
	e := s.sessions.get(id, lsid)
	s.sessions.remove([]string{e.key})
	require.Equal(t, mongoerr.NoSuchTransaction, mongoerr.Code(begin(e)))
	require.Nil(t, e.txn)
	e.leave()

	e = s.sessions.get(id, lsid)
	require.NoError(t, begin(e), "the next try gets another")
	s.sessions.remove([]string{e.key})
	require.Nil(t, e.txn)
	e.leave()
}
