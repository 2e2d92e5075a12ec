package consumer

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

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
	// The two processes do not know the database's time exactly.
	require.Greater(t, w.ClaimedAt, task.CreatedAt.Add(-nap/2), "it was claimed as of a time before the nap")
	close(hold)
}

// What follows on a permit is prepared before the sleep, and claimed after it.
func TestAWorkerThatHasSleptClaimsWhatFollowsWithAWholeLease(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const tasks, nap = 20, 12 * time.Second
		limitTo(t, setup, 1)
		putMany(t, setup, map[string]int{limitedType: tasks}, nil)
		time.Sleep(time.Minute) // they are due for longer than the nap
		n, g, slept := testdb.NewSleeper(), newGauge(tasks), false
		var c crewmate
		crew, start := crewAt(t, uri, db, 1, Config{Clock: n}, map[string]func(*Task[int]){
			limitedType: func(*Task[int]) {
				g.during(func() {
					<-time.After(10 * time.Millisecond) // the work itself
					if !slept && c.hasSuccessor() {
						slept = true
						n.Sleep(nap)
					}
				})
			},
		})
		c = crew[0]
		began := time.Now()
		start()
		g.await(t)
		require.True(t, slept)
		for i := range tasks {
			task, err := setup.store.Tasks.Get(t.Context(), model.TaskID("", limitedType, strconv.Itoa(i)))
			require.NoError(t, err)
			require.Len(t, task.WorkerStates, 1)
			claimed := task.WorkerStates[0].ClaimedAt
			require.False(t, claimed.Before(began), "claimed %v before the worker began", began.Sub(claimed))
		}
	})
}
