package scalemodel

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/mql/value"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// deployment is an embedded server and real workers in virtual time: what they send depends on
// times alone, and on no machine.
type deployment struct {
	t        *testing.T
	listen   *proxy.Pipes
	clients  []*mongo.Client
	links    []*proxy.Proxy
	workers  []*consumer.Consumer
	producer *producer.Producer
	store    *store.Store

	mu   sync.Mutex
	sent map[string]int // commands of workers, with their collection
}

var quick = model.NewType[string, model.None]("order.confirm")

// deploy runs f beside so many workers whose handlers take so long. lag is the time from a command
// to the server's answer.
func deploy(t *testing.T, workers int, takes time.Duration, lag func(command string) time.Duration, f func(d *deployment)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &deployment{t: t, listen: proxy.ListenPipes(), sent: map[string]int{}}
		server, err := embedded.Start(embedded.Options{Listener: d.listen, Now: time.Now})
		require.NoError(t, err)
		defer func() { assert.NoError(t, server.Close()) }()
		db, _ := d.connect(nil)
		defer d.disconnect()
		d.store, err = store.Open(store.Config{Database: db})
		require.NoError(t, err)
		d.producer, err = producer.New(producer.Config{Database: db})
		require.NoError(t, err)
		defer func() { assert.NoError(t, d.producer.Close(context.Background())) }()
		require.NoError(t, d.store.Ready(context.Background()))
		for i := range workers {
			db, link := d.connect(d.count)
			link.Fates(func(command string) (fate proxy.Fate) {
				if lag != nil {
					fate.Before = lag(command)
				}
				return fate
			})
			c, err := consumer.New(consumer.Config{Database: db, WorkerID: fmt.Sprintf("w%02d", i), Concurrency: slots, ShutdownTimeout: -1})
			require.NoError(t, err)
			require.NoError(t, consumer.Handle(c, quick, func(ctx context.Context, _ *consumer.Task[string]) (model.None, error) {
				clock.Pause(ctx, takes)
				return model.None{}, nil
			}))
			d.workers = append(d.workers, c)
		}
		ctx, stop := context.WithCancel(context.Background())
		var working sync.WaitGroup
		defer working.Wait()
		defer stop()
		for _, c := range d.workers {
			working.Go(func() { assert.NoError(t, c.Run(ctx)) })
		}
		f(d)
	})
}

// connect makes a client behind a proxy of its own.
func (d *deployment) connect(started func(context.Context, *event.CommandStartedEvent)) (*mongo.Database, *proxy.Proxy) {
	clients := proxy.ListenPipes()
	link := proxy.Between(clients, func() (net.Conn, error) { return d.listen.Dial(context.Background()) })
	o := options.Client().ApplyURI("mongodb://" + clients.Addr().String() + "/?directConnection=true&connectTimeoutMS=5000").SetDialer(&proxy.Dialer{})
	if started != nil {
		o.SetMonitor(&event.CommandMonitor{Started: started})
	}
	c, err := mongo.Connect(o)
	require.NoError(d.t, err)
	d.clients, d.links = append(d.clients, c), append(d.links, link)
	return c.Database("scale"), link
}

func (d *deployment) disconnect() {
	for i, c := range d.clients {
		require.NoError(d.t, c.Disconnect(context.Background()))
		d.links[i].Close()
	}
}

func (d *deployment) count(_ context.Context, e *event.CommandStartedEvent) {
	coll, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[e.CommandName+" "+coll]++
}

// rates are the commands a second of the workers while that time passes.
func (d *deployment) rates(lasts time.Duration) (r Rates) {
	d.mu.Lock()
	before := maps.Clone(d.sent)
	d.mu.Unlock()
	time.Sleep(lasts)
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, n := range d.sent {
		rate := float64(n-before[what]) / lasts.Seconds()
		switch what {
		case "find tasks":
			r.Polls += rate // and scans, and looks for more
		case "update tasks":
			r.Tasks += rate // and pings
		case "find control":
			r.Control += rate
		case "findAndModify workers", "find workers":
			r.Heartbeats += rate
		case "update turns", "aggregate task_history":
			r.Upkeep += rate
		default:
			r.Seats += rate
		}
	}
	return r
}

