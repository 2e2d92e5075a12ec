package consumer

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestEndsGatherOnlyWhileManyMoreAreAboutToCome(t *testing.T) {
	c, _ := newQuiet(t, testdb.New(t), Config{Concurrency: 10})
	c.backlog.Store(true)
	c.held.running = 1
	for range 10 {
		require.Zero(t, c.lingerEnds(), "how quick they are is not known")
		c.plan.Ran(time.Millisecond)
	}
	require.Positive(t, c.lingerEnds(), "ten slots start 10,000 a second")
	quick := c.plan
	for why, change := range map[string]func(){
		"the last fetch found no more": func() { c.backlog.Store(false) },
		"tasks start slowly":           func() { c.plan = fetchplan.New(10, rand.New(rand.NewPCG(1, 1))) },
		"nothing runs":                 func() { c.held.running = 0 },
		"the worker stops":             c.requestStop,
	} {
		c.backlog.Store(true)
		c.plan, c.held.running = quick, 1
		change()
		require.Zero(t, c.lingerEnds(), why)
	}
}

// gathering is a worker whose ends gather without a limit of time, and a producer. It counts
// the commands that write ends. None runs out of its time.
func gathering(t *testing.T, concurrency int) (c *Consumer, p *producer.Producer, writes *atomic.Int64) {
	t.Helper()
	db := testdb.New(t)
	writes = &atomic.Int64{}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(t).URI()).SetMonitor(&event.CommandMonitor{
		Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			if call, ok := store.CallOf(ctx); ok && call.Purpose == store.Ending && e.CommandName == "update" {
				writes.Add(1)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, err = New(Config{Database: client.Database(db.Name()), Concurrency: concurrency, ShutdownTimeout: time.Minute})
	require.NoError(t, err)
	c.ends.Gather(func() time.Duration { return time.Hour })
	p, err = producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return c, p, writes
}

func runOn(t *testing.T, c *Consumer) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, c.Stop(context.Background()))
		require.NoError(t, <-done)
	})
}

func finished(t *testing.T, c *Consumer, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Finished >= n }, testdb.Patience, time.Millisecond)
}

func TestGatheredEndsAreWrittenWhenNoMoreAreAboutToCome(t *testing.T) {
	c, p, writes := gathering(t, 10)
	typ := model.NewType[int, int]("gathered")
	turn := make(chan struct{})
	require.NoError(t, Handle(c, typ, func(context.Context, *Task[int]) (int, error) { <-turn; return 0, nil }))
	for i := range 10 {
		_, err := producer.Send(t.Context(), p, typ, i)
		require.NoError(t, err)
	}
	runOn(t, c)
	require.Eventually(t, func() bool { return c.Stats().Running == 10 }, testdb.Patience, time.Millisecond)
	for range 9 {
		turn <- struct{}{}
	}
	require.Eventually(t, func() bool { return c.ends.Len() == 9 }, testdb.Patience, time.Millisecond)
	require.Zero(t, writes.Load(), "one handler runs")
	turn <- struct{}{}
	finished(t, c, 10)
	require.Equal(t, int64(1), writes.Load())
}

func TestAnEndThatOthersWaitForDoesNotGather(t *testing.T) {
	c, p, _ := gathering(t, 10)
	holding := make(chan struct{})
	require.NoError(t, Handle(c, model.NewType[int, int]("long"), func(context.Context, *Task[int]) (int, error) { <-holding; return 0, nil }))
	limited := model.NewType[int, int]("limited")
	require.NoError(t, Handle(c, limited, func(context.Context, *Task[int]) (int, error) { return 0, nil }))
	_, err := admin.New(p).PutType(t.Context(), model.TaskType{Code: limited.Name(), MaxRunning: 1})
	require.NoError(t, err)
	_, err = producer.Send(t.Context(), p, model.NewType[int, int]("long"), 0)
	require.NoError(t, err)
	for i := range 5 {
		_, err := producer.Send(t.Context(), p, limited, i)
		require.NoError(t, err)
	}
	runOn(t, c)
	finished(t, c, 5) // one after the other, each with the permit of the one before
	close(holding)
	finished(t, c, 6)
}
