package rest_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// commands counts what a process asks of the database, by command and collection; the opening of a change stream
// is $changeStream.
type commands struct {
	mu sync.Mutex
	of map[string]int
}

func (c *commands) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		name := strings.TrimSpace(e.CommandName + " " + coll)
		if strings.Contains(e.Command.Lookup("pipeline").String(), "$changeStream") {
			name = "$changeStream"
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[name]++
	}}
}

func (c *commands) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// However many listen, each with a token that is checked again and again, the process has one change stream and
// asks the database no more than for one of them.
func TestAThousandListenersCostTheDatabaseWhatOneDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	t.Parallel()
	asked := commands{of: map[string]int{}}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(asked.monitor()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	w := newWorld(t, func(c *rest.Config) { c.NoTokens, c.Database = false, client.Database(c.Database.Name()) })
	mine := w.with(access.Operator)
	one := mine.watch("", "")
	before, began := asked.all(), time.Now()
	const n = 1000
	listeners := []*watching{one}
	for len(listeners) < n {
		listeners = append(listeners, mine.watch("", ""))
	}
	joined := asked.all()["find tokens"]
	require.Eventually(t, func() bool { return asked.all()["find tokens"] >= joined+2 }, testdb.Patience, 10*time.Millisecond, "the token of each listener is checked again")
	mine.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	for _, l := range listeners {
		require.Equal(t, "k", l.next().data["key"])
	}
	turns := int(time.Since(began)/access.Window) + 1 // what a process does by time it does that often
	for name, count := range asked.all() {
		if name == "getMore" { // the stream itself, as long as the test takes
			continue
		}
		require.LessOrEqual(t, count-before[name], 10+5*turns, "%s for %d listeners", name, n)
	}
	require.Equal(t, 1, asked.all()["$changeStream"])
}
