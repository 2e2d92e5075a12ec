package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/control"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// promptly is within what people are promised, for what a command must reach. It is asked for where time is virtual:
// elsewhere it goes by the server and the machine, and that the command arrives at all is what counts.
const promptly = 2 * time.Second

// Times are those that the database keeps.
func TestACancelReachesABusyWorkerWithinTwoSeconds(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		causes := make(chan error, 10)
		a.hire("busy", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			err := g.enter(ctx, task)
			causes <- err
			return 0, err
		}, narrow(5))
		ids := a.send(5)
		g.awaitInside(t, 5)
		for _, id := range ids {
			_, err := a.p.Cancel(t.Context(), id, "not wanted")
			require.NoError(t, err)
			require.ErrorIs(t, receive(t, causes, "the end of the handler"), consumer.ErrCancelled)
			task := a.awaitStatus(id, model.StatusCancelled)
			require.Equal(t, "not wanted", task.Remark)
			require.Equal(t, failkind.Cancelled, task.WorkerStates[0].FailKind)
			require.Zero(t, task.ErrorCount)
			if e.virtual() {
				require.LessOrEqual(t, task.WorkerStates[0].FailTime.Sub(task.CancelRequestedAt), promptly)
			}
		}
	})
}

func TestACancelledTaskThatSucceedsAllTheSameIsASuccess(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			_ = g.enter(ctx, task)
			return 7, nil
		})
		id := a.send(1)[0]
		g.awaitInside(t, 1)
		_, err := a.p.Cancel(t.Context(), id, "too late")
		require.NoError(t, err)
		require.Equal(t, 7, resultOf(t, a.awaitStatus(id, model.StatusSuccess)))
	})
}

func TestATaskThatNobodyRunsIsCancelledAtOnceAndNeverRuns(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		sent := a.sendKey("k", 1)
		task, err := a.p.Cancel(t.Context(), sent.ID, "not wanted")
		require.NoError(t, err)
		require.Equal(t, model.StatusCancelled, task.Status)
		require.Zero(t, a.drain(double).Executions)
		_, err = producer.Await(t.Context(), a.p, chaosWork, sent)
		var cancelled *model.TaskError
		require.ErrorAs(t, err, &cancelled)
		require.Equal(t, "not wanted", cancelled.Info)
	})
}

// The worker is busy, so it watches no stream, and has more work than it can do.
func TestAPauseReachesABusyWorkerWithinTwoSecondsAndAResumeWakesIt(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(3000, 600)
		ids := a.send(n)
		var quick atomic.Bool
		h := a.hire("busy", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if !quick.Load() {
				select { // it works
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
			return 0, nil
		}, narrow(2), rarely)
		h.events.await(t, workerevent.Finished, 20)
		require.NoError(t, a.admin.Pause(t.Context(), chaosWork.Name()))
		require.NoError(t, a.store.ReadClock(t.Context()))
		paused := a.store.Clock.Now()
		awaitTrue(t, func() string {
			if h.Stats().Held > 0 {
				return "the end of what was claimed"
			}
			return ""
		})
		var last time.Time
		started := 0
		for _, c := range h.events.all(workerevent.Claimed) {
			started++
			if c.At.After(last) {
				last = c.At
			}
		}
		require.Less(t, started, n, "there was more to do")
		if e.virtual() {
			require.LessOrEqual(t, last.Sub(paused), promptly, "claimed long after the pause")
		}

		quick.Store(true)
		require.NoError(t, a.admin.Resume(t.Context(), chaosWork.Name()))
		a.awaitSuccess(ids)
	})
}

// A search that waits for a slow database ends after the pause was stored. What it found is not claimed by what was
// known of pauses before.
func TestAPauseIsSeenAfterASearchThatTookLong(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		id := a.send(1)[0]
		px, away := a.behind()
		search := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Contains: "audience", Lacks: "$or", Do: proxy.HoldAfter})
		h := a.hire("w", double, through(away))
		receive(t, search.Hit(), "the search")
		require.NoError(t, a.admin.Pause(t.Context(), chaosWork.Name()))
		time.Sleep(2 * control.MaxAge)
		search.Release()
		awaitTrue(t, func() string {
			if search.Sprung() == 0 || h.Stats().Fetches == 0 {
				return "a search that ends"
			}
			return ""
		})
		time.Sleep(2 * control.MaxAge)
		require.Equal(t, model.StatusNew, a.get(id).Status)
		require.Empty(t, h.events.all(workerevent.Claimed))
		require.NoError(t, a.admin.Resume(t.Context(), chaosWork.Name()))
		a.awaitStatus(id, model.StatusSuccess)
	})
}

func TestAPauseOfOneTypeLeavesTheOthersAlone(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		other := model.NewType[int, int]("other")
		require.NoError(t, a.admin.Pause(t.Context(), chaosWork.Name()))
		h := a.hire("w", nil, func(c *handConfig) {
			c.register = func(c *consumer.Consumer) error {
				if err := consumer.Handle(c, other, double); err != nil {
					return err
				}
				return consumer.Handle(c, chaosWork, double)
			}
		})
		paused := a.send(3)
		for i := range 3 {
			sent, err := producer.Send(t.Context(), a.p, other, i)
			require.NoError(t, err)
			_, err = producer.Await(t.Context(), a.p, other, sent)
			require.NoError(t, err)
		}
		require.Len(t, h.events.all(workerevent.Claimed), 3)
		require.NoError(t, a.admin.Resume(t.Context(), chaosWork.Name()))
		a.awaitSuccess(paused)
	})
}

