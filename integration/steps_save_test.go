package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A value that cannot be saved cannot be saved the next time either.
func TestAStepThatCannotBeSavedEndsTheTask(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		var tried atomic.Int32
		a.hire("w", func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
			for i := range 10 {
				if _, err := consumer.Step(ctx, fmt.Sprint("s", i), func(context.Context) (string, error) {
					tried.Add(1)
					return strings.Repeat("x", 900_000), nil
				}); err != nil {
					return 0, fmt.Errorf("while filling: %w", err)
				}
			}
			return 1, nil
		})
		sent := a.sendKey("k", 0, retries(5, 0))
		task := a.awaitStatus(sent.ID, model.StatusFailure)
		require.Contains(t, task.ErrorInfo, "at most 4194304 are allowed")
		require.Equal(t, 1, task.ErrorCount)
		require.Len(t, task.Steps, 4)
		require.EqualValues(t, 5, tried.Load())
	})
}

// The write of a step is cut off, or only its answer: it is asked for again, and saved once.
func TestAStepWhoseWriteIsCutOffIsSavedOnce(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		for cut, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
			for _, n := range []int{1, 2} {
				e.part(t, fmt.Sprintf("%s the server, %d workers", cut, n), func(t *testing.T, e Engine) {
					a := newArena(t, e)
					px, away := a.behind()
					trap := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "step-to-lose", Do: action})
					var o once
					handle := func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
						return consumer.Step(ctx, "step-to-lose", o.adds("done", 5))
					}
					for i := range n {
						a.hire(fmt.Sprint("w", i), handle, through(away))
					}
					sent := a.sendKey("k", 0, producer.ConcurrentWorkers(n))
					task := a.awaitStatus(sent.ID, model.StatusSuccess)
					require.Equal(t, 1, trap.Sprung(), "the write never came")
					require.Equal(t, 5, resultOf(t, task))
					require.Len(t, o.all(), n)
					require.Len(t, task.Steps, n)
					require.Zero(t, task.ErrorCount)
				})
			}
		}
	})
}

func TestStepsOfAProcessShareRoundTrips(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		n := e.Of(1000, 200)
		var commands, together atomic.Int64 // together are the steps of the largest command
		var reached sync.WaitGroup          // the first command is sent when each handler has a step to save
		reached.Add(n)
		client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, ev *event.CommandStartedEvent) {
				if ev.CommandName == "update" && strings.Contains(ev.Command.Lookup("updates").String(), `"$push"`) {
					statements, _ := ev.Command.Lookup("updates").Array().Values()
					commands.Add(1)
					together.Store(max(together.Load(), int64(len(statements))))
					reached.Wait()
				}
			},
		}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		g := newGate()
		a.hire("w", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if err := g.enter(ctx, task); err != nil {
				return 0, err
			}
			return consumer.Step(ctx, "one", func(context.Context) (int, error) {
				reached.Done()
				return task.Args, nil
			})
		}, narrow(n), func(c *handConfig) { c.Database = client.Database(a.db.Name()) })
		ids := a.send(n)
		g.awaitInside(t, n)
		close(g.open)
		a.awaitSuccess(ids)
		t.Logf("%d steps in %d commands, of %d steps at most", n, commands.Load(), together.Load())
		// A server that is too slow for a command gets its halves. So the number of commands says nothing.
		require.GreaterOrEqual(t, together.Load(), int64(n/4), "each step would be a command of its own")
	})
}
