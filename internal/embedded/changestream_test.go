package embedded

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// life runs a server on a file, for as long as do takes.
func life(t *testing.T, opt Options, do func(c *mongo.Collection)) {
	t.Helper()
	s, err := Start(opt)
	require.NoError(t, err)
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	require.NoError(t, err)
	do(client.Database("test").Collection("c"))
	require.NoError(t, client.Disconnect(t.Context()))
	require.NoError(t, s.Close())
}

// seen returns the tokens of a stream before, at and after an event in its collection, and
// after one in another.
func seen(t *testing.T, c *mongo.Collection) map[string]bson.Raw {
	t.Helper()
	insert := func(c *mongo.Collection) {
		_, err := c.InsertOne(t.Context(), bson.D{})
		require.NoError(t, err)
	}
	cs, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(time.Millisecond))
	require.NoError(t, err)
	defer func() { require.NoError(t, cs.Close(t.Context())) }()
	tokens := map[string]bson.Raw{"before": cs.ResumeToken()}
	insert(c)
	require.True(t, cs.Next(t.Context()))
	tokens["event"] = cs.ResumeToken()
	insert(c.Database().Collection("other"))
	require.False(t, cs.TryNext(t.Context()))
	tokens["mark"] = cs.ResumeToken()
	require.NotEqual(t, tokens["event"], tokens["mark"])
	return tokens
}

// resume reports what a stream from a token has at first.
func resume(t *testing.T, c *mongo.Collection, token bson.Raw) (events int, err error) {
	t.Helper()
	cs, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token).SetMaxAwaitTime(time.Millisecond))
	if err != nil {
		return 0, err
	}
	for cs.TryNext(t.Context()) {
		events++
	}
	return events, errors.Join(cs.Err(), cs.Close(t.Context()))
}

func TestTokenOfALostHistoryIsRefused(t *testing.T) {
	clk := &testClock{now: time.Unix(1_700_000_000, 0)}
	opt := Options{Path: filepath.Join(t.TempDir(), "db"), Now: clk.Now}
	var kept, lost map[string]bson.Raw
	life(t, opt, func(c *mongo.Collection) { kept = seen(t, c) })
	backup, err := os.ReadFile(opt.Path)
	require.NoError(t, err)
	clk.Add(time.Millisecond)
	life(t, opt, func(c *mongo.Collection) { lost = seen(t, c) })
	require.NoError(t, os.WriteFile(opt.Path, backup, 0o600))
	clk.Add(time.Millisecond) // in the same second
	life(t, opt, func(c *mongo.Collection) {
		for _, later := range []bool{false, true} {
			if later {
				seen(t, c) // writes as often as was lost, and more
				seen(t, c)
			}
			for _, name := range []string{"event", "mark"} {
				_, err := resume(t, c, lost[name])
				var refused mongo.CommandError
				require.ErrorAs(t, err, &refused, "%s, later: %v", name, later)
				require.EqualValues(t, 280, refused.Code, "%s, later: %v: %v", name, later, err)
			}
			for name, want := range map[string]int{"before": 1, "event": 0, "mark": 0} {
				if later {
					want += 2
				}
				events, err := resume(t, c, kept[name])
				require.NoError(t, err, name)
				require.Equal(t, want, events, "%s, later: %v", name, later)
			}
		}
	})
}

// A stream that begins at a time the server named, or a later one, can be resumed before it has seen anything.
func TestStartAtOperationTimeCanBeResumed(t *testing.T) {
	clk := &testClock{now: time.Unix(1_700_000_000, 0)}
	opt := Options{Path: filepath.Join(t.TempDir(), "db"), Now: clk.Now}
	var tokens []bson.Raw
	life(t, opt, func(c *mongo.Collection) {
		seen(t, c)
		clk.Add(time.Minute)
		for _, later := range []uint32{0, 1, 30} {
			cs, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: uint32(clk.Now().Unix()) + later}))
			require.NoError(t, err)
			tokens = append(tokens, cs.ResumeToken())
			require.NoError(t, cs.Close(t.Context()))
		}
	})
	clk.Add(time.Hour)
	life(t, opt, func(c *mongo.Collection) {
		seen(t, c)
		for _, token := range tokens {
			events, err := resume(t, c, token)
			require.NoError(t, err)
			require.Equal(t, 1, events)
		}
	})
}

// Whoever watches from a time the server named sees what is written after it, also if the clock is set back.
func TestATimeThatWasToldIsBeforeLaterWrites(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "file": filepath.Join(t.TempDir(), "db")} {
		clk := &testClock{now: time.Unix(1_700_000_000, 0)}
		life(t, Options{Path: path, Now: clk.Now}, func(c *mongo.Collection) {
			seen(t, c)
			clk.Add(time.Minute)
			told := operationTime(t, c)
			clk.Add(-10 * time.Second)
			require.Equal(t, told, operationTime(t, c), "%s: it does not go back", name)
			_, err := c.InsertOne(t.Context(), byID("later"))
			require.NoError(t, err)
			require.True(t, operationTime(t, c).After(told), name)
			cs, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&told).SetMaxAwaitTime(time.Millisecond))
			require.NoError(t, err)
			require.True(t, cs.TryNext(t.Context()), name)
			require.Equal(t, "later", cs.Current.Lookup("documentKey", "_id").StringValue())
			require.False(t, cs.TryNext(t.Context()), name)
			require.NoError(t, cs.Close(t.Context()))
		})
	}
}

func operationTime(t *testing.T, c *mongo.Collection) bson.Timestamp {
	t.Helper()
	reply, err := c.Database().RunCommand(t.Context(), bson.D{{Key: "ping", Value: 1}}).Raw()
	require.NoError(t, err)
	sec, i := reply.Lookup("operationTime").Timestamp()
	return bson.Timestamp{T: sec, I: i}
}
