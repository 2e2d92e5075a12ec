package consumer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

// holdTask touches a task in a transaction that stays open until the test ends, or until the
// returned function is called.
func holdTask(t *testing.T, db *mongo.Database, id string) (release func()) {
	t.Helper()
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	require.NoError(t, session.StartTransaction())
	_, err = db.Collection("tasks").UpdateByID(mongo.NewSessionContext(t.Context(), session), id, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	release = sync.OnceFunc(func() { session.EndSession(context.Background()) })
	t.Cleanup(release)
	return release
}

// The worker meets a task in the queue that an open transaction holds. The permit for which it
// would have been claimed is for the others of its type meanwhile.
func TestAHeldTaskKeepsNoPermitOfItsType(t *testing.T) {
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	limitTo(t, setup, 1)
	putMany(t, setup, map[string]int{limitedType: 20}, nil)
	release := holdTask(t, db, "-/"+limitedType+"/0")
	g := newGauge(19)
	var mu sync.Mutex
	var ran []string
	_, start := crewAt(t, testdb.URI(t), db, 1, Config{}, map[string]func(*Task[int]){
		limitedType: func(task *Task[int]) {
			g.during(func() {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, task.Key)
			})
		},
	})
	start()
	began := time.Now()
	g.await(t)
	t.Log(time.Since(began))
	require.False(t, slices.Contains(ran, "0"))
	release()
	require.Eventually(t, func() bool { return g.count() == 20 }, testdb.Patience, time.Millisecond)
	require.Equal(t, 1, g.most)
}

// What is to follow by a permit is held when its turn comes. The permit goes on to another task.
func TestAHeldSuccessorKeepsNoPermit(t *testing.T) {
	l := newChain(t, 100)
	l.begin(t, time.Minute)
	for range 10 {
		l.short()
		l.end <- ""
		l.begin(t, time.Minute)
	}
	for tries := 0; !l.prepares(); tries++ {
		require.Less(t, tries, 80, "nothing is to follow: %+v", l.Stats())
		l.end <- ""
		l.begin(t, time.Minute)
	}
	x := l.held.each()[0]
	release := holdTask(t, l.cfg.Database, x.successor.task.ID)
	l.end <- ""
	l.begin(t, time.Minute)
	require.NotEqual(t, x.successor.task.ID, l.held.each()[0].task.ID)
	release()
	l.letGo()
	l.g.await(t)
	require.Equal(t, 1, l.g.most)
}
