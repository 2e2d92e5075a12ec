package integration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A type that may run once at a time in this process goes on with its next task when
// one has returned, not at the next poll.
func TestALimitedTypeGoesOnAsSoonAsItsSlotIsFree(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(20)
		done := newEffects()
		began := time.Now()
		a.hire("narrow", done.handle, func(c *handConfig) {
			c.options = []consumer.HandleOption{consumer.MaxConcurrency(1)}
			c.PollInterval = time.Hour
		})
		a.awaitSuccess(ids)
		done.requireOnce(t, ids)
		if e.virtual() { // elsewhere the machine may be slow
			require.Less(t, time.Since(began), 15*time.Second, "twenty tasks of no length; a poll each would take longer")
		}
	})
}

// More tasks than a worker can remember that it must not have stand before one it may.
func TestTasksThatAWorkerMayNotHaveDoNotBlockTheOthers(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(600, 300)
		bad := a.send(n, producer.Priority(9), producer.MaxErrorsPerWorker(1), producer.Retry(model.Retry{
			Strategy: model.RetryFixed, Interval: time.Millisecond}))
		var errorsSeen atomic.Int64
		h := a.hire("broken", func(_ context.Context, task *consumer.Task[int]) (int, error) {
			if task.Attempt == 1 && task.Args >= 0 && a.isBad(task) {
				errorsSeen.Add(1)
				return 0, errors.New("this machine cannot do it")
			}
			return 1, nil
		})
		a.awaitEach(bad, "failed once", func(task *model.Task) bool { return task.ErrorCount == 1 })
		good := a.send(3, producer.Priority(1))
		a.awaitSuccess(good)
		require.EqualValues(t, n, errorsSeen.Load())
		before := h.Stats().Fetches
		time.Sleep(2 * time.Second) // the span of the measurement: nothing is waited for
		require.Less(t, h.Stats().Fetches-before, int64(100), "it asks without end for what it may not have")
	})
}

func (a *arena) isBad(task *consumer.Task[int]) bool { return a.priority(task.TaskID) == 9 }

func (a *arena) priority(id string) int { return a.get(id).Priority }

// A worker that stops while the database is away, with a claim of which it does not
// know whether it was won, does not wait for the database for ever.
func TestAStopDuringAnOutageEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		cut := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "claimed_at", Do: proxy.HoldAfter})
		done := newEffects()
		h := a.hire("unsure", done.handle, through(away))
		ids := a.send(1, a.seconds(1))
		<-cut.Hit()
		px.Cut()
		h.events.await(t, workerevent.Outage, 1)
		stopped := make(chan error, 1)
		go func() { stopped <- h.stop() }()
		select {
		case err := <-stopped:
			require.NoError(t, err)
		case <-time.After(chaosPatience):
			px.Mend() // so that the test can end
			require.Fail(t, "the worker waits for the database")
		}
		heir := a.hire("heir", done.handle)
		a.awaitSuccess(ids)
		require.NoError(t, heir.stop())
		done.requireOnce(t, ids)
	})
}

// A cancel whose signal was seen between a claim and its answer is not lost.
func TestACancelThatCrossesAClaimReachesTheHandler(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		h := a.hire("busy", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}, through(away), func(c *handConfig) { c.ShutdownTimeout = -1 })
		a.send(1) // so that it reads the control document while the claim is under way
		h.events.await(t, workerevent.Started, 1)
		held := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "claimed_at", Do: proxy.HoldAfter})
		second, err := producer.Send(t.Context(), a.p, chaosWork, 1)
		require.NoError(t, err)
		<-held.Hit()
		_, err = a.p.Cancel(t.Context(), second.ID, "not wanted any more")
		require.NoError(t, err)
		signalsRead := px.Set(proxy.Rule{Command: "find", Collection: "signals", Do: proxy.Pass})
		<-signalsRead.Hit()
		versionsRead := px.Set(proxy.Rule{Command: "find", Collection: "control", Skip: 1, Do: proxy.Pass})
		<-versionsRead.Hit()
		held.Release()
		// Its handler may not have started: then it never does.
		require.Equal(t, second.ID, h.events.await(t, workerevent.Cancelled, 1).TaskID)
		ended := h.events.await(t, workerevent.Finished, 1)
		require.Equal(t, second.ID, ended.TaskID)
		require.Equal(t, failkind.Cancelled, ended.Outcome)
	})
}
