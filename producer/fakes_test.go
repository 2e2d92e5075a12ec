package producer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// offClock is the machine's clock, wrong by an offset.
type offClock struct{ by time.Duration }

func (c offClock) Now() time.Time           { return clock.System().Now().Add(c.by) }
func (c offClock) Monotonic() time.Duration { return clock.System().Monotonic() }

// commandCounter counts the commands that a producer of its own client sends.
type commandCounter struct {
	mu      sync.Mutex
	counts  map[string]int
	largest int // answer, in bytes
}

func (c *commandCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.largest = map[string]int{}, 0
}

func (c *commandCounter) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

func (c *commandCounter) watch(t *testing.T) func(*Config) {
	c.reset()
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.counts[e.CommandName]++
	}, Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.largest = max(c.largest, len(e.Reply))
	}}
	return func(cfg *Config) {
		cfg.Database = ownClient(t, testdb.URI(t), options.Client().SetMonitor(monitor)).Database(cfg.Database.Name())
	}
}

// ownClient is a client that no other test uses.
func ownClient(t *testing.T, uri string, o *options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(o.ApplyURI(uri))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client
}

func (c *commandCounter) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, count := range c.counts {
		n += count
	}
	return n
}
