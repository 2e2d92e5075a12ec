package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

const limitedType = "limited"

// crewmate is one of several workers on one database. What it sends is counted.
type crewmate struct {
	*Consumer
	sent *told
}

// crewOf makes n workers that serve the types by the handlers; the returned function starts
// them. They end with the test. No command runs out of its time.
func crewOf(t *testing.T, db *mongo.Database, n int, cfg Config, handlers map[string]func(*Task[int])) (crew []crewmate, start func()) {
	t.Helper()
	return crewAt(t, testdb.BehindPatient(t).URI(), db, n, cfg, handlers)
}

// crewAt is [crewOf] with a connection string of the database's deployment.
func crewAt(t *testing.T, uri string, db *mongo.Database, n int, cfg Config, handlers map[string]func(*Task[int])) (crew []crewmate, start func()) {
	t.Helper()
	for i := range n {
		o := &told{sent: map[string]int{}}
		searches := func(ctx context.Context, e *event.CommandStartedEvent) {
			o.started(ctx, e)
			if hint, _ := e.Command.Lookup("hint").StringValueOK(); hint == store.IndexDue {
				o.mu.Lock()
				o.sent["search"]++
				if e.Command.Lookup("filter", "due_at", "$gte").Type != 0 {
					o.sent["bounded search"]++
				}
				o.mu.Unlock()
			}
		}
		client, err := mongo.Connect(engine.Options(uri).SetMonitor(&event.CommandMonitor{Started: searches}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
		cfg.Database, cfg.WorkerID, cfg.ShutdownTimeout = client.Database(db.Name()), fmt.Sprint("w", i), -1
		c, err := New(cfg)
		require.NoError(t, err)
		for typ, handle := range handlers {
			require.NoError(t, Handle(c, model.NewType[int, int](typ), func(_ context.Context, task *Task[int]) (int, error) {
				handle(task)
				return 0, nil
			}))
		}
		crew = append(crew, crewmate{c, o})
	}
	return crew, func() {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(func() { cancel(); wg.Wait() })
		for _, m := range crew {
			wg.Go(func() { _ = m.Run(ctx) }) // what it does is seen elsewhere
		}
	}
}

// virtually runs a test in virtual time, with a server of its own: nothing is ever late. With the race detector it does
// not run, since that of Go 1.26 crashes now and then where crews spend minutes of virtual time.
func virtually(t *testing.T, test func(t *testing.T, uri string, db *mongo.Database)) {
	t.Helper()
	virtuallyBy(t, nil, test)
}

// virtuallyBy is [virtually] with a clock of the server; nil = that of the bubble.
func virtuallyBy(t *testing.T, now func() time.Time, test func(t *testing.T, uri string, db *mongo.Database)) {
	t.Helper()
	if testing.Short() {
		t.Skip("make scenarios runs it without the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := engine.Virtual(embedded.Options{Now: now}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		test(t, d.URI, engine.Fresh(t, engine.Connect(t, d.URI)))
	})
}

// putMany stores tasks: of each type so many, in turn.
func putMany(t *testing.T, c *Consumer, types map[string]int, change func(*model.Task)) {
	t.Helper()
	args, err := codec.EncodeValue("args", 1, input.MaxArgsBytes)
	require.NoError(t, err)
	now, most := c.store.Clock.Now(), 0
	for _, n := range types {
		most = max(most, n)
	}
	var tasks []*model.Task
	for i := range most {
		for typ, n := range types {
			if i%(most/n) != 0 {
				continue
			}
			task := lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: fmt.Sprint(i), Args: args}, now)
			if change != nil {
				change(task)
			}
			tasks = append(tasks, task)
		}
	}
	for some := range slices.Chunk(tasks, 1000) {
		_, err = c.store.Tasks.Insert(t.Context(), some)
		require.NoError(t, err)
	}
}

func limitTo(t *testing.T, c *Consumer, maxRunning int) {
	t.Helper()
	require.NoError(t, c.store.Types.Put(t.Context(), &model.TaskType{Code: limitedType, MaxRunning: maxRunning}))
}

// gauge counts handlers.
type gauge struct {
	mu                  sync.Mutex
	running, most, done int
	wanted              int
	all                 chan struct{} // closed when as many are done as are wanted
}

func newGauge(wanted int) *gauge { return &gauge{wanted: wanted, all: make(chan struct{})} }

// during counts a handler that runs as long as work.
func (g *gauge) during(work func()) {
	g.mu.Lock()
	g.running++
	g.most = max(g.most, g.running)
	g.mu.Unlock()
	work()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.done++; g.done == g.wanted {
		close(g.all)
	}
}

