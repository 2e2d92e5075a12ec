package access

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// hand is a clock that stands still until a test moves it.
type hand struct{ at atomic.Int64 }

func (h *hand) Now() time.Time           { return time.Unix(1_700_000_000, h.at.Load()) }
func (h *hand) Monotonic() time.Duration { return time.Duration(h.at.Load()) }

func (h *hand) forward(d time.Duration) { h.at.Add(int64(d)) }

// gate is a guard on a database of its own, with the commands that were sent counted.
type gate struct {
	*Guard
	t     *testing.T
	db    *mongo.Database // the test's own way to the database
	over  *mongo.Database // the guard's way
	proxy *proxy.Proxy    // on the guard's way
	hand  *hand
	log   *lines

	mu   sync.Mutex
	sent map[string]int // commands on the collection tokens, by name
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newGate(t *testing.T, change ...func(*Config)) *gate {
	t.Helper()
	x := &gate{t: t, hand: &hand{}, log: &lines{}, proxy: testdb.Behind(t), sent: map[string]int{}}
	client, err := mongo.Connect(options.Client().ApplyURI(x.proxy.URI()).SetServerSelectionTimeout(300 * time.Millisecond).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if coll, _ := e.Command.Lookup(e.CommandName).StringValueOK(); coll == "tokens" {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.sent[e.CommandName]++
			}
		},
	}))
	require.NoError(t, err)
	testdb.Closes(t, client.Disconnect)
	testdb.Reached(t, client)
	x.db = testdb.New(t)
	x.over = client.Database(x.db.Name())
	c := Config{Store: x.open(), Log: zerolog.New(x.log)}
	for _, f := range change {
		f(&c)
	}
	x.Guard = patient(c)
	testdb.Closes(t, func(ctx context.Context) error {
		if err := x.reads.Wait(ctx); err != nil {
			return err
		}
		return x.Wait(ctx)
	})
	return x
}

// patient is a guard that waits for the database and for the issuer however slow the machine is.
func patient(c Config) *Guard {
	g := New(c)
	g.callTime = testdb.Patience
	if g.issuer != nil {
		g.issuer.keys.callTime = testdb.Patience
	}
	return g
}

// open is a store on the gate's database, as another process has it.
func (x *gate) open() *store.Store {
	x.t.Helper()
	s, err := store.Open(store.Config{Database: x.over, Clock: x.hand, Logger: zerolog.New(x.log)})
	require.NoError(x.t, err)
	require.NoError(x.t, s.Ready(x.t.Context()))
	return s
}

// create makes a token.
func (x *gate) create(w Wanted) (text string, t *store.Token) {
	x.t.Helper()
	if w.Name == "" {
		w.Name, w.Role = "n", string(Viewer)
	}
	text, t, err := Create(x.t.Context(), x.store, w)
	require.NoError(x.t, err)
	return text, t
}

// recovers waits until the guard has the database again, and accepts the token.
func (x *gate) recovers(text string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		_, err := x.Check(x.t.Context(), text, "192.0.2.1")
		return err == nil
	}, testdb.Patience, 10*time.Millisecond)
}

// count is how many such commands were sent about tokens.
func (x *gate) count(command string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent[command]
}

func (x *gate) accepts(text string) Grant {
	x.t.Helper()
	g, err := x.Check(x.t.Context(), text, "192.0.2.1:999")
	require.NoError(x.t, err)
	return g
}

func (x *gate) refuses(want error, text, from string) {
	x.t.Helper()
	g, err := x.Check(x.t.Context(), text, from)
	require.ErrorIs(x.t, err, want)
	require.Equal(x.t, Grant{}, g, "what is refused allows nothing")
}

// stored is the document of a token.
func (x *gate) stored(id string) (doc bson.M) {
	x.t.Helper()
	require.NoError(x.t, x.db.Collection("tokens").FindOne(x.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc))
	return doc
}
