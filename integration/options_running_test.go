package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A change of options while a handler runs holds from the next claim (seed 004). The first
// handler fails at the gate; what the task is then, and what becomes of it, goes by the
// options that it was claimed with.
func TestOptionsThatChangeWhileItRunsHoldFromTheNextClaim(t *testing.T) {
	told := func(url string) producer.Option {
		target := &model.CallbackTarget{URL: url}
		return producer.Callback(model.Callback{Success: target, Error: target})
	}
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for name, row := range map[string]struct {
			claimed, changed []producer.Option
			succeeds         bool
			want             model.Status
			attempts         int
			also             func(t *testing.T, a *arena, task *model.Task)
		}{
			"more retries":  {claimed: []producer.Option{retries(0, 0)}, changed: []producer.Option{retries(5, 0)}, want: model.StatusFailure, attempts: 1},
			"fewer retries": {claimed: []producer.Option{retries(5, 0)}, changed: []producer.Option{retries(0, 0)}, want: model.StatusFailure, attempts: 2},
			"fewer errors of a worker": {
				claimed: []producer.Option{retries(5, 0), producer.Workers("w")}, changed: []producer.Option{producer.MaxErrorsPerWorker(1)}, want: model.StatusFailure, attempts: 2,
			},
			"manual processing": {claimed: []producer.Option{retries(0, 0)}, changed: []producer.Option{producer.NeedManual(true)}, want: model.StatusFailure, attempts: 1},
			"manual processing, from the next claim": {
				claimed: []producer.Option{retries(1, 0)}, changed: []producer.Option{producer.NeedManual(true)}, want: model.StatusPending, attempts: 2,
			},
			"a callback that is new": {
				claimed: []producer.Option{producer.Callback(model.Callback{})}, changed: []producer.Option{told("http://nobody.invalid/")},
				succeeds: true, want: model.StatusSuccess, attempts: 1,
			},
			"a callback that is gone": {
				claimed: []producer.Option{told("http://nobody.invalid/")}, changed: []producer.Option{producer.Callback(model.Callback{})},
				succeeds: true, want: model.StatusCompleted, attempts: 1,
				also: func(t *testing.T, a *arena, task *model.Task) {
					target, _ := lifecycle.CallbackOf(task, model.Options{})
					require.Equal(t, "http://nobody.invalid/", target.URL)
					_, err := a.admin.Redeliver(t.Context(), task.ID, 0)
					require.NoError(t, err)
				},
			},
			"retention": {
				claimed: []producer.Option{producer.Retention(time.Hour)}, changed: []producer.Option{producer.Retention(48 * time.Hour)},
				succeeds: true, want: model.StatusSuccess, attempts: 1,
				also: func(t *testing.T, _ *arena, task *model.Task) {
					require.Equal(t, time.Hour, task.ArchiveAt.Sub(task.FinishedAt))
				},
			},
		} {
			e.part(t, name, func(t *testing.T, e Engine) {
				a := newArena(t, e)
				g := newGate()
				a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
					if task.Attempt == 1 {
						_ = g.enter(ctx, task)
					}
					if row.succeeds {
						return 1, nil
					}
					return 0, errNo
				})
				id := a.sendKey("k", 1, row.claimed...).ID
				g.awaitInside(t, 1)
				_, err := a.p.Update(t.Context(), id, row.changed...)
				require.NoError(t, err)
				close(g.open)
				task := a.await(id, "its end", func(task *model.Task) bool { return task.Status.Ended() })
				require.Equal(t, row.want, task.Status, inWords(task))
				require.Equal(t, row.attempts, task.Attempt)
				if row.also != nil {
					row.also(t, a, task)
				}
			})
		}
	})
}

// Also where it is somebody else who says how the execution ended.
func TestOptionsThatChangeWhileItIsParkedHoldFromTheNextClaim(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		handles := make(chan string, 1)
		a.hire("w", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			handles <- task.Handle
			return 0, consumer.Park(time.Now().Add(time.Hour))
		})
		id := a.sendKey("k", 1, retries(0, time.Second)).ID
		handle := receive(t, handles, "the handle")
		a.await(id, "parked", func(task *model.Task) bool { return task.WorkerStates[0].Parked })
		_, err := a.p.Update(t.Context(), id, retries(5, time.Hour), producer.NeedManual(true))
		require.NoError(t, err)
		task, err := a.p.Fail(t.Context(), handle, "no", producer.Failure{})
		require.NoError(t, err)
		require.Equal(t, model.StatusFailure, task.Status)
	})
}

// A lapse is judged by the claim of the worker that died; the takeover is the next claim.
func TestOptionsThatChangeBeforeALapseHoldFromTheTakeover(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.sendKey("k", 1, producer.MaxLapses(1), seconds(30)).ID
		a.abandon([]string{id}, "dead", 1500*time.Millisecond)
		_, err := a.p.Update(t.Context(), id, producer.MaxLapses(0), retries(0, 0), producer.NeedManual(true))
		require.NoError(t, err)
		a.hire("heir", fails)
		task := a.awaitStatus(id, model.StatusPending)
		require.Equal(t, 1, task.LapseCount)
		require.Equal(t, 1, task.ErrorCount, "the heir ran it")
	})
}

// While nobody runs the task a change holds at once, and undoes what waited for a claim.
func TestOptionsThatChangeWhileItWaitsForItsRetryHoldAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			_ = g.enter(ctx, task)
			return 0, errors.New("no")
		})
		id := a.sendKey("k", 1, retries(5, time.Hour)).ID
		g.awaitInside(t, 1)
		_, err := a.p.Update(t.Context(), id, retries(3, time.Hour))
		require.NoError(t, err)
		_, changed := lifecycle.OptionsAtClaim(a.get(id))
		require.True(t, changed)
		close(g.open)
		a.awaitStatus(id, model.StatusError)
		task, err := a.p.Update(t.Context(), id, retries(0, time.Hour))
		require.NoError(t, err)
		require.Equal(t, model.StatusFailure, task.Status)
		_, changed = lifecycle.OptionsAtClaim(task)
		require.False(t, changed)
	})
}

// The seed names two exceptions: an execution ends when the filter no longer names its worker,
// and a new ping interval counts from the next ping.
func TestTheWorkerFilterAndThePingIntervalReachARunningExecution(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		h := a.hire("w", g.handle)
		id := a.sendKey("k", 1, producer.Lease(20*time.Second, 40*time.Second)).ID
		g.awaitInside(t, 1)
		first := a.get(id).WorkerStates[0].PingExpireTime
		_, err := a.p.Update(t.Context(), id, producer.Lease(200*time.Millisecond, 40*time.Second))
		require.NoError(t, err)
		a.await(id, "pinged long before it was due", func(task *model.Task) bool {
			at := task.WorkerStates[0].PingExpireTime
			return at.After(first) && at.Before(first.Add(19*time.Second)) // the old interval is 20 s
		})
		_, err = a.p.Update(t.Context(), id, producer.Workers("another"))
		require.NoError(t, err)
		a.await(id, "given back", func(task *model.Task) bool { return lifecycle.OpenExecutions(task) == 0 })
		task := a.get(id)
		require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
		require.Equal(t, "the worker filter no longer names this worker", task.WorkerStates[0].FailReason, "the task itself goes on")
		require.Zero(t, task.ErrorCount)
		require.NoError(t, h.stop())
	})
}
