package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var askedType = model.NewType[int, int]("asked")

// drainable is a database with workers of two slots, whose handlers wait for a turn.
type drainable struct {
	t    *testing.T
	cfg  Config
	st   *store.Store
	p    *producer.Producer
	sent int
	turn chan struct{}
}

func newDrainable(t *testing.T) *drainable {
	t.Helper()
	a := &drainable{t: t, cfg: Config{Database: testdb.New(t), WorkerID: "w", Concurrency: 2, ShutdownTimeout: time.Minute}, turn: make(chan struct{})}
	var err error
	a.st, err = store.Open(store.Config{Database: a.cfg.Database})
	require.NoError(t, err)
	require.NoError(t, a.st.Ready(t.Context()))
	require.NoError(t, a.st.ReadClock(t.Context()))
	a.p, err = producer.New(producer.Config{Database: a.cfg.Database})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.p.Close(context.Background())) })
	return a
}

// work starts the worker. ended gets what Run returns.
func (a *drainable) work() (c *Consumer, ended <-chan error) {
	a.t.Helper()
	c, err := New(a.cfg)
	require.NoError(a.t, err)
	require.NoError(a.t, Handle(c, askedType, func(context.Context, *Task[int]) (int, error) { <-a.turn; return 0, nil }))
	done := make(chan error, 1)
	go func() { done <- c.Run(context.Background()) }()
	require.Eventually(a.t, func() bool { w, err := a.st.Workers.Get(a.t.Context(), "w"); return err == nil && w != nil }, testdb.Patience, time.Millisecond)
	return c, done
}

func (a *drainable) send(n int) {
	a.t.Helper()
	for range n {
		a.sent++
		_, err := producer.Send(a.t.Context(), a.p, askedType, a.sent)
		require.NoError(a.t, err)
	}
}

// ask asks the worker, and lets half a minute pass for it.
func (a *drainable) ask(c *Consumer, drain store.Drain) {
	a.t.Helper()
	_, err := a.st.Workers.AskToDrain(a.t.Context(), "w", drain, a.st.Clock.Now())
	require.NoError(a.t, err)
	c.health.Trust.Doubt() // so that a heartbeat is due
	a.until("it has said so", func(w *store.Worker) bool { return w.Draining })
}

func (a *drainable) until(what string, is func(*store.Worker) bool) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		w, err := a.st.Workers.Get(a.t.Context(), "w")
		return err == nil && w != nil && is(w)
	}, testdb.Patience, 5*time.Millisecond, what)
}

func runs(c *Consumer, n int) func() bool {
	return func() bool { return c.held.count().running == n }
}

func TestADrainedWorkerFinishesWhatItHoldsAndClaimsNothingUntilItIsResumed(t *testing.T) {
	a := newDrainable(t)
	c, ended := a.work()
	a.send(1)
	require.Eventually(t, runs(c, 1), testdb.Patience, time.Millisecond)
	a.ask(c, store.Drain{Note: "a new kernel", By: "ann"})
	a.send(2)
	a.turn <- struct{}{}
	require.Eventually(t, func() bool { return c.Stats().Finished == 1 && c.held.count().all == 0 }, testdb.Patience, time.Millisecond)
	require.Eventually(t, func() bool {
		found, err := c.store.Tasks.Peek(t.Context(), store.Peek{Due: []string{"asked"}, Until: c.store.Clock.Now()})
		require.NoError(t, err)
		return found.Due
	}, testdb.Patience, time.Millisecond, "due by the worker's clock")
	full, err := c.fetch(t.Context())
	require.NoError(t, err)
	require.False(t, full)
	require.Zero(t, c.held.count().all, "two tasks are due, and it claims none")

	_, err = a.st.Workers.Undrain(t.Context(), "w", a.st.Clock.Now())
	require.NoError(t, err)
	c.health.Trust.Doubt()
	require.Eventually(t, runs(c, 2), testdb.Patience, time.Millisecond)
	close(a.turn)
	require.Eventually(t, func() bool { return c.Stats().Finished == 3 }, testdb.Patience, time.Millisecond)
	a.until("it says that it works", func(w *store.Worker) bool { return !w.Draining && w.Drain == nil })
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, inTime(t, ended))
}

func TestAWorkerThatIsAskedToStopReturnsWhenItHoldsNothing(t *testing.T) {
	a := newDrainable(t)
	c, ended := a.work()
	a.send(1)
	require.Eventually(t, runs(c, 1), testdb.Patience, time.Millisecond)
	a.ask(c, store.Drain{Stop: true})
	a.send(1)
	select {
	case err := <-ended:
		require.Fail(t, "it runs a task", "%v", err)
	case a.turn <- struct{}{}:
	}
	require.NoError(t, inTime(t, ended), "as after Stop")
	require.EqualValues(t, 1, c.Stats().Finished)
	w, err := a.st.Workers.Get(t.Context(), "w")
	require.NoError(t, err)
	require.Nil(t, w, "as by any graceful stop")
}

// The request was for the process that was killed: its successor would stop as soon as it starts, and again and again.
func TestAWorkerThatStartsAgainUnderItsNameWorks(t *testing.T) {
	a := newDrainable(t)
	require.NoError(t, a.st.Workers.Heartbeat(t.Context(), store.Worker{ID: "w", Types: []string{"asked"}}), "a process that is killed soon")
	_, err := a.st.Workers.AskToDrain(t.Context(), "w", store.Drain{Stop: true}, a.st.Clock.Now())
	require.NoError(t, err)
	c, ended := a.work()
	a.send(1)
	require.Eventually(t, runs(c, 1), testdb.Patience, time.Millisecond)
	a.until("the request is over", func(w *store.Worker) bool { return w.Drain == nil })
	close(a.turn)
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, inTime(t, ended))
}

func TestAServiceMayRefuseToBeDrained(t *testing.T) {
	a := newDrainable(t)
	a.cfg.NoDrain = true
	c, ended := a.work()
	_, err := a.st.Workers.AskToDrain(t.Context(), "w", store.Drain{}, a.st.Clock.Now())
	var refused *store.WorkerRefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "the worker w does not accept drain requests; stop its process instead", err.Error())
	c.asked(&store.Drain{Stop: true}) // one that was asked by another release
	a.send(1)
	require.Eventually(t, runs(c, 1), testdb.Patience, time.Millisecond)
	close(a.turn)
	require.NoError(t, c.Stop(t.Context()))
	require.NoError(t, inTime(t, ended))
}
