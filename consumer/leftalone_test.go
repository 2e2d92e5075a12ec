package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// A worker that has just started cannot know whether the owner of a lapsed lease of hours could ping, so it leaves that
// alone for an hour. Meanwhile it takes over what lapses beside it.
func TestATaskThatIsLeftAloneForLongHidesNoOther(t *testing.T) {
	virtually(t, func(t *testing.T, _ string, db *mongo.Database) {
		p, err := producer.New(producer.Config{Database: db})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		typ := model.NewType[int, int]("leased")
		dead := fakeworker.New(t, db, "")
		long, err := producer.Send(t.Context(), p, typ, 1, producer.Key("long"), producer.Lease(time.Hour, 3*time.Hour))
		require.NoError(t, err)
		dead.Claim(long.ID, "dead")
		ago := time.Now().Add(-time.Minute)
		_, err = db.Collection("tasks").UpdateByID(t.Context(), long.ID, bson.M{"$set": bson.M{"lapse_at": ago, "worker_states.0.ping_expire_time": ago}})
		require.NoError(t, err)

		short, err := producer.Send(t.Context(), p, typ, 2, producer.Key("short"), producer.Lease(time.Second, 5*time.Second))
		require.NoError(t, err)
		dead.Claim(short.ID, "dead")

		ran := make(chan int, 2)
		c, err := New(Config{Database: db})
		require.NoError(t, err)
		require.NoError(t, Handle(c, typ, func(_ context.Context, x *Task[int]) (int, error) { ran <- x.Args; return 0, nil }))
		began := time.Now()
		runOn(t, c) // its first scan finds the long one alone
		require.Equal(t, 2, testdb.Receive(t, ran))
		require.Less(t, time.Since(began), 20*time.Second)
	})
}

// They fill three pages of a scan, and lapsed at the same time.
func TestThousandsThatAreLeftAloneHideNoneThatLapsedLater(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		putMany(t, setup, map[string]int{quietType: 3 * fetchplan.MaxBatch}, func(t *model.Task) {
			leased(time.Hour, 3*time.Hour)(t)
			abandon(t, time.Now().Add(-time.Minute))
		})
		put(t, setup, "short", func(t *model.Task) {
			leased(time.Second, 5*time.Second)(t)
			abandon(t, time.Now().Add(-time.Second))
		})
		ran := make(chan string, 1)
		c, err := New(Config{Database: db})
		require.NoError(t, err)
		require.NoError(t, Handle(c, model.NewType[int, int](quietType), func(_ context.Context, x *Task[int]) (int, error) { ran <- x.Key; return 0, nil }))
		began := time.Now()
		runOn(t, c)
		require.Equal(t, "short", testdb.Receive(t, ran))
		require.Less(t, time.Since(began), 30*time.Second)
	})
}

// abandon makes it a task whose worker died, so that its lease ended at that time.
func abandon(t *model.Task, at time.Time) {
	eff := lifecycle.ResolveOptions(t.Options)
	claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "dead", ExecID: "dead"}, eff, t.DueAt)
	if no != "" {
		panic(no)
	}
	*t = *claimed
	t.LapseAt, t.WorkerStates[0].PingExpireTime = at, at
}
