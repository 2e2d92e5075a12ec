package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// chaosWork is what the tasks of these scenarios are: a number that the handler gets.
var chaosWork = model.NewType[int, int]("chaos.work")

// chaosPatience is only reached by a broken product.
const chaosPatience = 3 * time.Minute

// arena is one scenario's database with a producer, a store and the record of effects.
type arena struct {
	t      *testing.T
	e      Engine
	db     *mongo.Database
	p      *producer.Producer
	puller *pull.Puller
	admin  *admin.Admin
	store  *store.Store
}

func newArena(t *testing.T, e Engine) *arena { t.Helper(); return arenaOn(t, e, e.DB(t)) }

func arenaOn(t *testing.T, e Engine, db *mongo.Database) *arena {
	t.Helper()
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	return &arena{t: t, e: e, db: db, p: p, puller: pull.New(p), admin: admin.New(p), store: st}
}

// send stores n tasks and returns their ids.
func (a *arena) send(n int, opts ...producer.Option) []string {
	a.t.Helper()
	items := make([]producer.Item[int], n)
	for i := range items {
		items[i] = producer.Item[int]{Args: i, Options: opts}
	}
	sent, err := producer.SendMany(a.t.Context(), a.p, chaosWork, items)
	require.NoError(a.t, err)
	ids := make([]string, n)
	for i, s := range sent {
		ids[i] = s.ID
	}
	return ids
}

func (a *arena) get(id string) *model.Task {
	a.t.Helper()
	task, err := a.store.Tasks.Get(a.t.Context(), id)
	require.NoError(a.t, err)
	return task
}

// awaitEach waits until the condition holds for every task.
func (a *arena) awaitEach(ids []string, what string, ok func(*model.Task) bool) {
	a.t.Helper()
	left := ids
	awaitTrue(a.t, func() string {
		tasks, err := a.store.Tasks.ByIDs(a.t.Context(), left)
		require.NoError(a.t, err)
		var still []string
		for _, id := range left {
			if !ok(tasks[id]) {
				still = append(still, id)
			}
		}
		left = still
		if len(left) == 0 {
			return ""
		}
		return fmt.Sprintf("%d of %d tasks are not yet %s, among them %s", len(left), len(ids), what, inWords(tasks[left[0]]))
	})
}

func (a *arena) awaitSuccess(ids []string) {
	a.t.Helper()
	a.awaitEach(ids, "Success", func(t *model.Task) bool { return t.Status == model.StatusSuccess })
}

// awaitTrue polls until missing says nothing.
func awaitTrue(t *testing.T, missing func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaosPatience)
	defer cancel()
	what := ""
	met := poll(ctx, func() bool {
		what = missing()
		return what == ""
	})
	if !met {
		stuck(t, "waited in vain: "+what)
	}
}

// poll looks until what is waited for is there, or ctx ends: whether it is there is what
// counts, and not how often it looks. It rests for longer than it looks, and longer each time, so that looks
// take little of the machine from the scenario, in virtual time, too.
func poll(ctx context.Context, met func() bool) bool {
	for rest := 20 * time.Millisecond; ; rest = min(rest*5/4, 250*time.Millisecond) {
		began := time.Now()
		if met() {
			return true
		}
		select {
		case <-time.After(max(rest, 4*time.Since(began))):
		case <-ctx.Done():
			return false
		}
	}
}

// inWords is what matters of a task.
func inWords(t *model.Task) string {
	if t == nil {
		return "one that does not exist"
	}
	return fmt.Sprintf("%s %s, rev %d, errors %d (%s), lapses %d, due %v, lapse %v, executions %+v",
		t.ID, t.Status, t.Rev, t.ErrorCount, t.ErrorInfo, t.LapseCount, t.DueAt, t.LapseAt, t.WorkerStates)
}

// abandon claims tasks for a worker that never pings: what a machine that died leaves.
func (a *arena) abandon(ids []string, workerID string, lease time.Duration) {
	a.t.Helper()
	tasks, err := a.store.Tasks.ByIDs(a.t.Context(), ids)
	require.NoError(a.t, err)
	by := lifecycle.Claimant{WorkerID: workerID, ExecID: "abandoned-by-" + workerID}
	var writes []store.Write
	for _, id := range ids {
		eff := lifecycle.ResolveOptions(tasks[id].Options)
		eff.Lease = lease
		now := a.store.Clock.Now()
		if tasks[id].DueAt.After(now) { // the sender's estimate of the time is a little ahead
			now = tasks[id].DueAt
		}
		after, no := lifecycle.Claim(tasks[id], by, eff, now)
		require.Empty(a.t, no)
		writes = append(writes, store.Write{Before: tasks[id], After: after})
	}
	for _, w := range a.write(writes) {
		require.True(a.t, w.Applied)
	}
}

// write carries writes out as a worker does: what ran out of its short time, as on a busy
// machine, is tried again.
func (a *arena) write(writes []store.Write) []store.Written {
	a.t.Helper()
	out := make([]store.Written, len(writes))
	left := make([]int, len(writes))
	for i := range left {
		left[i] = i
	}
	awaitTrue(a.t, func() string {
		some := make([]store.Write, len(left))
		for n, i := range left {
			some[n] = writes[i]
		}
		written, err := a.store.Tasks.Writes(a.t.Context(), some, 0)
		require.NoError(a.t, err)
		var held []int
		for n, i := range left {
			if out[i] = written[n]; written[n].Held {
				held = append(held, i)
			}
		}
		if left = held; len(left) > 0 {
			return fmt.Sprintf("%d of %d writes go on being held", len(left), len(writes))
		}
		return ""
	})
	return out
}

