package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
)

// The turn of the upkeep of a process that was idle lasts for minutes, and so does the rest of an idle process.
func TestThePermitOfADeadProcessIsFreeWithinSecondsThoughNobodyWorked(t *testing.T) {
	for name, key := range map[string]string{"of a type": "", "of a key": "k"} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
				setup, _ := preparedAt(t, uri, db)
				if key == "" {
					limitTo(t, setup, 1)
				}
				g := newGauge(1)
				_, start := crewAt(t, uri, db, 1, Config{}, map[string]func(*Task[int]){limitedType: func(*Task[int]) { g.during(func() {}) }})
				start()
				<-time.After(5 * time.Minute)
				use := lifecycle.Permit{Type: limitedType, Key: key, PermitUse: lifecycle.PermitUse{TaskID: "-/limited/gone", ExecID: "dead"}}
				got, err := setup.store.Permits.Take(t.Context(), store.LimitOf{Type: limitedType, Key: key}, store.Limit{Most: 1}, []lifecycle.Permit{use})
				require.NoError(t, err)
				require.Len(t, got, 1)
				_, err = db.Collection("turns").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "job/" + upkeep.Permit}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "holder", Value: "dead"}, {Key: "expires_at", Value: time.Now().Add(130 * time.Second)}}}})
				require.NoError(t, err)
				sent := time.Now()
				putMany(t, setup, map[string]int{limitedType: 1}, func(task *model.Task) { task.Options.LimitKey = key })
				g.await(t)
				t.Logf("after %v", time.Since(sent))
				require.Less(t, time.Since(sent), 20*time.Second)
			})
		})
	}
}
