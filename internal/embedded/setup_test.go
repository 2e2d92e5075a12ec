package embedded

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

func TestMain(m *testing.M) {
	if runAsChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs a server for the length of a test.
func start(t testing.TB, opt Options) *Server {
	t.Helper()
	s, err := Start(opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// patience is how long a test waits for what must come, as testdb.Patience, which this package cannot import.
const patience = 2 * time.Minute

// connect returns a driver's client, gone at the end of the test.
func connect(t testing.TB, s *Server) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = c.Disconnect(ctx)
	})
	return c
}

// newDB is a database of a new server.
func newDB(t testing.TB, opt Options) *mongo.Database {
	t.Helper()
	return connect(t, start(t, opt)).Database("test")
}

func findByID() *options.FindOptionsBuilder {
	return options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})
}

// liveConns is the connections there are now.
func (s *Server) liveConns() map[*conn]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.conns)
}

// command sends a command as it is, on a connection of its own, and returns the
// whole answer.
func (s *Server) command(t testing.TB, db string, cmd bson.D) bson.Raw {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer nc.Close()
	return roundTrip(t, nc, append(slices.Clone(cmd), bson.E{Key: "$db", Value: db}))
}

// roundTrip sends cmd as OP_MSG and reads the answer.
func roundTrip(t testing.TB, nc net.Conn, cmd bson.D) bson.Raw {
	t.Helper()
	send(t, nc, cmd)
	m, err := wire.Read(nc)
	require.NoError(t, err)
	return m.Body
}

// send sends cmd as OP_MSG.
func send(t testing.TB, nc net.Conn, cmd bson.D) {
	t.Helper()
	body, err := bson.Marshal(cmd)
	require.NoError(t, err)
	_, err = nc.Write(wire.AppendReply(nil, &wire.Message{}, 1, body))
	require.NoError(t, err)
}

// testClock is a clock that stands still until it is set forward.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
