package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
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

// It alone knew when.
func TestARetryOfAWorkerThatStopsGoesToAnIdleOneInTime(t *testing.T) {
	for name, long := range map[string]bool{"at once": false, "after a long handler": true} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				setup, _ := preparedAt(t, uri, db)
				var calls atomic.Int64
				failed, ran := make(chan struct{}), newGauge(2)
				crew, start := crewAt(t, uri, db, 2, Config{}, map[string]func(*Task[int]){limitedType: func(task *Task[int]) {
					if task.Key == "long" {
						<-time.After(40 * time.Second)
						return
					}
					ran.during(func() { <-time.After(5 * time.Second) }) // longer than a race for the claim
					if calls.Add(1) == 1 {
						close(failed)
						panic("once")
					}
				}})
				start()
				<-time.After(5 * time.Minute)
				putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
					task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: 3 * time.Second}
				})
				<-failed
				<-time.After(time.Second)
				for _, m := range crew {
					if m.Stats().ClaimsWon == 0 {
						continue
					}
					if long {
						putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
							task.Key, task.ID = "long", model.TaskID("", limitedType, "long")
							task.Options.SpecificWorkerIDs = []string{m.cfg.WorkerID}
						})
						<-time.After(100 * time.Millisecond)
					}
					m.cfg.ShutdownTimeout = time.Minute
					go func() { _ = m.Stop(context.Background()) }() // the handler of the other task may go on
				}
				stopped := time.Now()
				ran.await(t)
				require.Less(t, time.Since(stopped), 12*time.Second)
			})
		})
	}
}

// It has refused the task, and does not look at it again by itself.
func TestAWorkerThatMayRetryATaskAfterAnUpdateDoesSoAtOnce(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		ran := newGauge(2)
		var calls atomic.Int64
		_, start := crewAt(t, uri, db, 1, Config{}, map[string]func(*Task[int]){limitedType: func(*Task[int]) {
			ran.during(func() {})
			if calls.Add(1) == 1 {
				panic("once")
			}
		}})
		start()
		<-time.After(time.Minute)
		putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
			task.Options.MaxErrorsPerWorker = 1
			task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: time.Second}
		})
		<-time.After(time.Minute + 7*time.Second)
		require.EqualValues(t, 1, calls.Load())
		updated := time.Now()
		_, _, err := setup.store.Tasks.Change(t.Context(), model.TaskID("", limitedType, "0"), func(task *model.Task) (*model.Task, error) {
			options := task.Options
			options.MaxErrorsPerWorker = 2
			return lifecycle.Update(task, lifecycle.Patch{Options: &options}, model.Options{}, setup.store.Clock.Now())
		})
		require.NoError(t, err)
		ran.await(t)
		require.Less(t, time.Since(updated), 2*time.Second)
	})
}

// The worker that finds that the time is over may be the one that may not run the task again.
func TestATaskWhoseTimeIsOverGoesToAnIdleOneThatMayRunIt(t *testing.T) {
	for name, first := range map[string]func(*Task[int]) error{
		"parked": func(task *Task[int]) error { return Park(task.Now().Add(3 * time.Second)) },
		"past its deadline": func(*Task[int]) error {
			<-time.After(20 * time.Second)
			return nil
		},
	} {
		for run := range 4 { // who finds it is chance
			t.Run(fmt.Sprint(name, " ", run), func(t *testing.T) {
				virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
					setup, _ := preparedAt(t, uri, db)
					var calls atomic.Int64
					again := make(chan struct{})
					crew, start := crewAt(t, uri, db, 2, Config{}, nil)
					for _, m := range crew {
						require.NoError(t, Handle(m.Consumer, model.NewType[int, int](limitedType), func(_ context.Context, task *Task[int]) (int, error) {
							if calls.Add(1) == 1 {
								return 0, first(task)
							}
							close(again)
							return 0, nil
						}))
					}
					start()
					<-time.After(5 * time.Minute)
					sent := time.Now()
					putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
						task.Options.MaxErrorsPerWorker = 1
						task.Options.ExecutionTimeout = 3 * time.Second
						task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: 5 * time.Second}
					})
					<-again
					took := time.Since(sent)
					<-time.After(time.Minute) // no handler is left
					require.Less(t, took, 19*time.Second, "after 12 s its finder knows that the lease is over")
				})
			})
		}
	}
}

// It looks for nothing more, and its other handlers may run for long.
func TestARetryThatBeginsDuringAStopOrADrainGoesToAnIdleOneInTime(t *testing.T) {
	for name, leave := range map[string]func(c *Consumer){
		"stop":  func(c *Consumer) { go func() { _ = c.Stop(context.Background()) }() },
		"drain": func(c *Consumer) { c.asked(&store.Drain{}) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				setup, _ := preparedAt(t, uri, db)
				var calls atomic.Int64
				began, again := make(chan struct{}), make(chan struct{})
				crew, start := crewAt(t, uri, db, 2, Config{}, map[string]func(*Task[int]){limitedType: func(task *Task[int]) {
					switch {
					case task.Key == "long":
						<-time.After(50 * time.Second)
					case calls.Add(1) == 1:
						close(began)
						<-time.After(3 * time.Second)
						panic("once")
					default:
						close(again)
					}
				}})
				start()
				<-time.After(5 * time.Minute)
				putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
					task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: 3 * time.Second}
				})
				<-began
				for _, m := range crew {
					if m.held.count().running == 0 {
						continue
					}
					putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) {
						task.Key, task.ID = "long", model.TaskID("", limitedType, "long")
						task.Options.SpecificWorkerIDs = []string{m.cfg.WorkerID}
					})
					<-time.After(time.Second)
					m.cfg.ShutdownTimeout = time.Minute
					leave(m.Consumer)
				}
				left := time.Now()
				<-again
				took := time.Since(left)
				<-time.After(time.Minute) // no handler is left
				require.Less(t, took, 8*time.Second)
			})
		})
	}
}
