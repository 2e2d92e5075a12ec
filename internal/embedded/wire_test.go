package embedded

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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
		require.NoError(t, nc.SetDeadline(clock.System().Now().Add(patience)))
		_, err = nc.Write(msg)
		require.NoError(t, err)
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		_, err = wire.Read(nc) // an answer, or the end; not a time out
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%x", msg)
		require.NoError(t, nc.Close())
	}
	require.InDelta(t, 1, s.command(t, "admin", bson.D{{Key: "ping", Value: 1}}).Lookup("ok").Double(), 0)
}

// TestWhatIsWrongWithAMessageIsSaid sends messages that can be read to their end:
// the answer says what is wrong, and the next one is read.
func TestWhatIsWrongWithAMessageIsSaid(t *testing.T) {
	nc, err := net.Dial("tcp", start(t, Options{}).Addr())
	require.NoError(t, err)
	defer nc.Close()
	var deep any = 1
	for range 205 {
		deep = bson.D{{Key: "a", Value: deep}}
	}
	find := bson.D{{Key: "find", Value: "c"}, {Key: "$db", Value: "test"}}
	reply := roundTrip(t, nc, append(slices.Clone(find), bson.E{Key: "filter", Value: deep}))
	require.Equal(t, "malformed message: BSON is nested deeper than 200", reply.Lookup("errmsg").StringValue())

	body, err := bson.Marshal(find)
	require.NoError(t, err)
	msg := append(wire.AppendReply(nil, &wire.Message{}, 1, body), "\x01\x10\x00\x00\x00filter\x00\x05\x00\x00\x00\x00"...)
	binary.LittleEndian.PutUint32(msg, uint32(len(msg)))
	_, err = nc.Write(msg)
	require.NoError(t, err)
	m, err := wire.Read(nc)
	require.NoError(t, err)
	require.Equal(t, "BSON field 'find.filter' is a duplicate field, or no list of documents", m.Body.Lookup("errmsg").StringValue())
}

// TestAnswersFitAMessage makes answers that would be longer than a message may be.
func TestAnswersFitAMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	c, ctx := newDB(t, Options{}).Collection("c"), t.Context()
	var docs []any
	for i := range 26 {
		docs = append(docs, bson.D{{Key: "_id", Value: strings.Repeat(string(rune('0'+i)), 1<<20)}})
	}
	_, err := c.InsertMany(ctx, docs)
	require.NoError(t, err)
	_, err = c.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	var failed mongo.BulkWriteException
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.WriteErrors, 26)
	require.Contains(t, failed.WriteErrors[0].Message, "_id_")

	large := bson.D{{Key: "_id", Value: strings.Repeat("\x01", 9<<20)}} // escaped in the text of errors
	_, err = c.InsertOne(ctx, large)
	require.NoError(t, err)
	err = c.FindOneAndReplace(ctx, bson.D{{Key: "x", Value: 1}}, large, options.FindOneAndReplace().SetUpsert(true)).Err()
	require.ErrorContains(t, err, "longer than a message")
}

func TestRemoteAddressesNeedPermission(t *testing.T) {
	_, err := Start(Options{Addr: "0.0.0.0:0"})
	require.ErrorContains(t, err, "without authentication")
	all := start(t, Options{Addr: "0.0.0.0:0", AllowRemote: true})
	_, port, err := net.SplitHostPort(all.Addr())
	require.NoError(t, err)
	nc, err := net.Dial("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer nc.Close()
	me := roundTrip(t, nc, bson.D{{Key: "hello", Value: 1}, {Key: "$db", Value: "admin"}}).Lookup("hosts", "0").StringValue()
	require.Equal(t, "127.0.0.1:"+port, me, "an address that the client can reach")
	dir := t.TempDir()
	_, err = Start(Options{Addr: dir + "/mongo"})
	require.ErrorContains(t, err, "must end in .sock")
	t.Chdir(dir)
	s := start(t, Options{Addr: "./s.sock"})
	t.Chdir("/")
	require.NoError(t, connect(t, s).Ping(t.Context(), nil))
}
