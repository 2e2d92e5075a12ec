package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// site is a place where workers come and go, and people interfere. It knows what every handler did.
type site struct {
	t     *testing.T
	r     *rand.Rand
	uri   string
	db    *mongo.Database
	setup *Consumer
	p     *producer.Producer
	slots int
	calm  bool // no worker vanishes

	types map[string]*siteType

	mu     sync.Mutex
	mates  []*mate // by number; the one that works now
	past   []*mate
	calls  []*call
	plans  map[string][]act // by task: what its handler does at each call
	parked []parking
	faults []string
	paused map[string]time.Time // types; when resumed: since then
	log    []string
	began  time.Time
}

type siteType struct {
	model.TaskType
	local int
	most  int       // of the limits that it had
	at    time.Time // of its last change
}

type parking struct {
	handle string
	at     time.Time
	how    int
}

// mate is a process of a worker.
type mate struct {
	*Consumer
	s       *site
	n       int
	px      *proxy.Proxy
	sent    *told
	cancel  context.CancelFunc
	ended   chan struct{}
	cut     bool
	leaving bool
	well    time.Time // since when it works
	running int
	byType  map[string]int
	full    time.Time            // when all slots were last taken
	fullOf  map[string]time.Time // when the type was last at its local limit
}

type act int

const (
	succeed act = iota
	fails
	panics
	goexits
	snoozes
	releases
	retriesAfter
	hangs    // until its context ends
	stubborn // and longer than its deadline
	fatal
	cancels
	parks
	saves // a step, and then it fails
	long  // five seconds
	checks
	acts
)

// call is one call of a handler.
type call struct {
	m          *mate
	task, exec string
	typ        string
	n          int
	act        act
	from, to   time.Time
	ctx        context.Context
	err, cause error
	ret        bool
	events     []Event
}

func (s *site) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%8v ", time.Since(s.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (s *site) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf("%8v ", time.Since(s.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (s *site) launch(n int) {
	px, err := proxy.Start(s.uri)
	require.NoError(s.t, err)
	m := &mate{s: s, n: n, px: px, sent: &told{sent: map[string]int{}}, ended: make(chan struct{}), byType: map[string]int{}, fullOf: map[string]time.Time{}, well: time.Now()}
	if s.r.IntN(4) == 0 {
		px.Rewrite(proxy.AsStandalone)
	}
	client, err := mongo.Connect(engine.Options(px.URI()).SetMonitor(&event.CommandMonitor{Started: m.sent.started}))
	require.NoError(s.t, err)
	cfg := Config{Database: client.Database(s.db.Name()), WorkerID: fmt.Sprint("w", n), Concurrency: s.slots, ShutdownTimeout: -1, OnEvent: m.heard, NoStream: s.r.IntN(5) == 0, Logger: zerolog.New(noter{s, n}).Level(zerolog.WarnLevel)}
	if s.r.IntN(2) == 0 {
		cfg.ShutdownTimeout = time.Second
	}
	if n == 2 && s.r.IntN(3) == 0 {
		cfg.Tenants = []string{"a", model.NoTenant}
	}
	m.Consumer, err = New(cfg)
	require.NoError(s.t, err)
	for code, typ := range s.types {
		var opts []HandleOption
		if typ.local > 0 {
			opts = append(opts, MaxConcurrency(typ.local))
		}
		require.NoError(s.t, Handle(m.Consumer, model.NewType[int, int](code), m.handle, opts...))
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	m.cancel = cancel
	s.mu.Lock()
	for len(s.mates) <= n {
		s.mates = append(s.mates, nil)
	}
	s.mates[n] = m
	s.past = append(s.past, m)
	s.mu.Unlock()
	go func() {
		defer close(m.ended)
		_ = m.Run(ctx)
		m.handlersWG.Wait()
	}()
	s.t.Cleanup(func() {
		cancel()
		<-m.ended
		_ = client.Disconnect(context.Background())
		px.Close()
	})
}

type noter struct {
	s *site
	n int
}

func (n noter) Write(p []byte) (int, error) {
	n.s.note("w%d: %s", n.n, strings.TrimSpace(string(p)))
	return len(p), nil
}

func (m *mate) heard(e Event) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.log = append(m.s.log, fmt.Sprintf("%8v w%d %s %s %s %s", time.Since(m.s.began).Round(time.Millisecond), m.n, e.Kind, e.TaskID, e.Outcome, strings.Split(e.Reason, "\n")[0]))
	if e.TaskID == "" || e.Kind == workerevent.Lapsed {
		return
	}
	for _, c := range slices.Backward(m.s.calls) {
		if c.m == m && c.task == e.TaskID && c.exec == e.ExecID {
			c.events = append(c.events, e)
			break
		}
	}
}

