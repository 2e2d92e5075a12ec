package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
)

// Beside a backlog of another type no slot is ever free. What a rate lets start gets the next that frees, and keeps it
// until its time has come.
func TestATypeWithARateStartsBesideABacklogOfOthers(t *testing.T) {
	rate := func(per time.Duration) *model.RateLimit { return &model.RateLimit{Count: 10, Per: per} }
	for _, tc := range []struct {
		name string
		typ  model.TaskType
		key  string
		work time.Duration // of the others
	}{
		{"a rate", model.TaskType{RateLimit: rate(time.Second)}, "", 20 * time.Millisecond},
		{"long handlers", model.TaskType{RateLimit: rate(10 * time.Second)}, "", 500 * time.Millisecond},
		{"a rate and a number", model.TaskType{RateLimit: rate(time.Second), MaxRunning: 2}, "", 20 * time.Millisecond},
		{"a rate of keys", model.TaskType{KeyLimit: &model.KeyLimit{RateLimit: rate(time.Second)}}, "k", 20 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				setup, _ := preparedAt(t, uri, db)
				const tasks, others, slots = 20, 3000, 4
				tc.typ.Code = limitedType
				require.NoError(t, setup.store.Types.Put(t.Context(), &tc.typ))
				putMany(t, setup, map[string]int{limitedType: tasks}, func(task *model.Task) { task.Options.LimitKey = tc.key })
				putMany(t, setup, map[string]int{"other": others}, nil)
				limited, other := newGauge(tasks), newGauge(others)
				crew, start := crewAt(t, uri, db, 1, Config{Concurrency: slots}, map[string]func(*Task[int]){
					limitedType: func(*Task[int]) { limited.during(func() {}) },
					"other":     func(*Task[int]) { other.during(func() { <-time.After(tc.work) }) },
				})
				began := time.Now()
				start()
				limited.await(t)
				took := time.Since(began)
				t.Logf("%v; %d of the others are done; %+v", took, other.count(), crew[0].Stats())
				r := tc.typ.RateLimit
				if r == nil {
					r = tc.typ.KeyLimit.RateLimit
				}
				floor := r.Per * tasks / time.Duration(r.Count)
				require.Less(t, took, 2*floor, "of what the rate allows")
				require.Greater(t, float64(other.count()), 0.7*float64(slots-1)*took.Seconds()/tc.work.Seconds(), "the others have the other slots")
			})
		})
	}
}

func TestATypeWithARateReachesItInTheOnlySlot(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const tasks = 50
		require.NoError(t, setup.store.Types.Put(t.Context(), &model.TaskType{Code: limitedType, RateLimit: &model.RateLimit{Count: 10, Per: time.Second}}))
		putMany(t, setup, map[string]int{limitedType: tasks}, nil)
		g := newGauge(tasks)
		_, start := crewAt(t, uri, db, 1, Config{Concurrency: 1}, map[string]func(*Task[int]){
			limitedType: func(*Task[int]) { g.during(func() { <-time.After(20 * time.Millisecond) }) },
		})
		began := time.Now()
		start()
		g.await(t)
		require.Less(t, time.Since(began), 7*time.Second, "the rate allows five")
	})
}

// A type that always lacks a slot is not the only one that gets it.
func TestTheOnlySlotGoesByTurns(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const tasks, work = 100, 200 * time.Millisecond
		require.NoError(t, setup.store.Types.Put(t.Context(), &model.TaskType{Code: limitedType, RateLimit: &model.RateLimit{Count: 100, Per: time.Second}}))
		putMany(t, setup, map[string]int{"other": tasks, limitedType: tasks}, nil)
		limited, other := newGauge(tasks), newGauge(tasks)
		_, start := crewAt(t, uri, db, 1, Config{Concurrency: 1}, map[string]func(*Task[int]){
			limitedType: func(*Task[int]) { limited.during(func() { <-time.After(work) }) },
			"other":     func(*Task[int]) { other.during(func() { <-time.After(work) }) },
		})
		start()
		<-time.After(20 * time.Second)
		t.Logf("%d limited, %d others", limited.count(), other.count())
		require.Greater(t, limited.count(), 35)
		require.Greater(t, other.count(), 35)
	})
}
