package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A service's client may have a timeout; a stream on which nothing happens must not die
// of it, nor ask the server more often than an idle worker may.
func TestAQuietStreamOutlivesTheTimeoutOfItsClient(t *testing.T) {
	waits := make(chan int64, 10)
	o := options.Client().ApplyURI(testdb.URI(t)).SetTimeout(time.Minute).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "getMore" {
				limit, _ := e.Command.Lookup("maxTimeMS").AsInt64OK()
				waits <- limit
			}
		},
	})
	s, _ := openAs(t, o)
	require.NoError(t, s.Ready(t.Context()))
	stream, err := s.Watch(t.Context(), []string{"t"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stream.Close(context.Background()) })
	type answer struct {
		woken []store.Woken
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		woken, err := stream.Next(t.Context(), 10)
		got <- answer{woken, err}
	}()
	select {
	case limit := <-waits:
		require.Equal(t, store.StreamAwait.Milliseconds(), limit, "the server waits for as long as a stream's await, not the client's timeout")
	case a := <-got:
		require.Fail(t, "the stream does not wait", "%v", a.err)
	}
	_, err = s.Tasks.Insert(t.Context(), []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.Clock.Now())})
	require.NoError(t, err)
	a := <-got
	require.NoError(t, a.err)
	require.Equal(t, "-/t/k", a.woken[0].ID)
}

// To open a stream at an old place must not wait until the server has looked through all
// that was written since: the first answer has no events.
func TestAStreamOpensBeforeTheServerHasLookedForEvents(t *testing.T) {
	var mu sync.Mutex
	var opened []bson.Raw
	o := options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			mu.Lock()
			defer mu.Unlock()
			if e.CommandName == "aggregate" {
				opened = append(opened, append(bson.Raw(nil), e.Reply...))
			}
		},
	})
	s, _ := openAs(t, o)
	require.NoError(t, s.Ready(t.Context()))
	first, err := s.Events(t.Context(), store.EventFilter{}, nil)
	require.NoError(t, err)
	token := first.Token()
	require.NotEmpty(t, token)
	require.NoError(t, first.Close(t.Context()))
	var tasks []*model.Task
	for i := range 150 {
		tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, s.Clock.Now()))
	}
	_, err = s.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)

	stream, err := s.Events(t.Context(), store.EventFilter{}, token)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stream.Close(context.Background()) })
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, opened, 2)
	none, err := opened[1].Lookup("cursor", "firstBatch").Array().Values()
	require.NoError(t, err)
	require.Empty(t, none)
	require.NotEmpty(t, stream.Token(), "it has its place all the same")
}
