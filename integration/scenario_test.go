package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

// What the scenarios of the product's promises use beside the arena.

type handleWork = func(context.Context, *consumer.Task[int]) (int, error)

// double is a handler that succeeds.
func double(_ context.Context, task *consumer.Task[int]) (int, error) { return 2 * task.Args, nil }

// sendKey sends one task with arguments and a key.
func (a *arena) sendKey(key string, args int, opts ...producer.Option) producer.Sent {
	a.t.Helper()
	sent, err := producer.Send(a.t.Context(), a.p, chaosWork, args, append(opts, producer.Key(key))...)
	require.NoError(a.t, err)
	return sent
}

// await waits until the task is as wanted, and returns it.
func (a *arena) await(id, what string, ok func(*model.Task) bool) (found *model.Task) {
	a.t.Helper()
	a.awaitEach([]string{id}, what, func(task *model.Task) bool {
		found = task
		return ok(task)
	})
	return found
}

func (a *arena) awaitStatus(id string, s model.Status) *model.Task {
	a.t.Helper()
	return a.await(id, string(s), func(task *model.Task) bool { return task.Status == s })
}

// awaitCount waits until so many tasks have the status.
func (a *arena) awaitCount(s model.Status, n int64) {
	a.t.Helper()
	a.awaitCountOf(chaosWork.Name(), s, n)
}

func (a *arena) awaitCountOf(typ string, s model.Status, n int64) {
	a.t.Helper()
	awaitTrue(a.t, func() string {
		counts, err := a.admin.Counts(a.t.Context(), admin.Filter{})
		require.NoError(a.t, err)
		if got := counts[typ][s]; got != n {
			return fmt.Sprintf("%d tasks of type %s in status %s; there are %d", n, typ, s, got)
		}
		return ""
	})
}

// drain runs a worker until nothing is left to do, delays included, and reports.
func (a *arena) drain(handle handleWork, opts ...mstest.DrainOption) consumer.Drained {
	a.t.Helper()
	c, err := consumer.New(consumer.Config{Database: a.db, WorkerID: "drainer"})
	require.NoError(a.t, err)
	require.NoError(a.t, consumer.Handle(c, chaosWork, handle))
	return mstest.Drain(a.t, c, append(opts, mstest.Within(3*chaosPatience))...)
}

// argsOf are the arguments a task is stored with.
func argsOf(t *testing.T, task *model.Task) (args int) {
	t.Helper()
	require.NoError(t, codec.DecodeValue(task.Args, &args))
	return args
}

// resultOf is the result a task is stored with.
func resultOf(t *testing.T, task *model.Task) (result int) {
	t.Helper()
	require.NoError(t, codec.DecodeValue(task.Result, &result))
	return result
}

// gate is where handlers wait until the test lets them go on.
type gate struct {
	inside chan string // ids of tasks, as their handlers come in
	open   chan struct{}
}

func newGate() *gate { return &gate{inside: make(chan string, 100_000), open: make(chan struct{})} }

// enter waits for the gate, or for the end of the handler's context, whose cause it
// returns.
func (g *gate) enter(ctx context.Context, task *consumer.Task[int]) error {
	g.inside <- task.TaskID
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handle is a handler that succeeds once the gate is open.
func (g *gate) handle(ctx context.Context, task *consumer.Task[int]) (int, error) {
	return 2 * task.Args, g.enter(ctx, task)
}

// awaitInside waits until n handlers have come in and returns their tasks' ids.
func (g *gate) awaitInside(t *testing.T, n int) []string {
	t.Helper()
	ids := make([]string, 0, n)
	for range n {
		ids = append(ids, receive(t, g.inside, "a handler at the gate"))
	}
	return ids
}

// receive waits for a value.
func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(chaosPatience):
		require.Fail(t, "waited in vain", "for %s", what)
		panic("unreachable")
	}
}

// narrow lets a worker run n handlers at once.
func narrow(n int) func(*handConfig) { return func(c *handConfig) { c.Concurrency = n } }

// polling lets a worker do without the change stream.
func polling(c *handConfig) { c.NoStream = true }

// retries is a fixed delay and a budget.
func retries(most int, delay time.Duration) producer.Option {
	return producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: delay, MaxErrors: new(most)})
}