func (g *gauge) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}

func (g *gauge) await(t *testing.T) {
	t.Helper()
	select {
	case <-g.all:
	case <-time.After(testdb.Patience):
		t.Fatalf("%d of %d are done", g.count(), g.wanted)
	}
}

// The permit of an execution that has ended goes straight on, so a start costs no search. How many there are goes by
// the clock: each worker searches a few times at first and once a second, and asks for a permit that it lacks once a
// second. So time is virtual. What is reached of max_running by the duration is in the log.
func TestAPermitGoesStraightOnToTheNextTaskWithoutASearch(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const tasks, limit, work = 300, 5, 20 * time.Millisecond
		limitTo(t, setup, limit)
		putMany(t, setup, map[string]int{limitedType: tasks}, nil)
		g := newGauge(tasks)
		crew, start := crewAt(t, uri, db, 4, Config{}, map[string]func(*Task[int]){
			limitedType: func(*Task[int]) { g.during(func() { <-time.After(work) }) }, // the work itself
		})
		began := time.Now()
		start()
		g.await(t)
		took := time.Since(began)
		searches, permits := 0, 0
		for _, m := range crew {
			sent := m.sent.count()
			searches += sent["search"]
			permits += sent["insert permits"]
			t.Logf("%s: %+v %v", m.WorkerID(), m.Stats(), sent)
		}
		t.Logf("%v: %.2f of what is possible; %d searches, %d permits taken anew", took, (tasks*work/limit).Seconds()/took.Seconds(), searches, permits)
		require.LessOrEqual(t, g.most, limit)
		require.Less(t, searches, tasks/4, "each worker searches a few times at first and once a second")
		require.Less(t, permits, tasks/10, "permits pass on")
	})
}

// Slots of a worker with a backlog are never free. The next that frees is for the limited type,
// and the limited type leaves the others their share.
func TestALimitedTypeGetsSlotsBesideABacklogOfOthers(t *testing.T) {
	virtually(t, func(t *testing.T, uri string, db *mongo.Database) {
		setup, _ := preparedAt(t, uri, db)
		const tasks, others, limit, work = 50, 1500, 2, 5 * time.Millisecond
		limitTo(t, setup, limit)
		putMany(t, setup, map[string]int{"other": others, limitedType: tasks}, nil)
		limited, other := newGauge(tasks), newGauge(others)
		var doneBy atomic.Int64
		var once sync.Once
		_, start := crewAt(t, uri, db, 1, Config{Concurrency: 10}, map[string]func(*Task[int]){
			limitedType: func(*Task[int]) { limited.during(func() {}) },
			"other": func(*Task[int]) {
				other.during(func() {
					if other.count() >= others*9/10 {
						once.Do(func() { doneBy.Store(int64(limited.count())) })
					}
					<-time.After(work) // as long as that, others wait for a slot
				})
			},
		})
		start()
		other.await(t)
		limited.await(t)
		t.Logf("%d of %d limited tasks were done with nine tenths of the others", doneBy.Load(), tasks)
		require.LessOrEqual(t, limited.most, limit)
		require.GreaterOrEqual(t, doneBy.Load(), int64(tasks/4))
	})
}

// A worker that always knows a next task keeps the permit no longer than others are patient.
func TestATaskThatNamesAnotherWorkerGetsThePermitOfAnEndlessBacklog(t *testing.T) {
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	limitTo(t, setup, 1)
	var once sync.Once
	named := make(chan struct{})
	put := func(key string, worker ...string) {
		args, err := codec.EncodeValue("args", 1, input.MaxArgsBytes)
		require.NoError(t, err)
		task := lifecycle.NewTask(lifecycle.Draft{Type: limitedType, Key: key, Args: args, Options: model.Options{SpecificWorkerIDs: worker}}, setup.store.Clock.Now())
		_, err = setup.store.Tasks.Insert(context.Background(), []*model.Task{task})
		require.NoError(t, err)
	}
	var began atomic.Int64
	_, start := crewOf(t, db, 2, Config{}, map[string]func(*Task[int]){
		limitedType: func(task *Task[int]) {
			if task.Key == "named" {
				once.Do(func() { close(named) })
				return
			}
			n := began.Add(1)
			put(fmt.Sprint("next ", n), "w0")
			if n == 50 {
				put("named", "w1")
			}
		},
	})
	for i := range 20 {
		put(fmt.Sprint("first ", i), "w0")
	}
	start()
	select {
	case <-named:
	case <-time.After(testdb.Patience):
		t.Fatal("the other worker never got the permit")
	}
}
