package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Between its look for the schema and its look for tasks, another process sets the database up and
// sends a task. That one is not foreign.
func TestAProcessMayStartWhileAnotherSetsTheDatabaseUpAndSends(t *testing.T) {
	var other func()
	var once sync.Once
	s, direct := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if coll, _ := e.Command.Lookup("find").StringValueOK(); coll == "tasks" {
				once.Do(other)
			}
		},
	}))
	sent := false
	other = func() {
		o, err := store.Open(store.Config{Database: direct})
		require.NoError(t, err)
		require.NoError(t, o.Ready(t.Context()))
		_, err = o.Tasks.Insert(t.Context(), []*model.Task{lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, time.Now())})
		require.NoError(t, err)
		sent = true
	}
	require.NoError(t, s.Ready(t.Context()))
	require.True(t, sent)
}
