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
	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
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

func TestWhatIsNotSupportedIsRefusedByName(t *testing.T) {
	s := start(t, Options{})
	for _, c := range []struct {
		cmd  bson.D
		code int32
		says string
	}{
		{bson.D{{Key: "nonsense", Value: 1}}, mongoerr.CommandNotFound, "nonsense"},
		{bson.D{{Key: "mapReduce", Value: "c"}}, mongoerr.NotImplementedCode, "mapReduce"},
		{bson.D{{Key: "find", Value: "c"}, {Key: "nonsense", Value: 1}}, 40415, "find.nonsense"},
		{bson.D{{Key: "find", Value: "c"}, {Key: "maxTimeMS", Value: 5}, {Key: "maxTimeMS", Value: 9}}, 40413, "find.maxTimeMS"},
		{bson.D{{Key: "find", Value: "c"}, {Key: "collation", Value: bson.D{{Key: "locale", Value: "de"}}}}, mongoerr.NotImplementedCode, "collation"},
		{bson.D{{Key: "find", Value: "c"}, {Key: "let", Value: bson.D{{Key: "a", Value: 1}}}}, mongoerr.NotImplementedCode, "let"},
		{bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$lookup", Value: bson.D{}}}}}, {Key: "cursor", Value: bson.D{}}}, mongoerr.NotImplementedCode, "$lookup"},
		{bson.D{{Key: "create", Value: "c"}, {Key: "capped", Value: true}}, mongoerr.NotImplementedCode, "capped"},
		{bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{}}}, mongoerr.InvalidLength, "batch sizes"},
		{bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "$a", Value: 1}}}}}, mongoerr.NotImplementedCode, "$a"},
		{bson.D{{Key: "find", Value: "c"}, {Key: "readConcern", Value: bson.D{{Key: "level", Value: "nonsense"}}}}, mongoerr.FailedToParse, "nonsense"},
		{bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}}, {Key: "cursor", Value: bson.D{}}, {Key: "readConcern", Value: bson.D{{Key: "level", Value: "local"}}}}, mongoerr.InvalidOptions, "majority"},
		{bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: bson.D{}}, {Key: "u", Value: bson.D{}}, {Key: "multi", Value: 1}}}}}, mongoerr.TypeMismatch, "multi"},
		{bson.D{{Key: "insert", Value: "a$b"}, {Key: "documents", Value: bson.A{bson.D{}}}}, mongoerr.InvalidNamespace, "a$b"},
	} {
		reply := s.command(t, "test", c.cmd)
		if _, err := reply.LookupErr("writeErrors"); err == nil {
			reply = reply.Lookup("writeErrors").Array().Index(0).Document()
		}
		require.Equal(t, c.code, reply.Lookup("code").Int32(), "%v: %v", c.cmd, reply)
		require.Contains(t, reply.Lookup("errmsg").StringValue(), c.says)
	}
}

func TestRemoteAddressesNeedPermission(t *testing.T) {
	_, err := Start(Options{Addr: "0.0.0.0:0"})
	require.ErrorContains(t, err, "no authentication")
	start(t, Options{Addr: "0.0.0.0:0", AllowRemote: true})
	s := start(t, Options{Addr: t.TempDir() + "/s.sock"})
	require.NoError(t, connect(t, s).Ping(t.Context(), nil))
}
