package consumer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
)

// Nobody else looks for the retry of a worker that may not run the task again.
func TestATaskThatItsWorkerMayNotRetryGoesToAnIdleOneAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		var calls atomic.Int64
		g := newGauge(2)
		_, start := crewAt(t, uri, db, 2, Config{}, map[string]func(*Task[int]){limitedType: func(*Task[int]) {
			g.during(func() { <-time.After(5 * time.Second) }) // longer than a race for the claim
			if calls.Add(1) == 1 {
				panic("once")
			}
		}})
		start()
		<-time.After(5 * time.Minute)
		sent := time.Now()
		putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
			task.Options.MaxErrorsPerWorker = 1
			task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: time.Second}
		})
		g.await(t)
		require.Less(t, time.Since(sent), 12*time.Second)
	})
}
