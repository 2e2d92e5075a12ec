package flow_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// An engine was killed, and is listed still. The worker has another client than the engine, so that
// ranks decide who tells of ends.
func TestTheStreamsOfAKilledEngineAreSoonAsQuickAsOthers(t *testing.T) {
	w := &world{t: t, db: testdb.New(t), broken: map[string]bool{}}
	_, err := w.db.Collection("workers").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "a"}, {Key: "types", Value: bson.A{flowplan.EngineType}}, {Key: "heartbeat_at", Value: time.Now().Add(time.Hour)}})
	require.NoError(t, err)
	var mu sync.Mutex
	var looks []time.Time
	w.flows, err = flow.New(flow.Config{EngineID: "b", Database: monitored(t, w.db, func(command bson.Raw) {
		if coll, _ := command.Lookup("aggregate").StringValueOK(); coll == "control" {
			mu.Lock()
			defer mu.Unlock()
			looks = append(looks, time.Now())
		}
	})})
	require.NoError(t, err)
	w.work()
	w.run(w.flows.Run)
	w.eventually("the engine is listed", func() bool { return engines(t, w.db)["b"] != nil })
	group := ""
	for n := 0; ; n++ { // a stream of the first engine by id
		group = fmt.Sprint(n)
		h := fnv.New32a()
		_, _ = h.Write([]byte("s/" + group))
		if h.Sum32()%2 == 0 {
			break
		}
	}
	var nodes []string
	for n := range 12 {
		nodes = append(nodes, fmt.Sprint("n", n))
		w.appends("s", group, link(nodes[n]))
	}
	last := "s/" + group + "/" + nodes[len(nodes)-1]
	w.eventually("all nodes are over", func() bool { return flowplan.Final(w.record(last).Status) })
	var waited []time.Duration
	var passedOver []int // by how many looks
	for _, node := range nodes {
		var task model.Task
		record := w.record("s/" + group + "/" + node)
		require.NoError(t, w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: record.TaskID}}).Decode(&task))
		waited = append(waited, record.At.Sub(task.FinishedAt))
		mu.Lock()
		passedOver = append(passedOver, len(slices.DeleteFunc(slices.Clone(looks), func(at time.Time) bool { return !at.After(task.FinishedAt) || !at.Before(record.At) })))
		mu.Unlock()
	}
	const turn = 400 * time.Millisecond
	require.GreaterOrEqual(t, waited[0], turn, "it was the killed engine's turn: %v", waited)
	quick := 0
	for n := 6; n < len(nodes); n++ {
		if waited[n] < turn || passedOver[n] <= 2 { // an engine rests after a slow look; one look may have been too early, one is that of the decision
			quick++
		}
	}
	require.GreaterOrEqual(t, quick, 4, "the time from the end of a task to the decision about it: %v, and the looks between: %v", waited, passedOver)
}