// hand is a worker of a scenario.
type hand struct {
	*consumer.Consumer
	events *events
	stop   func() error
}

type handConfig struct {
	consumer.Config
	handle  func(context.Context, *consumer.Task[int]) (int, error)
	options []consumer.HandleOption
	// register says what the worker handles, instead of chaosWork by handle.
	register func(*consumer.Consumer) error
}

// hire starts a worker. It is stopped at the end of the test, if not before.
func (a *arena) hire(id string, handle func(context.Context, *consumer.Task[int]) (int, error), change ...func(*handConfig)) *hand {
	a.t.Helper()
	h := &hand{events: newEvents()}
	cfg := handConfig{handle: handle, Config: consumer.Config{
		Database: a.db, WorkerID: id, Concurrency: 20, ShutdownTimeout: 5 * time.Second, OnEvent: h.events.add,
	}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg.Config)
	require.NoError(a.t, err)
	if cfg.register == nil {
		cfg.register = func(c *consumer.Consumer) error { return consumer.Handle(c, chaosWork, cfg.handle, cfg.options...) }
	}
	require.NoError(a.t, cfg.register(c))
	h.Consumer = c
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	var result error
	h.stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case result = <-ended:
			case <-time.After(chaosPatience):
				result = errors.New("the worker does not stop")
			}
		})
		return result
	}
	a.t.Cleanup(func() { require.NoError(a.t, h.stop()) })
	return h
}

// events are what a worker told, in order.
type events struct {
	mu      sync.Mutex
	list    []consumer.Event
	changed chan struct{}
}

func newEvents() *events { return &events{changed: make(chan struct{})} }

func (e *events) add(ev consumer.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) all(kind string) []consumer.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []consumer.Event
	for _, ev := range e.list {
		if ev.Kind == kind {
			out = append(out, ev)
		}
	}
	return out
}

// await waits for the n-th event of a kind and returns it.
func (e *events) await(t *testing.T, kind string, n int) consumer.Event {
	t.Helper()
	timeout := time.After(chaosPatience)
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		if found := e.all(kind); len(found) >= n {
			return found[n-1]
		}
		select {
		case <-changed:
		case <-timeout:
			e.mu.Lock()
			defer e.mu.Unlock()
			require.Fail(t, "waited in vain", "for event %d of kind %s; there were %v", n, kind, e.list)
		}
	}
}

// effects counts what handlers did to the world, and whether two did it at once.
type effects struct {
	mu       sync.Mutex
	done     map[string]int
	open     map[string]int
	together []string
}

func newEffects() *effects { return &effects{done: map[string]int{}, open: map[string]int{}} }

func (f *effects) begin(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[id]++
	if f.open[id] > 1 {
		f.together = append(f.together, id)
	}
}

func (f *effects) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[id]--
	f.done[id]++
}

// handle is a handler that only has its effect.
func (f *effects) handle(_ context.Context, task *consumer.Task[int]) (int, error) {
	f.begin(task.TaskID)
	defer f.end(task.TaskID)
	return task.Args, nil
}

func (f *effects) count(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done[id]
}

// requireOnce fails unless each of the tasks had its effect exactly once.
func (f *effects) requireOnce(t *testing.T, ids []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.together, "run by two at once")
	for _, id := range ids {
		require.Equal(t, 1, f.done[id], "effects of %s", id)
	}
}

// behind starts a proxy before the engine and returns it with the same database through
// it, for a client that gives up quickly.
func (a *arena) behind() (*proxy.Proxy, *mongo.Database) {
	a.t.Helper()
	return behindProxy(a.t, a.e.URI, a.db.Name())
}

func behindProxy(t *testing.T, uri, name string) (*proxy.Proxy, *mongo.Database) {
	t.Helper()
	p, err := proxy.Start(uri)
	require.NoError(t, err)
	client, err := mongo.Connect(engine.Options(p.URI()).
		SetServerSelectionTimeout(5 * time.Second).SetHeartbeatInterval(500 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Clear()
		require.NoError(t, client.Disconnect(context.Background()))
		p.Close()
	})
	return p, client.Database(name)
}

// through lets a worker use another way to the database.
func through(db *mongo.Database) func(*handConfig) {
	return func(c *handConfig) { c.Database = db }
}

// seconds is a lease of n seconds with four pings in it.
func seconds(n int) producer.Option {
	lease := time.Duration(n) * time.Second
	return producer.Lease(lease/4, lease)
}

// seconds is a lease for a worker that must not lose it while it lives, with four pings in it: n seconds, and more on
// a slow engine, where a ping may take that long.
func (a *arena) seconds(n int) producer.Option {
	return seconds(int(a.lease(time.Duration(n)*time.Second) / time.Second))
}

// lease is such a lease.
func (a *arena) lease(d time.Duration) time.Duration {
	if a.e.Slow && !a.e.virtual() {
		return 5 * d
	}
	return d
}
