package limits

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// stalls is a clock that goes on by a second while a reading is on its way, once.
type stalls struct {
	clock.Clock
	by atomic.Int64
}

func (s *stalls) Now() time.Time           { return s.Clock.Now().Add(time.Duration(s.by.Load())) }
func (s *stalls) Monotonic() time.Duration { return s.Clock.Monotonic() + time.Duration(s.by.Load()) }

// One slow answer must not make a process hold up the whole fleet's rate until its next
// heartbeat.
func TestWhoKnowsTheTimeTooBadlyForARateReadsItBeforeItReserves(t *testing.T) {
	local := &stalls{Clock: clock.System()}
	var reads, slow atomic.Int64
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if of, _ := e.Command.Lookup(e.CommandName).StringValueOK(); e.CommandName == "findAndModify" && of == "control" {
				reads.Add(1)
				local.by.Add(slow.Load())
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	st, err := store.Open(store.Config{Database: client.Database(testdb.New(t).Name()), Clock: local})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	types := tasktypes.New(st)
	g := New(st, types, zerolog.Nop(), func() {})
	t.Cleanup(g.Close)
	require.NoError(t, st.Types.Put(t.Context(), &model.TaskType{Code: sweptType, RateLimit: &model.RateLimit{Count: 10, Per: time.Hour}}))
	require.NoError(t, types.Fresh(t.Context(), 0))

	slow.Store(int64(time.Minute)) // more than the five seconds that such a rate tolerates
	require.NoError(t, st.ReadClock(t.Context()))
	require.GreaterOrEqual(t, st.Clock.Error(), time.Minute)
	slow.Store(0)
	reads.Store(0)
	admit := func(key string) {
		task := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: key}, st.Clock.Now())
		_, err := g.Admit(t.Context(), []*model.Task{task}, key, nil)
		require.NoError(t, err)
	}
	admit("a")
	require.EqualValues(t, 1, reads.Load())
	require.Less(t, st.Clock.Error(), 50*time.Second)
	admit("b")
	require.EqualValues(t, 1, reads.Load(), "it knows by now")
}

func TestWhereReadingTheClockDoesNotHelpItIsReadEverMoreRarely(t *testing.T) {
	var p pacer
	var at []time.Duration
	for now := time.Duration(0); now < 2*time.Minute; now += 100 * time.Millisecond {
		if p.doubts(now, true) {
			at = append(at, now/time.Second)
		}
	}
	require.Equal(t, []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}, at)
	require.False(t, p.doubts(time.Hour, false))
	require.True(t, p.doubts(time.Hour, true), "after a while that was good, at once")
	require.False(t, p.doubts(time.Hour+firstReread-1, true))
	require.False(t, p.doubts(time.Hour+firstReread, false))
	require.True(t, p.doubts(time.Hour+firstReread, true))
}

// Of a rate of one an hour, a start that nobody used is the only one that there is for an hour. Whoever waits for the next
// one must hear of it.
func TestAStartThatComesBackIsForThoseThatWait(t *testing.T) {
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	types := tasktypes.New(st)
	var woken atomic.Int64
	g := New(st, types, zerolog.Nop(), func() { woken.Add(1) })
	t.Cleanup(g.Close)
	require.NoError(t, st.Types.Put(t.Context(), &model.TaskType{Code: sweptType, RateLimit: &model.RateLimit{Count: 1, Per: time.Hour}}))
	require.NoError(t, types.Fresh(t.Context(), 0))
	admit := func(key string) map[*model.Task]Grant {
		task := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: key}, st.Clock.Now())
		admitted, err := g.Admit(t.Context(), []*model.Task{task}, key, nil)
		require.NoError(t, err)
		return admitted.Granted
	}
	first := admit("a")
	require.Len(t, first, 1)
	require.Empty(t, admit("b"))
	require.True(t, g.Waiting(sweptType))
	for _, grant := range first {
		g.Return(grant)
	}
	require.NoError(t, g.Wait(t.Context()))
	require.False(t, g.Waiting(sweptType))
	require.Positive(t, woken.Load())
	require.Len(t, admit("b"), 1)
}
