package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// largeWork has arguments that are nearly as large as they may be.
var largeWork = model.NewType[string, int]("bytes.large")

const largeBytes = 250 << 10

// sendLarge stores tasks with large arguments.
func (a *arena) sendLarge(n int, opts ...producer.Option) []string {
	a.t.Helper()
	items := make([]producer.Item[string], n)
	for i := range items {
		items[i] = producer.Item[string]{Args: strings.Repeat("x", largeBytes), Options: opts}
	}
	var ids []string
	for len(items) > 0 {
		some := items[:min(len(items), 40)]
		items = items[len(some):]
		sent, err := producer.SendMany(a.t.Context(), a.p, largeWork, some)
		require.NoError(a.t, err)
		for _, s := range sent {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// A worker that has room for a thousand tasks does not read a thousand large ones at once.
func TestALookForTasksIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	onEnginesAlone(t, withoutRace(slowInLong(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const n = 300 // 75 MB
		a.sendLarge(n)
		l := listen(t, e.URI, a.db.Name())
		var ran atomic.Int64
		began := time.Now()
		a.hire("w", nil, through(l.Database), func(c *handConfig) {
			c.Concurrency = 1000
			c.register = func(c *consumer.Consumer) error {
				return consumer.Handle(c, largeWork, func(_ context.Context, task *consumer.Task[string]) (int, error) {
					ran.Add(1)
					return len(task.Args), nil
				})
			}
		})
		a.awaitCountOf(largeWork.Name(), model.StatusSuccess, n)
		require.EqualValues(t, n, ran.Load())
		most := 0
		for _, q := range l.by(began, store.IndexDue, "") {
			most = max(most, q.bytes)
		}
		require.Greater(t, most, 10*largeBytes, "batches, and not single tasks")
		require.LessOrEqual(t, most, 34<<20, "bytes of one look at what is due")
	})))
}

// What somebody decides by a task's state leaves its arguments where they are.
func TestLapsesAndSignalsAreReadWithoutArguments(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ctx := t.Context()
		const n = 8
		ids := a.sendLarge(n)
		l := listen(t, e.URI, a.db.Name())
		s, err := store.Open(store.Config{Database: l.Database})
		require.NoError(t, err)
		require.NoError(t, s.ReadClock(ctx))
		a.abandon(ids, "gone", time.Second)
		began := time.Now()
		var found []*model.Task
		awaitTrue(t, func() string {
			found, err = s.Tasks.Lapsed(ctx, []string{largeWork.Name()}, &store.LapsedFrom{}, 100)
			require.NoError(t, err)
			if len(found) < n {
				return "the lapse of all"
			}
			return ""
		})
		states, err := s.Tasks.States(ctx, ids)
		require.NoError(t, err)
		require.Len(t, states, n)

		// A write that does not match reads what is there now: without arguments, and the next
		// decision on it leaves them as they are.
		eff := lifecycle.ResolveOptions(model.Options{})
		stale := *found[0]
		stale.Rev--
		after := *found[0]
		after.Rev, after.Remark = after.Rev+1, "crossed"
		written, err := s.Tasks.Writes(ctx, []store.Write{{Before: &stale, After: &after}}, 0)
		require.NoError(t, err)
		now := written[0].Current
		require.NotNil(t, now)
		done, err := lifecycle.Finish(now, now.WorkerStates[0].ExecID, lifecycle.Success(bson.RawValue{}), eff, s.Clock.Now(), 0)
		require.NoError(t, err)
		written, err = s.Tasks.Writes(ctx, []store.Write{{Before: now, After: done}}, 0)
		require.NoError(t, err)
		require.True(t, written[0].Applied)
		ended := a.get(now.ID)
		require.Equal(t, model.StatusSuccess, ended.Status)
		require.Greater(t, len(ended.Args.Value), largeBytes)

		require.NoError(t, a.store.Control.Signal(ctx, ids[:2]...))
		others := make([]string, 5000)
		for i := range others {
			others[i] = strings.Repeat("y", 100)
		}
		require.NoError(t, a.store.Control.Signal(ctx, others...))
		named, err := s.Control.Signals(ctx, began.Add(-time.Minute), ids[1:])
		require.NoError(t, err)
		require.True(t, named[ids[1]])
		require.False(t, named[ids[2]])
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, q := range l.asked {
			require.Less(t, q.bytes, 100<<10, "%.300s", q.command)
		}
	})
}
