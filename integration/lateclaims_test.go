package integration

import (
	"context"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/store"
)

// lateClaims are the tasks of a worker whose first claim the server did not carry out as a whole. A
// machine that is busy enough exceeds the short time limit of claims, and what ran out of time is
// claimed beside the next fetch. So the order of these tasks is not promised; that of all others is.
type lateClaims struct {
	a      *arena
	client *mongo.Client

	mu    sync.Mutex
	named map[int64][]string // by request
	late  map[string]bool
}

func newLateClaims(a *arena) *lateClaims {
	a.t.Helper()
	l := &lateClaims{a: a, named: map[int64][]string{}, late: map[string]bool{}}
	var err error
	l.client, err = mongo.Connect(engine.Options(a.e.URI).SetMonitor(&event.CommandMonitor{
		Started: func(ctx context.Context, ev *event.CommandStartedEvent) {
			if call, ok := store.CallOf(ctx); ok && call.Purpose == store.Claiming && ev.CommandName == "update" {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.named[ev.RequestID] = taskIDs(ev.Command)
			}
		},
		Succeeded: func(_ context.Context, ev *event.CommandSucceededEvent) {
			n, _ := ev.Reply.Lookup("n").AsInt64OK()
			l.answered(ev.RequestID, int(n))
		},
		Failed: func(_ context.Context, ev *event.CommandFailedEvent) { l.answered(ev.RequestID, 0) },
	}))
	require.NoError(a.t, err)
	a.t.Cleanup(func() { require.NoError(a.t, l.client.Disconnect(context.Background())) })
	return l
}

// taskIDs are the tasks that the statements of an update name.
func taskIDs(update bson.Raw) (ids []string) {
	statements, _ := update.Lookup("updates").Array().Values()
	for _, st := range statements {
		switch named := st.Document().Lookup("q", "_id"); named.Type {
		case bson.TypeString:
			ids = append(ids, named.StringValue())
		default:
			some, _ := named.Document().Lookup("$in").Array().Values()
			for _, id := range some {
				ids = append(ids, id.StringValue())
			}
		}
	}
	return ids
}

func (l *lateClaims) answered(request int64, written int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if written < len(l.named[request]) {
		for _, id := range l.named[request] {
			l.late[id] = true
		}
	}
	delete(l.named, request)
}

// watched lets a worker use the client whose claims are watched.
func (l *lateClaims) watched(c *handConfig) { c.Database = l.client.Database(l.a.db.Name()) }

func (l *lateClaims) requireOrder(want, ran []string) {
	l.a.t.Helper()
	require.ElementsMatch(l.a.t, want, ran)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.late) > 0 {
		l.a.t.Logf("%d claims ran out of time", len(l.late))
	}
	isLate := func(id string) bool { return l.late[id] }
	require.Equal(l.a.t, slices.DeleteFunc(slices.Clone(want), isLate), slices.DeleteFunc(slices.Clone(ran), isLate))
}