// A worker may claim by what it read of pauses within the last second. A resume that
// comes meanwhile must not wait for the next poll.
func TestAResumeRightAfterAWorkerSawThePauseIsNotMissed(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		needStreams(t, e)
		a := newArena(t, e)
		var looks atomic.Int64
		client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{
			Succeeded: func(_ context.Context, c *event.CommandSucceededEvent) {
				if c.CommandName == "find" && strings.HasSuffix(c.Reply.Lookup("cursor", "ns").StringValue(), ".control") {
					looks.Add(1)
				}
			},
		}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		h := a.hire("idle", double, rarely, through(client.Database(a.db.Name())))
		awaitWatching(t, h, 1)
		require.NoError(t, a.admin.Pause(t.Context(), chaosWork.Name()))
		var ids []string
		for before := looks.Load(); looks.Load() == before; { // until it has seen the pause
			ids = append(ids, a.send(1)...)
		}
		ids = append(ids, a.send(1)...) // this one it must not claim yet
		require.NoError(t, a.admin.Resume(t.Context(), chaosWork.Name()))
		a.awaitSuccess(ids)
	})
}

// One handler returns when it is told to stop, another goes on, and a third task was
// claimed ahead. The first and the third run elsewhere while the second still runs here.
func TestAGracefulStopGivesBackAtOnceWhatHasReturned(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		obedient, stubborn := newGate(), newGate()
		first := a.hire("first", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == 1 {
				return 0, obedient.enter(ctx, task)
			}
			return 1, stubborn.enter(context.WithoutCancel(ctx), task)
		}, func(c *handConfig) { c.ShutdownTimeout = -1 }, narrow(2))
		gives, goes := a.sendKey("gives", 1), a.sendKey("goes", 2)
		obedient.awaitInside(t, 1)
		stubborn.awaitInside(t, 1)
		stopped := make(chan error, 1)
		go func() { stopped <- first.stop() }()
		a.hire("second", double)
		task := a.awaitStatus(gives.ID, model.StatusSuccess)
		require.Equal(t, []string{"second"}, successesOf(task))
		require.Equal(t, failkind.Released, task.WorkerStates[0].FailKind)
		require.Zero(t, task.ErrorCount+task.LapseCount)
		require.Equal(t, 1, task.Attempt, "it cost nothing")
		require.Equal(t, model.StatusExecuting, a.get(goes.ID).Status)
		close(stubborn.open)
		require.NoError(t, receive(t, stopped, "the end of the worker"))
		task = a.awaitStatus(goes.ID, model.StatusSuccess)
		require.Equal(t, []string{"first"}, successesOf(task))
	})
}

// The worker has claimed ahead, since the first tasks were quick.
func TestAStopWaitsForHandlersAndGivesBackWhatHasNotStarted(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		ids := a.send(e.Of(1000, 300))
		g := newGate()
		quick := atomic.Int64{}
		quick.Store(int64(e.Of(300, 100)))
		first := a.hire("first", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if quick.Add(-1) >= 0 {
				return 0, nil
			}
			return 1, g.enter(ctx, task)
		}, narrow(2), func(c *handConfig) { c.ShutdownTimeout = chaosPatience })
		running := g.awaitInside(t, 2)
		t.Logf("%d claimed ahead", first.Stats().Held-2)
		stopped := make(chan error, 1)
		go func() { stopped <- first.stop() }()
		a.hire("second", double)
		a.awaitCount(model.StatusSuccess, int64(len(ids)-2))
		for _, id := range running {
			require.Equal(t, model.StatusExecuting, a.get(id).Status)
		}
		close(g.open)
		require.NoError(t, receive(t, stopped, "the end of the worker"))
		a.awaitSuccess(ids)
		tasks, err := a.store.Tasks.ByIDs(t.Context(), ids)
		require.NoError(t, err)
		for id, task := range tasks {
			require.Zero(t, task.LapseCount+task.ErrorCount, id)
			require.Equal(t, 1, task.Attempt, id)
		}
		for _, id := range running {
			require.Equal(t, []string{"first"}, successesOf(tasks[id]))
		}
	})
}

func TestAHandlerThatIgnoresItsContextIsNotRunTwice(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		g := newGate()
		done := newEffects()
		handle := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			done.begin(task.TaskID)
			defer done.end(task.TaskID)
			return 1, g.enter(context.WithoutCancel(ctx), task)
		}
		first := a.hire("first", handle)
		id := a.send(1, a.seconds(3))[0]
		g.awaitInside(t, 1)
		cut, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, first.Stop(cut)) // nobody waits for handlers
		err := first.stop()
		var left *consumer.LeftError
		require.ErrorAs(t, err, &left)
		require.Len(t, left.Executions, 1)
		require.Contains(t, left.Executions[0], id)
		first.stop = func() error { return nil } // that was it

		second := a.hire("second", handle)
		claimed := a.get(id).WorkerStates[0].ClaimedAt
		task := a.await(id, "pinged until long after its first lease", func(task *model.Task) bool {
			return task.WorkerStates[0].PingExpireTime.Sub(claimed) > a.lease(8*time.Second)
		})
		require.Len(t, task.WorkerStates, 1)
		close(g.open)
		a.awaitStatus(id, model.StatusSuccess)
		done.requireOnce(t, []string{id})
		require.Empty(t, second.events.all(workerevent.Started))
	})
}
