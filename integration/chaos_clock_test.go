package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// wrong is a machine's clock whose wall time is off, and can be set.
type wrong struct {
	mu  sync.Mutex
	off time.Duration
}

func (w *wrong) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return clock.System().Now().Add(w.off)
}

func (w *wrong) Monotonic() time.Duration { return clock.System().Monotonic() }

func (w *wrong) jump(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off += d
}

func withClock(c model.Clock) func(*handConfig) {
	return func(h *handConfig) { h.Clock = c }
}

// serverTime is what the database's clock says now, read by a write.
func (a *arena) serverTime() time.Time {
	a.t.Helper()
	st, err := store.Open(store.Config{Database: a.db})
	require.NoError(a.t, err)
	require.NoError(a.t, st.ReadClock(context.Background()))
	return st.Clock.Now()
}

// Every time counts from the database's clock, so a worker whose own is an hour off
// neither starts early nor takes what is held.
func TestWorkersWhoseClocksAreAnHourApartStartNothingEarlyAndHoldNothingTwice(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		done := newEffects()
		var mu sync.Mutex
		early := map[string]time.Duration{}
		work := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if ahead := task.DueAt.Sub(a.serverTime()); ahead > 0 {
				mu.Lock()
				early[task.TaskID] = ahead
				mu.Unlock()
			}
			done.begin(task.TaskID)
			defer done.end(task.TaskID)
			if task.Args%10 == 0 {
				t := time.NewTimer(5 * time.Second) // longer than its lease: it is kept by pings
				defer t.Stop()
				select {
				case <-t.C:
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			return 1, nil
		}
		var hands []*hand
		for i, off := range []time.Duration{-time.Hour, 0, time.Hour} {
			hands = append(hands, a.hire(fmt.Sprintf("clock-%d", i), work, withClock(&wrong{off: off})))
		}
		now := a.send(30, seconds(3))
		soon := a.send(30, seconds(3), producer.In(2*time.Second))
		ids := append(append([]string{}, now...), soon...)
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		mu.Lock()
		require.Empty(t, early, "started early, by the database's clock")
		mu.Unlock()
		for _, id := range ids {
			task := a.get(id)
			require.Zero(t, task.LapseCount+task.ErrorCount, inWords(task))
			require.False(t, task.WorkerStates[0].ClaimedAt.Before(task.StartTime), inWords(task))
			require.WithinDuration(t, a.serverTime(), task.WorkerStates[0].ClaimedAt, time.Minute, "stamped by a wrong clock")
		}
		for _, h := range hands {
			require.Zero(t, h.Stats().Takeovers)
		}
	})
}

// The wall clock is set back and forth under a worker that holds tasks. Set forward it might
// mean that the machine slept, so the worker pings before it gives its tasks up. It keeps
// them, and no other worker takes them over.
func TestAWallClockThatJumpsStartsNothingEarlyAndHoldsNothingTwice(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				own := &wrong{}
				done := newEffects()
				goOn := make(chan struct{})
				work := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					done.begin(task.TaskID)
					select {
					case <-goOn:
						done.end(task.TaskID)
						return 1, nil
					case <-ctx.Done():
						done.abort(task.TaskID)
						return 0, ctx.Err()
					}
				}
				h := a.hire("jumping", work, withClock(own))
				ids := a.send(10, seconds(3))
				h.events.await(t, workerevent.Started, 10)
				other := a.hire("steady", work)
				later := a.send(5, seconds(3), producer.In(3*time.Second))
				own.jump(jump)
				a.awaitEach(later, "running", func(task *model.Task) bool { return lifecycle.OpenExecutions(task) == 1 })
				close(goOn)
				a.awaitSuccess(append(ids, later...))
				done.requireOnce(t, append(ids, later...))
				for _, id := range append(ids, later...) {
					task := a.get(id)
					require.Zero(t, task.LapseCount+task.ErrorCount, inWords(task))
					for _, w := range task.WorkerStates {
						require.False(t, w.ClaimedAt.Before(task.StartTime), "claimed early: %s", inWords(task))
					}
					require.Len(t, task.WorkerStates, 1, "given up for nothing: %s", inWords(task))
				}
				require.Zero(t, h.Stats().Takeovers+other.Stats().Takeovers)
				require.Empty(t, h.events.all(workerevent.LeaseLost))
			})
		})
	}
}

// abort takes a begin back: the handler stopped before it had its effect.
func (f *effects) abort(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[id]--
}
