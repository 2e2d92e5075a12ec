package embedded

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

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
		}, patience, time.Millisecond)
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
	require.Eventually(t, func() bool { return len(s.liveConns()) == 0 }, patience, time.Millisecond, "nobody waits for a client that left")

	nc, _ = open()
	require.NoError(t, s.Close()) // would hang for an hour
	require.NoError(t, nc.Close())
}
