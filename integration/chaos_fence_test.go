package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestAPingThatCrossesAnEndChangesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		for round := range e.Of(60, 20) {
			ids := a.send(20)
			tasks, err := a.store.Tasks.ByIDs(t.Context(), ids)
			require.NoError(t, err)
			exec := fmt.Sprintf("exec-%d", round)
			var ends []store.Write
			var pings []store.Ping
			var claims []store.Write
			for _, id := range ids {
				eff := lifecycle.ResolveOptions(tasks[id].Options)
				claimed, no := lifecycle.Claim(tasks[id], lifecycle.Claimant{WorkerID: "w", ExecID: exec}, eff, tasks[id].DueAt)
				require.Empty(t, no)
				claims = append(claims, store.Write{Before: tasks[id], After: claimed})
				done, err := lifecycle.Finish(claimed, exec, lifecycle.Success(bson.RawValue{}), eff, tasks[id].DueAt, 0)
				require.NoError(t, err)
				ends = append(ends, store.Write{Before: claimed, After: done})
				pings = append(pings, store.Ping{ID: id, ExecID: exec, Index: 0, Until: time.Now().Add(time.Hour)})
			}
			a.write(claims)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for _, p := range pings {
						_, err := a.store.Tasks.Pings(t.Context(), []store.Ping{p}, 0)
						require.NoError(t, err)
					}
					_, err := a.store.Tasks.Pings(t.Context(), slices.Clone(pings), 0) // it notes there which it missed
					require.NoError(t, err)
				})
			}
			wg.Go(func() {
				for i := range ends {
					a.write(ends[i : i+1])
				}
			})
			wg.Wait()
			tasks, err = a.store.Tasks.ByIDs(t.Context(), ids)
			require.NoError(t, err)
			for _, id := range ids {
				require.Equal(t, model.StatusSuccess, tasks[id].Status)
				require.True(t, tasks[id].LapseAt.IsZero(), inWords(tasks[id]))
			}
		}
	})
}

// A frozen worker that wakes up after its task was taken over and is still executed by
// the heir: whatever it writes is refused, it hears of that, and the heir's lease ends
// when the heir's pings say so.
func TestAnExecutionThatWasTakenOverWritesNothingMore(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(1)
		a.abandon(ids, "dead", time.Second)
		var heir *model.Task
		awaitTrue(t, func() string {
			before := a.get(ids[0])
			now := a.store.Clock.Now()
			eff := lifecycle.ResolveOptions(before.Options)
			expired := lifecycle.Expire(before, eff, now, 0)
			if expired == nil {
				return "the lapse"
			}
			after, no := lifecycle.Claim(expired, lifecycle.Claimant{WorkerID: "heir", ExecID: "heir's"}, eff, now)
			require.Empty(t, no)
			after.Rev = before.Rev + 1
			var err error
			heir, err = a.store.Tasks.TakeOver(t.Context(), store.Write{Before: before, After: after, Lapsed: "abandoned-by-dead", At: now})
			require.NoError(t, err)
			require.NotNil(t, heir)
			return ""
		})
		late := store.Ping{ID: ids[0], ExecID: "abandoned-by-dead", Index: 0, Until: a.store.Clock.Now().Add(time.Hour)}
		mine := store.Ping{ID: ids[0], ExecID: "heir's", Index: 1, Until: a.store.Clock.Now().Add(40 * time.Second)}
		lost, err := a.store.Tasks.Pings(t.Context(), []store.Ping{late, mine}, 0)
		require.NoError(t, err)
		require.Equal(t, []store.Ping{late}, lost)
		value, err := codec.EncodeValue("checkpoint", 1, input.MaxCheckpointBytes)
		require.NoError(t, err)
		for _, many := range []bool{false, true} {
			require.ErrorIs(t, a.store.Tasks.SaveCheckpoint(t.Context(), ids[0], 0, "abandoned-by-dead", many, value), model.ErrFenced)
		}
		require.ErrorIs(t, a.store.Tasks.SaveProgress(t.Context(), ids[0], 0, "abandoned-by-dead", model.Progress{Message: "late"}), model.ErrFenced)
		require.NoError(t, a.store.Tasks.SaveCheckpoint(t.Context(), ids[0], 1, "heir's", false, value))
		require.NoError(t, a.store.Tasks.SaveProgress(t.Context(), ids[0], 1, "heir's", model.Progress{Message: "mine"}))
		task := a.get(ids[0])
		require.True(t, task.LapseAt.Equal(mine.Until), inWords(task))
		require.Equal(t, "mine", task.Progress.Message)
	})
}

// Two leases of a task for two workers lapsed, and one of them was pinged after the
// finder had looked: neither is ended, since the finder must look again.
func TestAPingedExecutionIsNotEndedWithAnotherThatLapsed(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		for _, single := range []bool{true, false} {
			a := newArena(t, e)
			ids := a.send(1, producer.ConcurrentWorkers(2))
			a.abandon(ids, "dead", time.Second)
			a.abandon(ids, "slow", time.Second)
			seen := a.get(ids[0])
			eff := lifecycle.ResolveOptions(seen.Options)
			now := seen.WorkerStates[1].PingExpireTime
			expired := lifecycle.Expire(seen, eff, now, 0)
			require.Equal(t, 2, expired.LapseCount)
			lost, err := a.store.Tasks.Pings(t.Context(), []store.Ping{{ID: ids[0], ExecID: "abandoned-by-slow", Index: 1, Many: true, Until: now.Add(time.Hour)}}, 0)
			require.NoError(t, err)
			require.Empty(t, lost)
			write := store.Write{Before: seen, After: expired, Lapsed: "abandoned-by-dead", At: now}
			if single {
				after, err := a.store.Tasks.TakeOver(t.Context(), write)
				require.NoError(t, err)
				require.Nil(t, after)
			} else {
				written, err := a.store.Tasks.Writes(t.Context(), []store.Write{write}, 0)
				require.NoError(t, err)
				require.False(t, written[0].Applied)
			}
			again := lifecycle.Expire(a.get(ids[0]), eff, now, 0)
			require.Equal(t, 1, again.LapseCount, "only the dead one")
			require.True(t, a.write([]store.Write{{Before: seen, After: again, Lapsed: "abandoned-by-dead", At: now}})[0].Applied)
			require.Equal(t, 1, lifecycle.OpenExecutions(a.get(ids[0])))
		}
	})
}

// The answers of a batch of takeovers, and of the look at what became of it, are lost.
func TestABatchOfTakeoversIsHeldAlthoughItsAnswersAreLost(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		ids := a.send(10)
		a.abandon(ids, "dead", time.Second)
		written := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "claimed_at", Do: proxy.CutAfter})
		read := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Contains: ids[3], Skip: 1, Do: proxy.CutAfter})
		done := newEffects()
		a.hire("heir", done.handle, through(away))
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		require.Equal(t, 1, written.Sprung())
		require.Equal(t, 1, read.Sprung())
		for _, id := range ids {
			require.Equal(t, 1, a.get(id).LapseCount, "a second lease was lost")
		}
	})
}
