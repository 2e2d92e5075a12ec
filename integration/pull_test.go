package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

func (a *arena) fetch(r pull.FetchRequest) []pull.Fetched {
	a.t.Helper()
	if r.WorkerID == "" {
		r.WorkerID = "puller"
	}
	if len(r.Types) == 0 && len(r.Categories) == 0 {
		r.Types = []string{chaosWork.Name()}
	}
	got, err := a.puller.Fetch(a.t.Context(), r)
	require.NoError(a.t, err)
	return got
}

// fetchUntil fetches until there are so many, as a worker that polls: what was sent a
// moment ago may be due a millisecond from now.
func (a *arena) fetchUntil(n int, r pull.FetchRequest) (got []pull.Fetched) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		got = append(got, a.fetch(r)...)
		if len(got) < n {
			return fmt.Sprintf("%d tasks; there are %d", n, len(got))
		}
		return ""
	})
	require.Len(a.t, got, n)
	return got
}

// before makes a task due since that long.
func before(d time.Duration) producer.Option { return producer.At(time.Now().Add(-d)) }

func keysOf(got []pull.Fetched) (keys []string) {
	for _, f := range got {
		keys = append(keys, f.Task.Key)
	}
	return keys
}

func TestAFetchedTaskIsPingedCompletedFailedOrGivenBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ctx := t.Context()
		require.Empty(t, a.fetch(pull.FetchRequest{}), "nothing is there")
		for i, key := range []string{"low", "high", "other", "later"} {
			opts := []producer.Option{producer.Priority(5 + i%2), retries(1, 10*time.Millisecond), before(time.Hour - time.Duration(i)*time.Minute)}
			if key == "later" {
				opts = append(opts, producer.In(time.Hour))
			}
			a.sendKey(key, i, opts...)
		}
		got := a.fetch(pull.FetchRequest{Max: 10, Lease: time.Minute})
		require.Equal(t, []string{"high", "low", "other"}, keysOf(got), "the greatest priority first, then the longest due")
		require.Equal(t, "1", string(got[0].Args))
		require.Empty(t, a.fetch(pull.FetchRequest{Max: 10}), "all are held")
		for _, f := range got {
			require.Equal(t, model.StatusExecuting, a.get(f.Task.ID).Status)
			require.Equal(t, "puller", f.Task.WorkerStates[0].WorkerID)
			require.WithinDuration(t, f.Task.WorkerStates[0].ClaimedAt.Add(time.Minute), f.Until, time.Millisecond)
		}
		pinged, err := a.puller.Ping(ctx, got[0].Handle)
		require.NoError(t, err)
		require.False(t, pinged.Until.Before(got[0].Until), "a ping never shortens a lease")

		task, err := a.puller.Complete(ctx, got[0].Handle, 42)
		require.NoError(t, err)
		require.Equal(t, model.StatusSuccess, task.Status)
		task, err = a.puller.Fail(ctx, got[1].Handle, "it broke", producer.Failure{})
		require.NoError(t, err)
		require.Equal(t, model.StatusError, task.Status)
		for range 2 {
			task, err = a.puller.GiveBack(ctx, got[2].Handle, "the worker stops")
			require.NoError(t, err)
			require.Equal(t, model.StatusNew, task.Status)
			require.Zero(t, task.ErrorCount)
			require.Equal(t, "the worker stops", task.WorkerStates[0].FailReason)
		}
		again := a.fetchUntil(2, pull.FetchRequest{Max: 10})
		require.ElementsMatch(t, []string{"low", "other"}, keysOf(again), "the retry and what was given back")
		_, err = a.puller.Complete(ctx, got[2].Handle, 1)
		require.ErrorIs(t, err, model.ErrFenced)
		_, err = a.puller.GiveBack(ctx, got[0].Handle, "too late")
		require.ErrorIs(t, err, model.ErrFenced)
	})
}

