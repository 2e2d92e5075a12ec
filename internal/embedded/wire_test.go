package embedded

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// TestNonsenseIsRefusedAndOthersGoOn sends messages damaged at random: the
// server answers or hangs up, and serves the next client.
func TestNonsenseIsRefusedAndOthersGoOn(t *testing.T) {
	s := start(t, Options{})
	seed := uint64(clock.System().Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	commands := []bson.D{
		{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: bson.A{1, "x", bson.D{}}}}}}, {Key: "$db", Value: "test"}},
		{{Key: "find", Value: "c"}, {Key: "filter", Value: bson.D{{Key: "a", Value: bson.D{{Key: "$in", Value: bson.A{1, 2}}}}}}, {Key: "sort", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "$db", Value: "test"}},
		{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: bson.D{}}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "a.0", Value: 5}}}}}, {Key: "upsert", Value: true}}}}, {Key: "$db", Value: "test"}},
		{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$a"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}}}}, {Key: "cursor", Value: bson.D{}}, {Key: "$db", Value: "test"}},
		{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a"}}}}, {Key: "$db", Value: "test"}},
	}
	for range 3000 {
		body, err := bson.Marshal(commands[r.IntN(len(commands))])
		require.NoError(t, err)
		msg := wire.AppendReply(nil, &wire.Message{}, 1, body)
		for range 1 + r.IntN(4) {
			msg[4+r.IntN(len(msg)-4)] = byte(r.Uint32())
		}
		if r.IntN(10) == 0 {
			msg = msg[:4+r.IntN(len(msg)-4)]
			binary.LittleEndian.PutUint32(msg, uint32(len(msg)))
		}
		nc, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		require.NoError(t, nc.SetDeadline(clock.System().Now().Add(10*time.Second)))
		_, err = nc.Write(msg)
		require.NoError(t, err)
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		_, err = wire.Read(nc) // an answer, or the end; not a time out
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%x", msg)
		require.NoError(t, nc.Close())
	}
	require.InDelta(t, 1, s.command(t, "admin", bson.D{{Key: "ping", Value: 1}}).Lookup("ok").Double(), 0)
}

func TestRemoteAddressesNeedPermission(t *testing.T) {
	_, err := Start(Options{Addr: "0.0.0.0:0"})
	require.ErrorContains(t, err, "no authentication")
	start(t, Options{Addr: "0.0.0.0:0", AllowRemote: true})
	s := start(t, Options{Addr: t.TempDir() + "/s.sock"})
	require.NoError(t, connect(t, s).Ping(t.Context(), nil))
}
