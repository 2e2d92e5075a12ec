package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// A crowd of workers finds its tasks without walking through those that it leaves to others:
// the server explains every query for tasks just before it is sent, and counts the keys. A look
// chooses among so many batches (mostAmong in internal/fetchplan) that on average it passes over
// half of them and never over more, and few claims are lost. How much of each is
// chance, which the threads of the machine decide, so it has to succeed once in five times; what a given chance costs
// is in TestAFleetDoesNotFight.
func TestACrowdExaminesFewIndexKeysForEachTaskItClaims(t *testing.T) {
	onEnginesAlone(t, func(t *testing.T, e Engine) {
		switch {
		case raceDetector:
			t.Skip("it counts keys over a large backlog; make scenarios runs it without the race detector")
		case e.Slow:
			t.Skip("this engine's planner is not MongoDB's, and it takes minutes for these backlogs")
		}
		for _, c := range []struct {
			workers, backlog int
			among            float64 // batches that a look chooses among
			tries            float64 // claims for each that is won; of workers that all look at one place, nearly as many as they are
		}{{4, 40_000, 2.5, 2}, {16, 20_000, 8.5, 4}} {
			for name, apart := range map[string]time.Duration{"spread in time": 5 * time.Millisecond, "all due in one millisecond": 0} {
				t.Run(fmt.Sprintf("%d workers, %s", c.workers, name), func(t *testing.T) {
					var each, tries float64
					for range 5 {
						if each, tries = keysOfACrowd(t, e, c.workers, c.backlog, apart); each <= c.among && tries <= c.tries {
							break
						}
					}
					require.LessOrEqual(t, each, c.among)
					require.LessOrEqual(t, tries, c.tries)
				})
			}
		}
	})
}

// keysOfACrowd lets workers do a backlog. It returns how many keys are examined for each claim that they attempt, and
// how many claims they attempt for each that they win.
func keysOfACrowd(t *testing.T, e Engine, workers, backlog int, apart time.Duration) (each, tries float64) {
	t.Helper()
	a := newArena(t, e)
	a.backlog(backlog, apart)
	var keys keyCount
	done, all := atomic.Int64{}, make(chan struct{})
	work := func(_ context.Context, task *consumer.Task[int]) (int, error) { return task.Args, nil }
	var hands []*hand
	for i := range workers {
		hands = append(hands, a.hire(fmt.Sprintf("one-of-%d-%d", workers, i), work, func(cfg *handConfig) {
			cfg.Database, cfg.Concurrency, cfg.NoStream = keys.watch(t, e, a.db.Name()), 100, true
			cfg.OnEvent = func(ev consumer.Event) {
				if ev.Kind == workerevent.Finished && ev.Status == model.StatusSuccess && done.Add(1) == int64(backlog) {
					close(all)
				}
			}
		}))
	}
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		require.Fail(t, "stalled", "%d of %d done", done.Load(), backlog)
	}
	var attempted, won int64
	for _, h := range hands {
		require.NoError(t, h.stop())
		attempted, won = attempted+h.Stats().ClaimsAttempted, won+h.Stats().ClaimsWon
	}
	each, tries = float64(keys.keys.Load())/float64(attempted), float64(attempted)/float64(won)
	t.Logf("%.2f keys examined for each claim attempted, %.2f claims attempted for each won, %.3f queries for each task",
		each, tries, float64(keys.queries.Load())/float64(backlog))
	require.GreaterOrEqual(t, won, int64(backlog), "a worker that has stood still gives back what it has not started")
	return each, tries
}

// backlog stores due tasks whose start times lie so far apart.
func (a *arena) backlog(n int, apart time.Duration) {
	a.t.Helper()
	began := a.store.Clock.Now().Add(-time.Hour)
	tasks := make([]*model.Task, n)
	for i := range tasks {
		args, err := codec.EncodeValue("args", i, input.MaxArgsBytes)
		require.NoError(a.t, err)
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: chaosWork.Name(), Key: fmt.Sprint(i), Args: args}, began.Add(time.Duration(i)*apart))
	}
	for some := range slices.Chunk(tasks, 2000) {
		_, err := a.store.Tasks.Insert(a.t.Context(), some)
		require.NoError(a.t, err)
	}
}

// keyCount sums the index keys that queries for tasks examine.
type keyCount struct{ keys, queries atomic.Int64 }

// watch returns the database as a client sees it whose queries are counted.
func (k *keyCount) watch(t *testing.T, e Engine, name string) *mongo.Database {
	t.Helper()
	asker := connect(t, e, nil)
	return connect(t, e, func(_ context.Context, ev *event.CommandStartedEvent) {
		coll, _ := ev.Command.Lookup("find").StringValueOK()
		if coll != "tasks" {
			return
		}
		var plain bson.D
		require.NoError(t, bson.Unmarshal(ev.Command, &plain))
		plain = slices.DeleteFunc(plain, func(e bson.E) bool {
			return e.Key == "lsid" || e.Key == "maxTimeMS" || e.Key == "readConcern" || e.Key == "txnNumber" || strings.HasPrefix(e.Key, "$")
		})
		var answer struct {
			Stats struct {
				Keys int64 `bson:"totalKeysExamined"`
			} `bson:"executionStats"`
		}
		err := asker.Database(name).RunCommand(context.Background(), bson.D{{Key: "explain", Value: plain}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer)
		if err != nil {
			return // the test is over
		}
		k.queries.Add(1)
		k.keys.Add(answer.Stats.Keys)
	}).Database(name)
}

func connect(t *testing.T, e Engine, started func(context.Context, *event.CommandStartedEvent)) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(engine.Options(e.URI).SetMonitor(&event.CommandMonitor{Started: started}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client
}
