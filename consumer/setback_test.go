package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// setBack runs a test in virtual time in which it may set the server's clock back, as a failover to a server whose clock is
// right does.
func setBack(t *testing.T, test func(t *testing.T, uri string, db *mongo.Database, by func(time.Duration))) {
	t.Helper()
	var back atomic.Int64
	now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
	virtuallyBy(t, now, func(t *testing.T, uri string, db *mongo.Database) {
		test(t, uri, db, func(d time.Duration) { back.Add(int64(d)) })
	})
}

func TestAWorkerAtRestFindsTasksAlthoughTheClockOfTheDatabaseWasSetBack(t *testing.T) {
	setBack(t, func(t *testing.T, uri string, db *mongo.Database, by func(time.Duration)) {
		setup, _ := preparedAt(t, uri, db)
		g := newGauge(1)
		_, start := crewAt(t, uri, db, 1, Config{NoStream: true}, map[string]func(*Task[int]){
			"other": func(*Task[int]) { g.during(func() {}) },
		})
		start()
		<-time.After(time.Minute)
		by(time.Hour)
		<-time.After(store.MaxClockAge) // the worker has noticed it
		require.NoError(t, setup.store.ReadClock(t.Context()))
		sent := time.Now()
		putMany(t, setup, map[string]int{"other": 1}, nil)
		g.await(t)
		require.Less(t, time.Since(sent), 3*time.Second)
	})
}

// One is cancelled before the worker has noticed it, another after.
func TestAHandlerHearsOfItsCancelAlthoughTheClockOfTheDatabaseWasSetBack(t *testing.T) {
	setBack(t, func(t *testing.T, uri string, db *mongo.Database, by func(time.Duration)) {
		setup, _ := preparedAt(t, uri, db)
		p, err := producer.New(producer.Config{Database: db})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		crew, start := crewAt(t, uri, db, 1, Config{}, nil)
		typ, running, stopped := model.NewType[int, int]("long"), make(chan string, 3), make(chan string, 3)
		require.NoError(t, Handle(crew[0].Consumer, typ, func(ctx context.Context, task *Task[int]) (int, error) {
			running <- task.Key
			<-ctx.Done()
			stopped <- task.Key
			return 0, context.Cause(ctx)
		}))
		start()
		putMany(t, setup, map[string]int{typ.Name(): 3}, nil)
		for range 3 {
			testdb.Receive(t, running)
		}
		cancel := func(key string) (took time.Duration) {
			cancelled := time.Now()
			_, err := p.Cancel(t.Context(), model.TaskID("", typ.Name(), key), "enough")
			require.NoError(t, err)
			require.Equal(t, key, testdb.Receive(t, stopped))
			return time.Since(cancelled)
		}
		require.Less(t, cancel("0"), 2*time.Second)
		by(time.Hour)
		require.Less(t, cancel("1"), store.MaxClockAge)
		require.Less(t, cancel("2"), 2*time.Second)
	})
}