// seen is what can be told apart of the rates of a model by the names of commands. One query of each
// look for upkeep goes to the tasks, as one of each task does.
func (r Rates) seen(tasks float64, looks time.Duration) Rates {
	r.Polls, r.Tasks = r.Polls+r.Scans+tasks+perSecond(looks), r.Tasks-tasks+r.Pings
	r.Upkeep, r.Heartbeats = r.Upkeep-perSecond(looks), r.Heartbeats+r.Counts
	r.Counts = 0
	r.Scans, r.Pings = 0, 0
	return r
}

// within requires that each rate of the model is as far from the measured one as that share, or less
// than a fiftieth of all commands.
func within(t *testing.T, share float64, model, measured Rates) {
	t.Helper()
	t.Logf("model    %+v\nmeasured %+v", model, measured)
	least := measured.All() / 50
	of := func(what string, model, measured float64) {
		require.InDelta(t, measured, model, max(share*measured, least), what)
	}
	of("polls", model.Polls, measured.Polls)
	of("control", model.Control, measured.Control)
	of("heartbeats", model.Heartbeats, measured.Heartbeats)
	of("seats", model.Seats, measured.Seats)
	of("upkeep", model.Upkeep, measured.Upkeep)
	of("tasks", model.Tasks, measured.Tasks)
	of("all", model.All(), measured.All())
}

// The model says what an idle fleet sends to within a tenth.
func TestAnIdleFleetSendsWhatTheModelSays(t *testing.T) {
	for _, workers := range []int{1, 4, 10, 25} {
		if testing.Short() && workers > 4 {
			continue
		}
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			deploy(t, workers, 0, nil, func(d *deployment) {
				time.Sleep(2 * time.Minute) // what begins has ended
				within(t, 0.1, Idle(workers).seen(0, upkeep.IdlePause), d.rates(max(6*time.Minute, time.Hour/time.Duration(workers))))
			})
		})
	}
}

// It says to within 30 % what workers send that get tasks one by one, pings among it. Now and then a
// worker without a change stream is quicker than the two that have one, and then more of them hold something.
func TestABusyFleetSendsWhatTheModelSays(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes of a fleet, if in virtual time")
	}
	for _, c := range []struct {
		workers int
		tasks   float64
		takes   time.Duration
	}{{10, 2, 35 * time.Second}, {10, 10, time.Second}, {25, 4, 35 * time.Second}} {
		t.Run(fmt.Sprintf("%d workers, %v tasks a second of %v", c.workers, c.tasks, c.takes), func(t *testing.T) {
			deploy(t, c.workers, c.takes, nil, func(d *deployment) {
				ctx, stop := context.WithCancel(context.Background())
				var sending sync.WaitGroup
				defer sending.Wait()
				defer stop()
				sending.Go(func() {
					for clock.Pause(ctx, time.Duration(float64(time.Second)/c.tasks)) {
						_, err := producer.Send(context.Background(), d.producer, quick, "x")
						assert.NoError(t, err)
					}
				})
				time.Sleep(2 * time.Minute)
				within(t, 0.3, Busy(c.workers, c.tasks, c.takes).seen(c.tasks, upkeep.BusyPause), d.rates(2*time.Minute))
			})
		})
	}
}

// Crowds lose as many claims as the model says, to within 15 %: a find takes a millisecond, and an
// update forty.
func TestACrowdLosesAsManyClaimsAsTheModelSays(t *testing.T) {
	if testing.Short() {
		t.Skip("it drains large backlogs")
	}
	const backlog = 40_000
	const find, update = time.Millisecond, 40 * time.Millisecond
	lag := map[string]time.Duration{"find": find, "update": update}
	for _, workers := range []int{4, 16} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			deploy(t, workers, 0, func(command string) time.Duration { return lag[command] }, func(d *deployment) {
				for some := range slices.Chunk(backlogOf(t, backlog, time.Now()), 2000) {
					_, err := d.store.Tasks.Insert(context.Background(), some)
					require.NoError(t, err)
				}
				var tried, won int64
				for won < backlog {
					time.Sleep(100 * time.Millisecond)
					tried, won = 0, 0
					for _, w := range d.workers {
						tried, won = tried+w.Stats().ClaimsAttempted, won+w.Stats().ClaimsWon
					}
				}
				c := NewCrowd(workers, backlog, slots, backlog*time.Millisecond, crowdSeed)
				c.Cost = func(c Command) time.Duration {
					if c.Kind == Find {
						return find
					}
					return update
				}
				require.NoError(t, c.Run())
				measured, model := float64(tried)/float64(won), float64(c.Tried)/backlog
				t.Logf("claims tried for each won: measured %.3f, model %.3f", measured, model)
				require.InDelta(t, measured, model, 0.15*measured)
			})
		})
	}
}

