package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// On a busy machine a claim runs out of its short time although no transaction holds the task. Then
// tasks of a lower priority must not overtake it, and a document that is held must not stop them.
func TestAFetchWaitsAMomentForClaimsThatRanOutOfTime(t *testing.T) {
	for name, c := range map[string]struct {
		patience time.Duration
		waits    bool
	}{
		"until they are tried again": {time.Hour, true},
		"not for long":               {time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := testdb.New(t)
			w, o := preparedAt(t, testdb.URI(t), db)
			w.patience = c.patience
			ids := bson.A{put(t, w, "a", nil).ID, put(t, w, "b", nil).ID}
			session, err := db.Client().StartSession()
			require.NoError(t, err)
			defer session.EndSession(context.Background())
			require.NoError(t, session.StartTransaction())
			_, err = db.Collection("tasks").UpdateMany(mongo.NewSessionContext(t.Context(), session),
				bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
			require.NoError(t, err)

			var updates, fetches, atFind atomic.Int64
			again, fetching := make(chan struct{}), make(chan struct{})
			free := sync.OnceFunc(func() { _ = session.AbortTransaction(context.Background()) })
			search := sync.OnceFunc(func() { atFind.Store(int64(w.held.count().buffered)); close(fetching) })
			o.watch(func(command string) {
				switch {
				case command == "update tasks" && updates.Add(1) > 1: // of the claims, one by one
					<-again
					free()
				case command == "find tasks" && fetches.Load() == 2:
					search()
				}
			})
			fetches.Store(1)
			_, err = w.fetch(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, w.held.count().buffered, "they are claimed apart")

			fetches.Store(2)
			go func() {
				defer close(again)
				if c.waits {
					clock.Pause(t.Context(), 50*time.Millisecond) // for one that does not wait
				} else {
					<-fetching
				}
			}()
			_, err = w.fetch(t.Context())
			require.NoError(t, err)
			<-fetching
			require.Equal(t, c.waits, atFind.Load() == 0)
			w.apart.Wait()
		})
	}
}
