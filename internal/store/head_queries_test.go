package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// watched is a store whose commands are seen and whose clock can be put forward.
type watched struct {
	*store.Store
	db    *mongo.Database
	clock *ahead
	seen  []bson.Raw // finds and counts
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{db: testdb.New(t), clock: &ahead{Clock: clock.System()}}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "find" || e.CommandName == "aggregate" {
				w.seen = append(w.seen, append(bson.Raw(nil), e.Command...))
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	w.Store, err = store.Open(store.Config{Database: client.Database(w.db.Name()), Clock: w.clock})
	require.NoError(t, err)
	require.NoError(t, w.Ready(t.Context()))
	require.NoError(t, w.ReadClock(t.Context()))
	return w
}

// bounded reports whether each query since the last call has a lower bound on the field.
func (w *watched) bounded(t *testing.T, field string) bool {
	t.Helper()
	require.NotEmpty(t, w.seen)
	yes := true
	for _, command := range w.seen {
		_, after, _ := strings.Cut(command.String(), `"`+field+`": {`)
		condition, _, _ := strings.Cut(after, "}}}")
		yes = yes && strings.HasPrefix(condition, `"$gte"`)
	}
	w.seen = nil
	return yes
}

// Every loop's look at a queue begins at the head that it saw last. What comes in before it
// is found by a look without a bound, within seconds.
func TestALoopAsksFromTheHeadOfItsQueueAndFindsStragglersAllTheSame(t *testing.T) {
	for _, c := range []struct {
		name, field string
		look        func(context.Context, *watched) (found int, err error)
	}{
		{"lapsed leases", "lapse_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Lapsed(ctx, []string{"t", "u"}, &store.LapsedFrom{}, 10)
			return len(found), err
		}},
		{"expired tasks", "expire_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Expired(ctx, &store.ExpiredFrom{}, 10)
			return len(found), err
		}},
		{"tasks to archive", "archive_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.History.Archive(ctx, w.History.ArchiveSince())
			w.seen = w.seen[:len(w.seen)-found.Moved] // of the retention, and of what is moved
			return found.PutOff, err
		}},
		{"marks of outboxes", "outbox_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.EmptyOutboxes(ctx, w.Clock.Now().Add(-time.Minute), 10)
			return len(found), err
		}},
		{"chores: outbox", "outbox_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Chores(ctx)
			return one(found.Outbox), err
		}},
		{"chores: expiry", "expire_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Chores(ctx)
			w.seen = w.seen[:1] // the other is the history's
			return one(found.Expired), err
		}},
		{"chores: archive", "archive_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Chores(ctx)
			w.seen = w.seen[:1]
			return one(found.Archive), err
		}},
		{"a poll for leases", "lapse_at", func(ctx context.Context, w *watched) (int, error) {
			found, err := w.Tasks.Peek(ctx, store.Peek{Executing: []string{"t", "u"}, WorkerID: "w"})
			return one(found.Executing), err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t)
			w.seen = nil
			look := func() (found int, bounded bool) {
				found, err := c.look(t.Context(), w)
				require.NoError(t, err)
				if c.name == "tasks to archive" {
					w.seen = w.seen[1:] // of the retention
				}
				return found, w.bounded(t, c.field)
			}
			found, bounded := look()
			require.Zero(t, found)
			require.False(t, bounded, "the first look")
			found, bounded = look()
			require.Zero(t, found)
			require.True(t, bounded, "the second look")

			past := time.Now().Add(-time.Hour)
			_, err := w.db.Collection("tasks").InsertOne(t.Context(), bson.D{
				{Key: "_id", Value: "-/t/late"}, {Key: "type", Value: "t"}, {Key: "generation", Value: int64(1)}, {Key: c.field, Value: past},
			})
			require.NoError(t, err)
			found, bounded = look()
			require.Zero(t, found, "it lies before the bound")
			require.True(t, bounded)
			w.clock.by.Add(int64(20 * time.Second))
			found, bounded = look()
			require.Equal(t, 1, found, "the straggler")
			require.False(t, bounded)
			if c.name == "tasks to archive" {
				return // it was put off
			}
			found, bounded = look()
			require.Equal(t, 1, found, "it stays the head until it is dealt with")
			require.Equal(t, !strings.HasPrefix(c.name, "chores") && !strings.HasPrefix(c.name, "a poll"), bounded, "that saw the head")
		})
	}
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Whoever finds no lease behind the bound may only rest when there is none at all.
func TestThatNothingIsExecutingIsSaidOnlyByALookWithoutABound(t *testing.T) {
	w := newWatched(t)
	next := func() (time.Time, bool) {
		at, sure, err := w.Tasks.NextLapse(t.Context(), []string{"t"})
		require.NoError(t, err)
		return at, sure
	}
	at, sure := next()
	require.Zero(t, at)
	require.True(t, sure, "the first look")
	past := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	_, err := w.db.Collection("tasks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "-/t/late"}, {Key: "type", Value: "t"}, {Key: "lapse_at", Value: past}})
	require.NoError(t, err)
	at, sure = next()
	require.Zero(t, at)
	require.False(t, sure, "a moment later")
	w.clock.by.Add(int64(time.Second))
	at, sure = next()
	require.Equal(t, past, at)
	require.True(t, sure)
}

// A lease that was granted after the look, and is shorter than those that were seen.
func TestAShorterLeaseThanThoseSeenIsSeen(t *testing.T) {
	w := newWatched(t)
	lease := func(id string, in time.Duration) time.Time {
		at := w.Clock.Now().Add(in)
		_, err := w.db.Collection("tasks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "type", Value: "t"}, {Key: "lapse_at", Value: at}})
		require.NoError(t, err)
		return at
	}
	next := func() time.Time {
		at, sure, err := w.Tasks.NextLapse(t.Context(), []string{"t"})
		require.NoError(t, err)
		require.True(t, sure)
		return at
	}
	long := lease("-/t/long", time.Hour)
	require.Equal(t, long, next())
	short := lease("-/t/short", time.Second)
	require.Equal(t, short, next())
}