func (m *mate) handle(ctx context.Context, task *Task[int]) (result int, err error) {
	s := m.s
	s.mu.Lock()
	c := &call{m: m, task: task.TaskID, typ: task.Type, exec: task.hold.execID, from: time.Now(), ctx: ctx, n: len(s.calls) + 1}
	if plan := s.plans[task.TaskID]; len(plan) > 0 {
		c.act, s.plans[task.TaskID] = plan[0], plan[1:]
	}
	live, ofTask := 0, 0
	for _, other := range s.calls {
		if other.to.IsZero() && other.ctx.Err() == nil {
			if other.typ == c.typ {
				live++
			}
			if other.task == c.task {
				ofTask++
				if other.m == m {
					s.faults = append(s.faults, fmt.Sprintf("%s runs twice on w%d", c.task, m.n))
				}
			}
		}
	}
	typ := s.types[c.typ]
	if typ.most > 0 && live >= typ.most {
		s.faults = append(s.faults, fmt.Sprintf("%v %d of %s run, at most %d may", time.Since(s.began), live+1, c.typ, typ.most))
	}
	if want := lifecycle.Wanted(task.hold.task); ofTask >= max(want, 1) {
		s.faults = append(s.faults, fmt.Sprintf("%v %d of %s run, wanted %d", time.Since(s.began), ofTask+1, c.task, want))
	}
	s.calls = append(s.calls, c)
	m.running++
	m.byType[c.typ]++
	if m.byType[c.typ] > typ.local && typ.local > 0 {
		s.faults = append(s.faults, fmt.Sprintf("%d of %s run in w%d", m.byType[c.typ], c.typ, m.n))
	}
	s.log = append(s.log, fmt.Sprintf("%8v w%d begins %s: act %d", time.Since(s.began).Round(time.Millisecond), m.n, c.task, c.act))
	m.sawSlots(c.typ)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.sawSlots(c.typ)
		m.running--
		m.byType[c.typ]--
		c.to, c.err, c.cause, c.ret = time.Now(), err, context.Cause(ctx), true
	}()
	work := time.Duration(20+(c.n*37)%400) * time.Millisecond
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
	if c.act != stubborn {
		if err := wait(work); err != nil {
			return 0, err
		}
	}
	switch c.act {
	case fails:
		return 0, errors.New("no luck")
	case panics:
		panic("oh")
	case goexits:
		runtime.Goexit()
	case snoozes:
		return 0, Snooze(work * 5)
	case releases:
		return 0, Release()
	case retriesAfter:
		return 0, RetryAfter(work*5, errors.New("later"))
	case hangs:
		if err := wait(10 * time.Second); err != nil {
			return 0, err
		}
		return 0, errors.New("hung")
	case stubborn:
		<-time.After(4*time.Second + work)
		if c.n%2 == 0 {
			return 0, errors.New("stubborn")
		}
	case fatal:
		return 0, Fatal(errors.New("never"))
	case cancels:
		return 0, Cancel("unwanted")
	case parks:
		s.mu.Lock()
		s.parked = append(s.parked, parking{handle: task.Handle, at: time.Now().Add(work * 4), how: c.n % 4})
		s.mu.Unlock()
		return 0, Park(task.Now().Add(3 * time.Second))
	case saves:
		_, err := Step(ctx, "step", func(context.Context) (int, error) { return c.n, wait(work) })
		if err != nil {
			return 0, err
		}
		return 0, errors.New("after a step")
	case long:
		if err := wait(5 * time.Second); err != nil {
			return 0, err
		}
	case checks:
		if err := task.Checkpoint(ctx, c.n); err != nil {
			return 0, err
		}
		if err := task.Progress(ctx, 50, "half"); err != nil {
			return 0, err
		}
	}
	return c.n, nil
}

// sawSlots notes what is full. The caller holds mu.
func (m *mate) sawSlots(typ string) {
	if m.running >= m.s.slots {
		m.full = time.Now()
	}
	if l := m.s.types[typ].local; l > 0 && m.byType[typ] >= l {
		m.fullOf[typ] = time.Now()
	}
}

func (s *site) tasks() []*model.Task {
	cur, err := s.db.Collection("tasks").Find(s.t.Context(), bson.D{{Key: "generation", Value: bson.D{{Key: "$gt", Value: 0}}}, {Key: "type", Value: bson.D{{Key: "$ne", Value: "~"}}}})
	require.NoError(s.t, err)
	var raws []bson.Raw
	require.NoError(s.t, cur.All(s.t.Context(), &raws))
	var out []*model.Task
	for _, raw := range raws {
		task, err := store.Decode(raw)
		require.NoError(s.t, err)
		out = append(out, task)
	}
	return out
}
