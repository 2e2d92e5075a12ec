package consumer

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// Answers that come late and within the lease, since the majority lags, say, or handlers have all connections, cost no
// lease.
func TestPingsWhoseAnswersTakeLongerThanAPingIntervalKeepTheirLeases(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		px, err := proxy.Start(uri)
		require.NoError(t, err)
		t.Cleanup(px.Close)
		var slow atomic.Bool
		px.RewriteWith(func(request, answer bson.Raw) bson.Raw {
			if slow.Load() && bytes.Contains(request, []byte("ping_expire_time")) {
				<-time.After(12 * time.Second)
			}
			return answer
		})
		var lost, outages atomic.Int64
		cfg := Config{OnEvent: func(e Event) {
			switch e.Kind {
			case workerevent.LeaseLost:
				lost.Add(1)
			case workerevent.Outage:
				outages.Add(1)
			}
		}}
		began, ended := make(chan struct{}), make(chan struct{})
		_, start := crewAt(t, px.URI(), db, 1, cfg, map[string]func(*Task[int]){"t": func(*Task[int]) {
			close(began)
			<-time.After(2 * time.Minute)
			close(ended)
		}})
		start()
		putMany(t, setup, map[string]int{"t": 1}, func(task *model.Task) {})
		<-began
		slow.Store(true)
		<-ended
		require.Zero(t, lost.Load())
		require.Zero(t, outages.Load())
		slow.Store(false)
	})
}
