package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Of the workers that claim a task at once, one wins. The task has a place for each of the others, too, but no event
// announces it.
func TestATaskForSeveralIdleWorkersIsClaimedByAllOfThem(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const workers, tasks = 4, 10
		g := newGauge(workers * tasks)
		_, start := crewAt(t, uri, db, workers, Config{}, map[string]func(*Task[int]){limitedType: func(*Task[int]) {
			g.during(func() { <-time.After(5 * time.Second) })
		}})
		start()
		<-time.After(time.Minute)
		for i := range tasks {
			putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
				task.Key, task.ID = fmt.Sprint(i), model.TaskID("", limitedType, fmt.Sprint(i))
				task.Options.ConcurrentWorkerCount, task.Audience = workers, []string{lifecycle.AudienceMany}
			})
			<-time.After(9 * time.Second)
			require.Equal(t, workers*(i+1), g.count())
		}
	})
}
