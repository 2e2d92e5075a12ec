package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/producer"
)

// mix is a random deployment in virtual time: engines that come and go, and workers with free slots.
type mix struct {
	t   *testing.T
	r   *rand.Rand // of the test's own goroutine
	uri string
	db  *mongo.Database

	prod  *producer.Producer
	rules *periodic.Periodic
	plans *plan.Plans
	flows *flow.Flows

	handle func(ctx context.Context, e *mixRun) (string, error)

	engines []*mixEngine
	named   int
	changes []mixChange

	mu   sync.Mutex
	runs map[string][]*mixRun // by task
	told []string
}

// mixChange is when the number of engines changed, and to what.
type mixChange struct {
	at   time.Time
	live int
	died bool // one went without a word
}

// mixRun is one execution.
type mixRun struct {
	*consumer.Execution
	args         bson.M
	began, ended time.Time
	err          error
}

// mixEngine is a process that drives rules, plans and flows.
type mixEngine struct {
	name   string
	client *mongo.Client
	proxy  *proxy.Proxy
	stop   context.CancelFunc
	done   sync.WaitGroup
	dead   atomic.Bool

	sent         atomic.Int64
	second, pace atomic.Int64
}

// playMix plays a seed. Engines have ended when it returns. The race detector of Go 1.26 crashes now and then (SIGSEGV in
// runtime.(*timer).maybeRunChan) where processes spend minutes of virtual time.
func playMix(t *testing.T, seed int, stream uint64, scenario func(m *mix)) {
	t.Helper()
	if raceDetector {
		t.Skip("make scenarios runs it without the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(beginning))
		d, err := engine.Virtual(embedded.Options{}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		m := &mix{t: t, r: rand.New(rand.NewPCG(uint64(seed), stream)), uri: d.URI, runs: map[string][]*mixRun{}} //nolint:gosec // a test
		m.db = engine.Fresh(t, engine.Connect(t, d.URI))
		m.prod, err = producer.New(producer.Config{Database: m.db})
		require.NoError(t, err)
		m.rules, err = periodic.New(periodic.Config{Database: m.db})
		require.NoError(t, err)
		m.plans, err = plan.New(plan.Config{Database: m.db})
		require.NoError(t, err)
		m.flows, err = flow.New(flow.Config{Database: m.db})
		require.NoError(t, err)
		t.Cleanup(func() {
			for len(m.engines) > 0 {
				m.ends(false)
			}
			require.NoError(t, m.prod.Close(context.Background()))
		})
		scenario(m)
	})
}

func (m *mix) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (m *mix) history() string { return strings.Join(m.told, "\n") }

// upTo is a random time.
func (m *mix) upTo(d time.Duration) time.Duration { return time.Duration(m.r.Int64N(int64(d) + 1)) }

func (m *mix) of(p float64) bool { return m.r.Float64() < p }

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// begins starts an engine.
func (m *mix) begins() {
	m.t.Helper()
	m.named++
	e := &mixEngine{name: fmt.Sprint("e", m.named)}
	clients := proxy.ListenPipes()
	e.proxy = proxy.Between(clients, func() (net.Conn, error) {
		return (&proxy.Dialer{}).DialContext(context.Background(), "tcp", serverOf(m.uri))
	})
	e.proxy.Fates(func(string) (f proxy.Fate) {
		e.sent.Add(1)
		if now := time.Now().Unix(); e.second.Swap(now) != now {
			e.pace.Store(0)
		}
		if e.pace.Add(1) == 1000 {
			m.t.Errorf("%s sends 1000 commands within a second", e.name)
		}
		if e.dead.Load() {
			f.Do = proxy.CutBefore
		}
		return f
	})
	var err error
	e.client, err = mongo.Connect(engine.Options("mongodb://" + clients.Addr().String() + "/?directConnection=true").SetServerSelectionTimeout(10 * time.Second))
	require.NoError(m.t, err)
	db := e.client.Database(m.db.Name())
	rules, err := periodic.New(periodic.Config{Database: db, EngineID: e.name})
	require.NoError(m.t, err)
	plans, err := plan.New(plan.Config{Database: db, EngineID: e.name})
	require.NoError(m.t, err)
	flows, err := flow.New(flow.Config{Database: db, EngineID: e.name})
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	for _, run := range []func(context.Context) error{rules.Run, plans.Run, flows.Run} {
		e.done.Go(func() {
			if err := run(ctx); err != nil && !e.dead.Load() {
				m.t.Errorf("%s ended: %v", e.name, err)
			}
		})
	}
	m.engines = append(m.engines, e)
	m.changed(false)
	m.note("%s begins", e.name)
}

func (m *mix) changed(died bool) {
	m.changes = append(m.changes, mixChange{at: time.Now(), live: len(m.engines), died: died})
}

// ends stops an engine, or has it go without a word.
func (m *mix) ends(dies bool) {
	i := m.r.IntN(len(m.engines))
	e := m.engines[i]
	m.engines = slices.Delete(m.engines, i, i+1)
	m.note("%s ends, dies: %v", e.name, dies)
	e.dead.Store(dies)
	e.stop()
	m.changed(dies)
	e.done.Wait()
	_ = e.client.Disconnect(context.Background()) // of one that died nobody answers
	e.proxy.Close()
}

// hires starts workers for the types.
func (m *mix) hires(n int, types ...string) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range n {
		client := engine.Connect(m.t, m.uri)
		c, err := consumer.New(consumer.Config{Database: client.Database(m.db.Name()), WorkerID: fmt.Sprint("w", i), Concurrency: 200, ShutdownTimeout: -1})
		require.NoError(m.t, err)
		for _, typ := range types {
			require.NoError(m.t, consumer.Handle(c, model.NewType[bson.M, string](typ), func(ctx context.Context, task *consumer.Task[bson.M]) (string, error) {
				e := &mixRun{Execution: task.Execution, args: task.Args, began: time.Now()}
				m.mu.Lock()
				m.runs[task.TaskID] = append(m.runs[task.TaskID], e)
				m.mu.Unlock()
				out, err := m.handle(ctx, e)
				m.mu.Lock()
				e.ended, e.err = time.Now(), err
				m.mu.Unlock()
				return out, err
			}))
		}
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				m.t.Errorf("a worker ended: %v", err)
			}
		})
	}
	m.t.Cleanup(func() { cancel(); wg.Wait() })
}