func TestAFetchHonoursPausesFiltersConditionsAndTypes(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		put := func(typ model.TaskType) {
			_, err := a.admin.PutType(t.Context(), typ)
			require.NoError(t, err)
		}
		put(model.TaskType{Code: chaosWork.Name(), Category: "mine", ClaimBy: model.ClaimByTenant, Options: model.Options{NeedManual: new(true), Retry: &model.Retry{Strategy: model.RetryNone}}})
		put(model.TaskType{Code: "limited", MaxRunning: 1})
		acme := a.sendKey("acme", 1, producer.Tenant("acme"), producer.Creator("ann"), before(time.Hour))
		a.sendKey("beta", 1, producer.Tenant("beta"), before(time.Hour))
		a.sendKey("named", 1, producer.Workers("somebody"), before(time.Hour))
		two := a.sendKey("two", 1, producer.ConcurrentWorkers(2), before(time.Hour))
		for range 3 {
			_, err := a.p.SendJSON(t.Context(), "limited", nil)
			require.NoError(t, err)
			_, err = a.p.SendJSON(t.Context(), "keyed", nil, producer.LimitKey("k"))
			require.NoError(t, err)
		}

		for _, typ := range []string{"limited", "keyed"} { // one at a time, whoever fetches
			for range 3 {
				one := a.fetchUntil(1, pull.FetchRequest{Types: []string{typ}, Max: 10})[0]
				require.Empty(t, a.fetch(pull.FetchRequest{WorkerID: "second", Types: []string{typ}, Max: 10}))
				_, err := a.puller.Complete(t.Context(), one.Handle, nil)
				require.NoError(t, err)
			}
		}
		require.NoError(t, a.admin.Pause(t.Context(), chaosWork.Name()))
		require.Empty(t, a.fetch(pull.FetchRequest{Max: 10}))
		require.NoError(t, a.admin.Resume(t.Context(), chaosWork.Name()))
		require.Empty(t, a.fetch(pull.FetchRequest{Types: []string{"another"}, Max: 10}))
		require.Empty(t, a.fetch(pull.FetchRequest{Categories: []string{"theirs"}, Max: 10}))

		got := a.fetch(pull.FetchRequest{Tenants: []string{"acme"}, Creators: []string{"ann", "bob"}, Max: 10})
		require.Equal(t, []string{"acme"}, keysOf(got))
		task, err := a.puller.Fail(t.Context(), got[0].Handle, "no", producer.Failure{})
		require.NoError(t, err)
		require.Equal(t, model.StatusPending, task.Status, "as its type says")
		require.Equal(t, acme.ID, task.ID)

		got = a.fetch(pull.FetchRequest{Categories: []string{"mine"}, Max: 10})
		require.ElementsMatch(t, []string{"beta", "two"}, keysOf(got), "every type that has tasks of the category")
		require.Empty(t, a.fetch(pull.FetchRequest{Max: 10}), "this worker holds it")
		require.Equal(t, []string{"two"}, keysOf(a.fetch(pull.FetchRequest{WorkerID: "second", Max: 10})))
		require.Equal(t, 2, lifecycle.OpenExecutions(a.get(two.ID)))
		require.Equal(t, []string{"named"}, keysOf(a.fetch(pull.FetchRequest{WorkerID: "somebody", Max: 10})))
	})
}

func TestNoTwoFetchesGetTheSameTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(1000, 200)
		a.send(n, before(time.Hour))
		var mu sync.Mutex
		seen := map[string]int{}
		var workers sync.WaitGroup
		for w := range 8 {
			workers.Go(func() {
				for empty := 0; empty < 3; {
					got, err := a.puller.Fetch(t.Context(), pull.FetchRequest{WorkerID: fmt.Sprint("w", w), Types: []string{chaosWork.Name()}, Max: 20})
					if err != nil {
						t.Error(err)
						return
					}
					if len(got) == 0 {
						empty++
					}
					for _, f := range got {
						mu.Lock()
						seen[f.Task.ID]++
						mu.Unlock()
						if _, err := a.puller.Complete(t.Context(), f.Handle, nil); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		workers.Wait()
		for _, f := range a.fetch(pull.FetchRequest{Max: 1000}) { // what all eight happened to lose
			seen[f.Task.ID]++
		}
		require.Len(t, seen, n)
		for id, times := range seen {
			require.Equal(t, 1, times, id)
		}
	})
}

func TestAFetchTakesOverWhatLapsedAndTheLateResultIsRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent := a.sendKey("k", 1, producer.Lease(300*time.Millisecond, time.Second))
		first := a.fetchUntil(1, pull.FetchRequest{WorkerID: "first"})
		second := a.fetchUntil(1, pull.FetchRequest{WorkerID: "second"})
		require.Equal(t, sent.ID, second[0].Task.ID)
		require.Equal(t, 1, second[0].Task.LapseCount)
		require.Greater(t, second[0].Token.String(), first[0].Token.String())
		require.False(t, second[0].Task.WorkerStates[1].ClaimedAt.Before(first[0].Until))
		_, err := a.puller.Complete(t.Context(), first[0].Handle, 1)
		require.ErrorIs(t, err, model.ErrFenced)
		_, err = a.puller.Ping(t.Context(), first[0].Handle)
		require.ErrorIs(t, err, model.ErrFenced)
		_, err = a.puller.Complete(t.Context(), second[0].Handle, 2)
		require.NoError(t, err)
		require.Equal(t, 2, resultOf(t, a.awaitStatus(sent.ID, model.StatusSuccess)))
	})
}

// A task that the server lets nobody claim does not stand before the others in each fetch.
func TestAFetchLeavesOutWhatCannotBeWritten(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		closed := a.tight("closed", "puller", -20)
		for i := range 10 {
			a.sendKey(fmt.Sprint(i), i)
		}
		a.fetchUntil(1, pull.FetchRequest{})
		for range 9 {
			require.Len(t, a.fetch(pull.FetchRequest{}), 1)
		}
		require.Equal(t, model.StatusNew, a.get(closed).Status)
	})
}

func TestABadFetchIsRefusedWithItsFieldNamed(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		for field, r := range map[string]pull.FetchRequest{
			"worker_id":   {Types: []string{"t"}},
			"types":       {WorkerID: "w"},
			"types[1]":    {WorkerID: "w", Types: []string{"t", "a/b"}},
			"max":         {WorkerID: "w", Types: []string{"t"}, Max: 1001},
			"lease":       {WorkerID: "w", Types: []string{"t"}, Lease: time.Millisecond},
			"tenants[0]":  {WorkerID: "w", Types: []string{"t"}, Tenants: []string{""}},
			"creators[0]": {WorkerID: "w", Types: []string{"t"}, Creators: []string{""}},
		} {
			_, err := a.puller.Fetch(t.Context(), r)
			require.ErrorIs(t, err, model.ErrInvalid, field)
			require.ErrorContains(t, err, field+" ")
		}
		_, err := a.puller.GiveBack(t.Context(), "nonsense", "")
		require.ErrorIs(t, err, model.ErrInvalid)
	})
}
