package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// byKey are the ids of tasks by their limit_key.
func (a *arena) byKey(ids []string) map[string][]string {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	of := map[string][]string{}
	for id, task := range tasks {
		of[task.Options.LimitKey] = append(of[task.Options.LimitKey], id)
	}
	return of
}

// keyInTurn gives each task one of n keys.
func keyInTurn(n int) func(int) []producer.Option {
	return func(i int) []producer.Option {
		return []producer.Option{producer.LimitKey(fmt.Sprint("customer ", i%n))}
	}
}

func TestARateOfEachLimitKeyHoldsInEverySpanWhileOthersGoOn(t *testing.T) {
	onEnginesInRealTime(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const keys, perSecond = 4, 10
		a.limit(func(typ *model.TaskType) {
			typ.KeyLimit = &model.KeyLimit{RateLimit: &model.RateLimit{Count: perSecond, Per: time.Second}}
		})
		ids := a.sendLimited(keys*perSecond*2, 1, keyInTurn(keys))
		for i := range 4 {
			a.limitedChild(fmt.Sprint("w", i))
		}
		a.awaitSuccess(ids)
		byKey := a.byKey(ids)
		require.Len(t, byKey, keys)
		var began, ended []time.Time
		for key, of := range byKey {
			spans := slices.DeleteFunc(a.spans(of), func(w model.WorkerState) bool { return w.FailKind == failkind.Released })
			require.Len(t, spans, len(of))
			for i := perSecond; i < len(spans); i++ {
				require.GreaterOrEqual(t, spans[i].ClaimedAt.Sub(spans[i-perSecond].ClaimedAt), time.Second,
					"%d executions of %s began within a second, from %v on", perSecond+1, key, spans[i-perSecond].ClaimedAt)
			}
			began, ended = append(began, spans[0].ClaimedAt), append(ended, spans[len(spans)-1].ClaimedAt)
		}
		t.Logf("%.1f a second and key, %.1f writes a task", float64(len(ids)-keys)/keys/slices.MaxFunc(ended, time.Time.Compare).Sub(slices.MinFunc(began, time.Time.Compare)).Seconds(), a.writesATask(ids))
		for _, end := range ended {
			for _, start := range began {
				require.True(t, start.Before(end), "a key waited for another: one began at %v, one was through at %v", start, end)
			}
		}
	}))
}

// writesATask is how often a task was changed, in the mean: each time that it is held back, or
// given its turn, is one.
func (a *arena) writesATask(ids []string) float64 {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	sum := int64(0)
	for _, task := range tasks {
		sum += task.Rev
	}
	return float64(sum) / float64(len(tasks))
}

func TestALimitOfTheTypeAndOneOfItsKeysHoldTogetherAndBothAreReached(t *testing.T) {
	onEnginesInRealTime(t, inDepth(func(t *testing.T, e Engine) {
		a := newArena(t, e)
		const ofType, ofKey = 3, 2
		a.limit(func(typ *model.TaskType) {
			typ.MaxRunning, typ.KeyLimit = ofType, &model.KeyLimit{MaxRunning: ofKey}
		})
		ids := a.sendLimited(60, 150, func(i int) []producer.Option {
			// The first three reach both limits; later a third of the first key often is the next.
			return []producer.Option{producer.LimitKey(fmt.Sprint("customer ", i%3/2))}
		})
		for i := range 4 {
			a.limitedChild(fmt.Sprint("w", i))
		}
		a.awaitSuccess(ids)
		sure, maybe := openAtOnce(a.runs(ids))
		require.LessOrEqual(t, sure, ofType, "of the type")
		require.GreaterOrEqual(t, maybe, ofType, "of the type")
		reached := 0
		for key, of := range a.byKey(ids) {
			sure, maybe := openAtOnce(a.runs(of))
			require.LessOrEqual(t, sure, ofKey, "of %s", key)
			reached = max(reached, maybe)
		}
		require.GreaterOrEqual(t, reached, ofKey, "three of two keys: one of them has two")
	}))
}