// away is how long, of a span, no engine was there, or one that died was not missed yet.
func (m *mix) away(from, to time.Time) (sum time.Duration) {
	for i, c := range m.changes {
		begin, end := c.at, to
		if i+1 < len(m.changes) {
			end = m.changes[i+1].at
		}
		if c.live == 0 {
			begin, end = later(begin, from), earlier(end, to)
			sum += max(end.Sub(begin), 0)
			continue
		}
		// An engine that begins or ends changes the turns of the others.
		end = earlier(end, c.at.Add(map[bool]time.Duration{false: 2 * time.Second, true: 3 * time.Second}[c.died]))
		begin, end = later(begin, from), earlier(end, to)
		sum += max(end.Sub(begin), 0)
	}
	return sum
}

// slack is how late something may be: the turns of an engine that died pass until its last heartbeat is old, and engines
// learn with their heartbeats how many they are.
func (m *mix) slack(at time.Time) time.Duration {
	allowed := 1500 * time.Millisecond
	for _, c := range m.changes {
		switch ago := at.Sub(c.at); {
		case ago < 0:
		case c.died && ago < 2*time.Minute:
			return 4 * time.Second
		case ago < 40*time.Second:
			allowed = 2500 * time.Millisecond
		}
	}
	return allowed
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// until waits for something, in virtual time.
func (m *mix) until(limit time.Duration, what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: not within %v\n%s", what, limit, m.history())
		}
	}
}

// idles demands that engines with nothing to do cost little.
func (m *mix) idles() {
	m.t.Helper()
	time.Sleep(time.Minute)
	for _, e := range m.engines {
		e.sent.Store(0)
	}
	const span = 10 * time.Minute
	time.Sleep(span)
	for _, e := range m.engines {
		n := float64(e.sent.Load()) / span.Minutes()
		m.note("%s sends %.1f commands a minute when idle", e.name, n)
		if n > 25 {
			m.t.Errorf("%s sends %.1f commands a minute when idle\n%s", e.name, n, m.history())
		}
	}
}

func serverOf(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	at, _, _ := strings.Cut(rest, "/")
	return at
}
