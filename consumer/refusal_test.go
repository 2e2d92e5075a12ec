package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// The other worker stops and gives the task back, so an event offers it to the one that still runs it.
func TestAWorkerRetriesATaskInTimeThatWasOfferedWhileItRanIt(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		crew, start := crewAt(t, uri, db, 2, Config{}, nil)
		typ, ran, calls := model.NewType[int, int]("several"), newGauge(2), atomic.Int64{}
		require.NoError(t, Handle(crew[0].Consumer, typ, func(context.Context, *Task[int]) (int, error) {
			first := calls.Add(1) == 1
			ran.during(func() { <-time.After(5 * time.Second) })
			if first {
				return 0, errors.New("once")
			}
			return 0, nil
		}))
		require.NoError(t, Handle(crew[1].Consumer, typ, func(ctx context.Context, _ *Task[int]) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}))
		start()
		<-time.After(time.Minute)
		sent := time.Now()
		putMany(t, setup, map[string]int{typ.Name(): 1}, func(task *model.Task) {
			task.Options.ConcurrentWorkerCount, task.Audience = 2, []string{lifecycle.AudienceMany}
			task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: 300 * time.Millisecond}
		})
		<-time.After(4 * time.Second)
		require.NoError(t, crew[1].Stop(t.Context()))
		ran.await(t)
		require.Less(t, time.Since(sent), 12*time.Second)
	})
}

// A worker that has no free slot looks for the tasks of events later.
func TestATaskThatAPersonRetriesIsNoLongerLeftOut(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		p, err := producer.New(producer.Config{Database: db})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		crew, start := crewAt(t, uri, db, 1, Config{Concurrency: 1}, nil)
		typ, again, calls := model.NewType[int, int]("several"), newGauge(1), atomic.Int64{}
		require.NoError(t, Handle(crew[0].Consumer, typ, func(context.Context, *Task[int]) (int, error) {
			if calls.Add(1) == 1 {
				return 0, errors.New("once")
			}
			again.during(func() {})
			return 0, nil
		}))
		long := model.NewType[int, int]("long")
		require.NoError(t, Handle(crew[0].Consumer, long, func(context.Context, *Task[int]) (int, error) {
			<-time.After(3 * time.Second)
			return 0, nil
		}))
		start()
		<-time.After(time.Minute)
		putMany(t, setup, map[string]int{typ.Name(): 1}, func(task *model.Task) {
			task.Options.ConcurrentWorkerCount, task.Audience = 2, []string{lifecycle.AudienceMany}
			task.Options.Retry = &model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}
		})
		<-time.After(time.Second)
		putMany(t, setup, map[string]int{long.Name(): 1}, nil)
		<-time.After(time.Second)
		retried := time.Now()
		_, err = p.Retry(t.Context(), model.TaskID("", typ.Name(), "0"), "again")
		require.NoError(t, err)
		again.await(t)
		require.Less(t, time.Since(retried), 4*time.Second)
	})
}
