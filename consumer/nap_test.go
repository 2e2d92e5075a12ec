package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// The estimate of the database's time lags by the sleep. Leases that counted from it would be over already.
func TestAWorkerThatHasSleptClaimsWithWholeLeases(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	n := testdb.NewSleeper()
	c, sent := newQuiet(t, db, Config{Clock: n})
	hold, begun := make(chan struct{}), make(chan struct{}, 1)
	typ := model.NewType[int, int]("held")
	require.NoError(t, Handle(c, typ, func(context.Context, *Task[int]) (int, error) { begun <- struct{}{}; <-hold; return 0, nil }))
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	const nap, lease = 12 * time.Second, 10 * time.Second // no lease is left after the nap
	slept := false
	sent.watch(func(command string) {
		if command == "getMore" && !slept { // it waits for events
			slept = true
			n.Sleep(nap)
			_, err := producer.Send(context.Background(), p, typ, 1, producer.Key("k"), producer.Lease(3*time.Second, lease), producer.At(time.Now().Add(-time.Hour)))
			if err != nil {
				panic(err)
			}
		}
	})
	runOn(t, c)
	testdb.Receive(t, begun)
	task, err := p.Get(t.Context(), "-/held/k")
	require.NoError(t, err)
	require.Len(t, task.WorkerStates, 1)
	w := task.WorkerStates[0]
	require.False(t, w.ClaimedAt.Before(task.CreatedAt), "claimed %v before it was sent", task.CreatedAt.Sub(w.ClaimedAt))
	close(hold)
}
