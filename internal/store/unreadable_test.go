package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

type ahead struct {
	clock.Clock
	by atomic.Int64
}

func (a *ahead) Monotonic() time.Duration { return a.Clock.Monotonic() + time.Duration(a.by.Load()) }

func TestADocumentThatCannotBeReadIsLeftOutAndTheLogSaysSoOnceAMinute(t *testing.T) {
	db := testdb.New(t)
	var log bytes.Buffer
	at := &ahead{Clock: clock.System()}
	s, err := store.Open(store.Config{Database: db, Clock: at, Logger: zerolog.New(&log)})
	require.NoError(t, err)
	_, err = db.Collection("task_types").InsertMany(t.Context(), []any{
		bson.D{{Key: "_id", Value: "a"}, {Key: "max_running", Value: "three"}}, bson.D{{Key: "_id", Value: "b"}, {Key: "max_running", Value: 3}},
	})
	require.NoError(t, err)
	for _, c := range []struct {
		after time.Duration
		lines int
	}{{0, 1}, {time.Second, 1}, {2 * time.Hour, 2}} {
		at.by.Store(int64(c.after))
		types, unread, err := s.Types.List(t.Context())
		require.NoError(t, err)
		require.Len(t, types, 1)
		require.Equal(t, "b", types[0].Code)
		require.Len(t, unread, 1)
		require.Equal(t, "a", unread[0].ID)
		require.Equal(t, c.lines, strings.Count(log.String(), `"id":"a"`), "after %v", c.after)
	}
}

func TestTasksThatCannotBeReadHideNoneBehindThem(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.FreshClock(t.Context()))
	past := time.Now().Add(-time.Hour)
	for i := range 4 {
		doc := bson.D{
			{Key: "_id", Value: fmt.Sprint(i)}, {Key: "type", Value: "tick"}, {Key: "priority", Value: 9 - i}, {Key: "audience", Value: bson.A{lifecycle.AudienceAll}},
			{Key: "due_at", Value: past}, {Key: "lapse_at", Value: past}, {Key: "expire_at", Value: past},
		}
		if i < 3 {
			doc = append(doc, bson.E{Key: "error_count", Value: "three"})
		}
		_, err := db.Collection("tasks").InsertOne(t.Context(), doc)
		require.NoError(t, err)
	}
	for name, find := range map[string]func() ([]*model.Task, error){
		"due": func() ([]*model.Task, error) {
			return s.Tasks.Due(t.Context(), store.DueQuery{Types: []string{"tick"}, WorkerID: "w", Limit: 1})
		},
		"lapsed":  func() ([]*model.Task, error) { return s.Tasks.Lapsed(t.Context(), []string{"tick"}, 1) },
		"expired": func() ([]*model.Task, error) { return s.Tasks.Expired(t.Context(), 1) },
	} {
		tasks, err := find()
		require.NoError(t, err, name)
		require.Len(t, tasks, 1, name)
		require.Equal(t, "3", tasks[0].ID, name)
	}
}
