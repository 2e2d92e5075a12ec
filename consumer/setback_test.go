package consumer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/store"
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
