package integration

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestATaskSentBeforeAnyWorkerStartedIsFound(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(10)
		done := newEffects()
		a.hire("late", done.handle, rarely)
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
	})
}

// The polls are an hour apart: only the stream can tell.
func TestATaskSentToAnIdleWorkerIsFoundThroughTheStream(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		h := a.hire("idle", double, rarely)
		awaitWatching(t, h, 1)
		for range 5 {
			a.awaitSuccess(a.send(1)) // one after the other, so that it is idle before each
		}
	})
}

func TestATaskSentToAnIdleWorkerIsFoundByPolling(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		h := a.hire("idle", double, polling)
		for range 3 {
			a.awaitSuccess(a.send(1))
		}
		require.Empty(t, h.events.all(workerevent.Stream))
	})
}

// longestStall is far above what any pause between two tasks of a backlog should be,
// and far below what a lost wake-up costs, which is a poll of an hour here.
const longestStall = 20 * time.Second

func TestAHundredThousandPreloadedTasksDrainWithoutAStall(t *testing.T) {
	onEnginesAlone(t, withoutRace(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(100_000, 3_000)
		for left := n; left > 0; left -= 20_000 {
			a.send(min(left, 20_000))
		}
		var total atomic.Int64
		done := make(chan struct{})
		handle := func(context.Context, *consumer.Task[int]) (int, error) {
			if total.Add(1) == int64(n) {
				close(done)
			}
			return 0, nil
		}
		began := time.Now()
		for _, id := range []string{"one", "two"} {
			a.hire(id, handle, narrow(50), rarely)
		}
		for seen, running := int64(0), true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(longestStall):
				now := total.Load()
				require.Greater(t, now, seen, "nothing has started for %v, with %d of %d done", longestStall, now, n)
				seen = now
			}
		}
		a.awaitCount(model.StatusSuccess, int64(n))
		require.EqualValues(t, n, total.Load(), "each ran once")
		t.Logf("%d tasks in %v", n, time.Since(began).Round(time.Millisecond))
	}))
}

func TestTenLongTasksAtTheHeadDoNotBlockTheRest(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		long := a.send(10, producer.Priority(9))
		short := a.send(e.Of(500, 100))
		isLong := func(id string) bool { return slices.Contains(long, id) }
		g := newGate()
		done := newEffects()
		handle := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if isLong(task.TaskID) {
				return 0, g.enter(ctx, task)
			}
			return done.handle(ctx, task)
		}
		// Together they have two slots more than there are long tasks; one of the two
		// workers has no slot left for anything else.
		a.hire("one", handle, narrow(6))
		a.hire("two", handle, narrow(6))
		require.ElementsMatch(t, long, g.awaitInside(t, 10))
		a.awaitSuccess(short)
		done.requireOnce(t, short)
		for _, id := range long {
			require.Equal(t, model.StatusExecuting, a.get(id).Status)
		}
		close(g.open)
		a.awaitSuccess(long)
	})
}

// The worker hears of nothing, and its polls are an hour apart: only the start times that it has seen wake
// it. Where time is virtual nothing keeps it from its timers, which are a millisecond late: a second is what other looks
// would need. Elsewhere the server and the machine may keep it for as long as they like, and that all tasks start, and
// none early, is what counts.
func TestAStartTimeIsNeverEarlyAndMetWithinASecond(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var ids []string
		for i := range 9 {
			ids = append(ids, a.send(1, producer.In(5*time.Second+time.Duration(i)*300*time.Millisecond))...)
		}
		a.hire("polling", double, polling, rarely)
		a.awaitSuccess(ids)
		for _, id := range ids {
			task := a.get(id)
			late := task.WorkerStates[0].ClaimedAt.Sub(task.StartTime)
			require.GreaterOrEqual(t, late, time.Duration(0), "it started early")
			if e.virtual() {
				require.LessOrEqual(t, late, 10*time.Millisecond)
			}
		}
	})
}

func TestAHeldTaskRunsWhenItIsReleased(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		a.hire("w", double)
		sent := a.sendKey("k", 1, producer.Held())
		a.awaitSuccess(a.send(3)) // it works
		require.Equal(t, model.StatusWait, a.get(sent.ID).Status)
		_, err := a.p.Release(t.Context(), sent.ID)
		require.NoError(t, err)
		a.awaitStatus(sent.ID, model.StatusSuccess)
	})
}
