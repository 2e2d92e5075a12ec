package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func TestAPingThatCrossesAnEndChangesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		for round := range e.Of(60, 20) {
			ids := a.send(20)
			tasks, err := a.store.ByIDs(t.Context(), ids)
			require.NoError(t, err)
			exec := fmt.Sprintf("exec-%d", round)
			var ends []store.Write
			var pings []store.Ping
			var claims []store.Write
			for _, id := range ids {
				eff := model.ResolveOptions(tasks[id].Options)
				claimed, no := model.Claim(tasks[id], model.Claimant{WorkerID: "w", ExecID: exec}, eff, tasks[id].DueAt)
				require.Empty(t, no)
				claims = append(claims, store.Write{Before: tasks[id], After: claimed})
				done, err := model.Finish(claimed, exec, model.Success(bson.RawValue{}), eff, tasks[id].DueAt, 0)
				require.NoError(t, err)
				ends = append(ends, store.Write{Before: claimed, After: done})
				pings = append(pings, store.Ping{ID: id, ExecID: exec, Index: 0, Until: time.Now().Add(time.Hour)})
			}
			_, err = a.store.Writes(t.Context(), claims, 0)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for _, p := range pings {
						_, err := a.store.Pings(t.Context(), []store.Ping{p}, 0)
						require.NoError(t, err)
					}
					_, err := a.store.Pings(t.Context(), pings, 0)
					require.NoError(t, err)
				})
			}
			wg.Go(func() {
				for i := range ends {
					_, err := a.store.Writes(t.Context(), ends[i:i+1], 0)
					require.NoError(t, err)
				}
			})
			wg.Wait()
			tasks, err = a.store.ByIDs(t.Context(), ids)
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
			eff := model.ResolveOptions(before.Options)
			expired := model.Expire(before, eff, now, 0)
			if expired == nil {
				return "the lapse"
			}
			after, no := model.Claim(expired, model.Claimant{WorkerID: "heir", ExecID: "heir's"}, eff, now)
			require.Empty(t, no)
			after.Rev = before.Rev + 1
			var err error
			heir, err = a.store.TakeOver(t.Context(), store.Write{Before: before, After: after, Lapsed: "abandoned-by-dead", At: now})
			require.NoError(t, err)
			require.NotNil(t, heir)
			return ""
		})
		late := store.Ping{ID: ids[0], ExecID: "abandoned-by-dead", Index: 0, Until: a.store.Clock.Now().Add(time.Hour)}
		mine := store.Ping{ID: ids[0], ExecID: "heir's", Index: 1, Until: a.store.Clock.Now().Add(40 * time.Second)}
		lost, err := a.store.Pings(t.Context(), []store.Ping{late, mine}, 0)
		require.NoError(t, err)
		require.Equal(t, []store.Ping{late}, lost)
		value, err := model.EncodeValue("checkpoint", 1, model.MaxCheckpointBytes)
		require.NoError(t, err)
		for _, many := range []bool{false, true} {
			require.ErrorIs(t, a.store.SaveCheckpoint(t.Context(), ids[0], 0, "abandoned-by-dead", many, value), model.ErrFenced)
		}
		require.ErrorIs(t, a.store.SaveProgress(t.Context(), ids[0], 0, "abandoned-by-dead", model.Progress{Message: "late"}), model.ErrFenced)
		require.NoError(t, a.store.SaveCheckpoint(t.Context(), ids[0], 1, "heir's", false, value))
		require.NoError(t, a.store.SaveProgress(t.Context(), ids[0], 1, "heir's", model.Progress{Message: "mine"}))
		task := a.get(ids[0])
		require.True(t, task.LapseAt.Equal(mine.Until), inWords(task))
		require.Equal(t, "mine", task.Progress.Message)
	})
}