// backlogOf is tasks that became due one after the other, a millisecond apart.
func backlogOf(t *testing.T, n int, now time.Time) []*model.Task {
	t.Helper()
	args, err := codec.EncodeValue("args", "x", input.MaxArgsBytes)
	require.NoError(t, err)
	tasks := make([]*model.Task, n)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: quick.Name(), Key: fmt.Sprint(i), Args: args}, now.Add(-time.Hour+time.Duration(i)*time.Millisecond))
	}
	return tasks
}

// The server stores documents of the size that the model says, to within a fiftieth, and as many keys
// in each index. Its own encoding of the keys, with longer numbers, is as long to within a quarter.
func TestDocumentsAndKeysAreAsLargeAsTheModelSays(t *testing.T) {
	const n, argsBytes = 2000, 200
	life, err := NewLife(quick.Name(), argsBytes)
	require.NoError(t, err)
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	testdb.Closes(t, p.Close)
	items := slices.Repeat([]producer.Item[string]{{Args: strings.Repeat("x", argsBytes)}}, n)
	_, err = producer.SendMany(t.Context(), p, quick, items)
	require.NoError(t, err)
	sizes(t, db, n, life.Waiting)

	c, err := consumer.New(consumer.Config{Database: db, Concurrency: 500})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, quick, func(context.Context, *consumer.Task[string]) (model.None, error) { return model.None{}, nil }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return c.Stats().Finished == n }, testdb.Patience, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	sizes(t, db, n, life.Ended)
}

// sizes compares what is stored with a document of the model.
func sizes(t *testing.T, db *mongo.Database, n int, doc bson.Raw) {
	t.Helper()
	stored := bson.D{{Key: "type", Value: quick.Name()}}
	cur, err := db.Collection("tasks").Find(t.Context(), stored)
	require.NoError(t, err)
	var docs []bson.Raw
	require.NoError(t, cur.All(t.Context(), &docs))
	require.Len(t, docs, n)
	bytes := 0
	for _, d := range docs {
		bytes += len(d)
	}
	require.InEpsilon(t, bytes, n*len(doc), 0.02)

	keys := map[string]Keys{}
	for _, k := range KeysOf(doc) {
		keys[k.Index] = k
	}
	for _, ix := range store.Indexes("tasks") {
		hint, fields := ix.Name, []value.Field{}
		for _, f := range ix.Keys {
			fields = append(fields, value.Field{Path: f.Key, Descending: f.Value == -1})
		}
		if ix.Name == "_id" {
			hint = "_id_"
		}
		var answer struct {
			Stats struct {
				Keys int `bson:"totalKeysExamined"`
			} `bson:"executionStats"`
		}
		find := bson.D{{Key: "find", Value: "tasks"}, {Key: "filter", Value: present(ix)}, {Key: "hint", Value: hint}}
		require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer))
		k, holds := keys[ix.Name]
		if !holds {
			require.LessOrEqual(t, answer.Stats.Keys, 1, "%s: the sentinel alone", ix.Name)
			continue
		}
		require.InDelta(t, n*k.Count, answer.Stats.Keys, 1, "%s: and the sentinel's", ix.Name)
		long := 0
		for _, d := range docs {
			own, _, err := value.IndexKeys(d, fields, false)
			require.NoError(t, err)
			for _, key := range own {
				long += len(key) + keyEnd
			}
		}
		t.Logf("%s: %d bytes by the model, %d in the server", ix.Name, n*k.Bytes, long)
		require.InEpsilon(t, long, n*k.Bytes, 0.25, ix.Name)
	}
}

// present is a filter that each document of an index meets.
func present(ix store.IndexDef) bson.D {
	switch last := ix.Keys[len(ix.Keys)-1].Key; {
	case strings.HasPrefix(ix.Name, "pending"):
		return bson.D{{Key: "status", Value: model.StatusPending}}
	case strings.HasPrefix(ix.Name, "failure"):
		return bson.D{{Key: "status", Value: model.StatusFailure}}
	default:
		return bson.D{{Key: last, Value: bson.D{{Key: "$exists", Value: true}}}}
	}
}
