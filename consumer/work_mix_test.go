package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
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
		return 0, ParkFor(3 * time.Second)
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

// watcher looks for tasks that nobody runs although somebody could.
type watcher struct {
	s     *site
	since map[string]time.Time
	told  map[string]bool
	rates map[*mate]int
	sent  map[*mate]int
}

const tooLong = 4 * time.Second

func (w *watcher) look(tasks []*model.Task) {
	s, now := w.s, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	open, keys := map[string]int{}, map[string]int{}
	for _, task := range tasks {
		n := lifecycle.OpenExecutions(task)
		open[task.Type] += n
		keys[task.Type+task.Options.LimitKey] += n
	}
	for _, m := range s.mates {
		for typ := range s.types {
			m.sawSlots(typ)
		}
	}
	for _, task := range tasks {
		typ := s.types[task.Type]
		if !task.LapseAt.IsZero() && now.Sub(task.LapseAt) > 12*time.Second && !w.told["lapse"+task.ID] {
			usable := slices.ContainsFunc(s.mates, func(m *mate) bool { return !m.cut && !m.leaving && now.Sub(m.well) > 20*time.Second })
			if usable {
				w.told["lapse"+task.ID] = true
				s.faults = append(s.faults, fmt.Sprintf("%v %s has lapsed since %v", now.Sub(s.began), task.ID, now.Sub(task.LapseAt)))
			}
		}
		for _, m := range s.mates {
			id := fmt.Sprint(task.ID, " ", task.Generation, " ", task.Rev, " w", m.n)
			could := !m.cut && !m.leaving && lifecycle.ConditionsMet(m.only, task)
			could = could && lifecycle.Claimable(task, m.WorkerID(), *m.effOf(task), now) == ""
			could = could && s.paused[task.Type].IsZero()
			could = could && (typ.MaxRunning == 0 || open[task.Type] < typ.MaxRunning)
			if task.Options.LimitKey != "" {
				could = could && keys[task.Type+task.Options.LimitKey] < lifecycle.Keyed(&typ.TaskType).MaxRunning
			}
			if !could {
				delete(w.since, id)
				continue
			}
			if w.since[id].IsZero() {
				w.since[id] = now
			}
			from := w.since[id]
			for _, at := range []time.Time{m.full, m.fullOf[task.Type], m.well, typ.at} {
				if at.After(from) {
					from = at
				}
			}
			most := tooLong
			if task.Options.LimitKey != "" {
				most *= 1 // the sweep looks after five seconds at keys of which nobody saw the end
			}
			if (typ.MaxRunning > 0 || task.Options.LimitKey != "") && !s.calm {
				most = 30 * time.Second
			}
			if now.Sub(from) > most && !w.told[id] {
				w.told[id] = true
				c := m.held.count()
				s.faults = append(s.faults, fmt.Sprintf("%v %s has waited for w%d for %v: %s, audience %v, %d handlers of %d run, %+v, watches %t, paused %t", now.Sub(s.began).Round(time.Millisecond), id, m.n,
					now.Sub(from), task.Status, task.Audience, m.running, s.slots, c, m.watch.Watching(), m.control.Paused(task.Type)))
			}
		}
	}
}

// spins looks for workers that ask too often.
func (w *watcher) spins() {
	for _, m := range w.s.past {
		n := 0
		for _, k := range m.sent.count() {
			n += k
		}
		rate := n - w.sent[m]
		w.sent[m] = n
		if rate > w.rates[m] {
			w.rates[m] = rate
		}
		if rate > 600 {
			w.s.fault("w%d sent %d commands within a second", m.n, rate)
		}
	}
}

// Tasks for one worker or several fail, snooze, park, retry and time out. Workers stop, vanish and come back, and people
// pause, cancel, update and retry. A task that a worker with a free slot could run must not wait for it.
// Some seeds still find tasks of a limit_key that wait for eight seconds, in some of their runs. So it is no part of
// make check.
func TestWhateverHandlersWorkersAndPeopleDoNoTaskWaits(t *testing.T) {
	if os.Getenv("MSCHEDULER_TEST_LONG") == "" && os.Getenv("MSCHEDULER_MIX_SEED") == "" && os.Getenv("MSCHEDULER_MIX_SEEDS") == "" {
		t.Skip("it takes a minute: make long has it, or MSCHEDULER_MIX_SEEDS=40")
	}
	for seed := range testdb.Mixes(t, 6, 2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtually(t, func(t *testing.T, uri string, db *mongo.Database) { workMix(t, seed, uri, db) })
		})
	}
}

func workMix(t *testing.T, seed int, uri string, db *mongo.Database) {
	r := rand.New(rand.NewPCG(uint64(seed), 2)) //nolint:gosec // a test
	setup, _ := preparedAt(t, uri, db)
	s := &site{t: t, r: r, uri: uri, db: db, setup: setup, slots: 1 + r.IntN(5), types: map[string]*siteType{}, plans: map[string][]act{}, paused: map[string]time.Time{}, began: time.Now(), calm: r.IntN(2) == 0}
	workers := 1 + r.IntN(3)
	var err error
	s.p, err = producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.p.Close(context.Background())) })
	for i := range 1 + r.IntN(4) {
		typ := &siteType{}
		typ.Code = fmt.Sprint("type-", i)
		switch r.IntN(4) {
		case 0:
			typ.MaxRunning = 1 + r.IntN(4)
			typ.most = typ.MaxRunning
		case 1:
			typ.KeyLimit = &model.KeyLimit{MaxRunning: 1 + r.IntN(2)}
		}
		if r.IntN(3) == 0 {
			typ.local = 1 + r.IntN(s.slots)
		}
		if r.IntN(3) == 0 {
			typ.ClaimBy = model.ClaimByTenant
		}
		require.NoError(t, setup.store.Types.Put(t.Context(), &typ.TaskType))
		s.types[typ.Code] = typ
	}
	for n := range workers {
		s.launch(n)
	}
	w := &watcher{s: s, since: map[string]time.Time{}, told: map[string]bool{}, rates: map[*mate]int{}, sent: map[*mate]int{}}
	codes := []string{}
	for i := range s.types {
		codes = append(codes, i)
	}
	slices.Sort(codes)
	var ids, held []string
	retried, capped := map[string]bool{}, map[string]bool{}
	send := func() {
		code := codes[r.IntN(len(codes))]
		key := fmt.Sprint(len(ids))
		opts := []producer.Option{producer.Key(key), producer.Priority(r.IntN(3) * r.IntN(4))}
		tenant := ""
		if r.IntN(3) == 0 {
			tenant = []string{"a", "b"}[r.IntN(2)]
			opts = append(opts, producer.Tenant(tenant))
		}
		n := 1
		able := workers
		if tenant == "b" {
			able = min(able, 2)
		}
		if r.IntN(4) == 0 && able > 1 {
			n = 2 + r.IntN(able-1)
		}
		named := 0
		if r.IntN(4) == 0 {
			all := []string{"w0", "w1", "w2"}[:able]
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			named = min(able, n+r.IntN(2))
			opts = append(opts, producer.Workers(all[:named]...))
		}
		if n > 1 {
			opts = append(opts, producer.ConcurrentWorkers(n))
		}
		if r.IntN(4) == 0 {
			opts = append(opts, producer.In(time.Duration(r.Int64N(int64(4*time.Second)))))
		}
		retry := model.Retry{MaxErrors: new(1 + r.IntN(5))}
		switch r.IntN(4) {
		case 0:
			retry.Strategy, retry.Interval = model.RetryFixed, time.Duration(100+r.IntN(1500))*time.Millisecond
		case 1:
			retry.Strategy, retry.Sequence = model.RetrySequence, []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}
		case 2:
			retry.Strategy, retry.Interval = model.RetryExponential, 200*time.Millisecond
		case 3:
			retry = model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond, MaxErrors: new(3)}
		}
		if r.IntN(4) == 0 {
			retry.Local = &model.LocalRetry{Count: 1 + r.IntN(2), Interval: time.Duration(50+r.IntN(500)) * time.Millisecond}
		}
		opts = append(opts, producer.Retry(retry), producer.MaxLapses(5))
		if r.IntN(2) == 0 {
			opts = append(opts, producer.Lease(500*time.Millisecond, 2*time.Second))
		} else {
			opts = append(opts, producer.Lease(2*time.Second, 6*time.Second))
		}
		if r.IntN(3) == 0 {
			opts = append(opts, producer.Timeout(time.Duration(300+r.IntN(2500))*time.Millisecond))
		}
		limited := named > 0 && r.IntN(3) == 0
		if limited {
			opts = append(opts, producer.MaxErrorsPerWorker(1+r.IntN(2)))
		}
		if s.types[code].KeyLimit != nil || r.IntN(10) == 0 {
			opts = append(opts, producer.LimitKey(fmt.Sprint("k", r.IntN(2))))
		}
		if r.IntN(10) == 0 {
			opts = append(opts, producer.NeedManual(true))
		}
		if r.IntN(12) == 0 {
			opts = append(opts, producer.ExpiresIn(time.Duration(1+r.IntN(6))*time.Second+4*time.Second))
		}
		id := model.TaskID(tenant, code, key)
		capped[id] = limited
		if r.IntN(10) == 0 {
			opts = append(opts, producer.Held())
			held = append(held, id)
		}
		var plan []act
		for range r.IntN(4) {
			plan = append(plan, act(r.IntN(int(acts))))
		}
		s.mu.Lock()
		s.plans[id] = plan
		s.mu.Unlock()
		ids = append(ids, id)
		_, err := producer.Send(t.Context(), s.p, model.NewType[int, int](code), 1, opts...)
		require.NoError(t, err)
	}
	release := func(i int) {
		_, err := s.p.Release(t.Context(), held[i])
		s.note("people release %s: %v", held[i], err)
		held = slices.Delete(held, i, i+1)
	}
	resume := func(typ string) {
		require.NoError(t, setup.store.Control.Resume(t.Context(), false, []string{typ}))
		s.note("people resume %s", typ)
		s.mu.Lock()
		s.types[typ].at = time.Now()
		delete(s.paused, typ)
		s.mu.Unlock()
	}
	back := func(m *mate) {
		m.px.Mend()
		s.note("w%d is back", m.n)
		s.mu.Lock()
		m.cut, m.well = false, time.Now().Add(5*time.Second)
		s.mu.Unlock()
	}
	interfere := func() {
		m := s.mates[r.IntN(len(s.mates))]
		id := ids[r.IntN(len(ids))]
		typ := codes[r.IntN(len(codes))]
		switch r.IntN(14) {
		case 0:
			if s.paused[typ].IsZero() {
				require.NoError(t, setup.store.Control.Pause(t.Context(), false, []string{typ}, "", ""))
				s.note("people pause %s", typ)
				s.mu.Lock()
				s.paused[typ] = time.Now()
				s.mu.Unlock()
			}
		case 1:
			for typ := range s.paused {
				resume(typ)
			}
		case 2:
			st := s.types[typ]
			if st.MaxRunning > 0 {
				s.mu.Lock()
				st.MaxRunning = 1 + r.IntN(4)
				st.most = max(st.most, st.MaxRunning)
				st.at = time.Now()
				s.mu.Unlock()
				next := st.TaskType
				require.NoError(t, setup.store.Types.Put(t.Context(), &next))
				s.note("people limit %s to %d", typ, st.MaxRunning)
				s.mu.Lock()
				st.Version = next.Version
				s.mu.Unlock()
			}
		case 3, 4:
			_, err := s.p.Cancel(t.Context(), id, "unwanted")
			s.note("people cancel %s: %v", id, err)
		case 5:
			if len(held) > 0 {
				release(r.IntN(len(held)))
			}
		case 6:
			_, err := s.p.Update(t.Context(), id, producer.Priority(r.IntN(10)))
			s.note("people update %s: %v", id, err)
		case 7:
			if capped[id] {
				return // it might wait for yet another worker
			}
			_, err := s.p.Update(t.Context(), id, producer.AnyWorker())
			s.note("people let any worker have %s: %v", id, err)
		case 8:
			_, err := s.p.Retry(t.Context(), id, "again")
			s.note("people retry %s: %v", id, err)
			retried[id] = true
		case 9:
			_, err := s.p.Update(t.Context(), id, producer.ConcurrentWorkers(1))
			s.note("people want one worker for %s: %v", id, err)
		case 10:
			if !m.cut && !m.leaving {
				s.note("w%d loses its connections", m.n)
				s.mu.Lock()
				m.well = time.Now().Add(3 * time.Second)
				s.mu.Unlock()
				m.px.Drop()
			}
		case 11:
			if s.calm || m.cut || m.leaving {
				return
			}
			s.note("w%d is cut off", m.n)
			s.mu.Lock()
			m.cut = true
			s.mu.Unlock()
			m.px.Cut()
			away := time.Duration(500+r.IntN(9000)) * time.Millisecond
			time.AfterFunc(away, func() {
				if !m.leaving {
					back(m)
				}
			})
		case 12:
			if s.calm || m.cut || m.leaving {
				return
			}
			s.note("w%d is killed", m.n)
			s.mu.Lock()
			m.cut, m.leaving = true, true
			s.mu.Unlock()
			m.px.Cut()
			m.cancel()
			s.launch(m.n)
		case 13:
			if m.cut || m.leaving {
				return
			}
			s.note("w%d stops", m.n)
			s.mu.Lock()
			m.leaving = true
			s.mu.Unlock()
			m.cancel()
			if r.IntN(2) == 0 {
				<-m.ended
			}
			s.launch(m.n)
		}
	}
	complete := func() {
		s.mu.Lock()
		var now []parking
		s.parked = slices.DeleteFunc(s.parked, func(p parking) bool {
			due := !p.at.After(time.Now())
			if due {
				now = append(now, p)
			}
			return due
		})
		s.mu.Unlock()
		for _, p := range now {
			var err error
			switch p.how {
			case 0, 1:
				_, err = s.p.Complete(t.Context(), p.handle, 1000)
			case 2:
				_, err = s.p.Fail(t.Context(), p.handle, "outside", producer.Failure{})
			}
			s.note("outside ends an execution: %v", err)
		}
	}
	const tick = 100 * time.Millisecond
	step := func(i int) []*model.Task {
		complete()
		<-time.After(tick)
		tasks := s.tasks()
		w.look(tasks)
		if i%10 == 0 {
			w.spins()
		}
		return tasks
	}
	for i := range 250 {
		if i < 200 && i%20 == 0 {
			for range 1 + r.IntN(4*workers) {
				send()
			}
		} else if i < 200 && r.IntN(10) == 0 {
			send()
		}
		if i > 5 && r.IntN(6) == 0 {
			interfere()
		}
		step(i)
	}
	for typ := range s.paused {
		resume(typ)
	}
	for len(held) > 0 {
		release(0)
	}
	s.note("people are gone")
	ended := func(task *model.Task) bool { return task.Status.Ended() }
	var tasks []*model.Task
	over := false
	for i := 0; i < 3000 && !over; i++ {
		tasks = step(i)
		over = !slices.ContainsFunc(tasks, func(task *model.Task) bool { return !ended(task) })
	}
	for _, task := range tasks {
		if !ended(task) {
			s.fault("%s does not end: %s, due %v, lapse %v, audience %v, options %+v", task.ID, task.Status, task.DueAt.Sub(s.began), task.LapseAt.Sub(s.began), task.Audience, task.Options)
		}
	}
	took := time.Since(s.began)
	// Nothing is left to do.
	<-time.After(90 * time.Second) // nobody has lacked a permit for a minute
	before := map[*mate]map[string]int{}
	for _, m := range s.mates {
		before[m] = m.sent.count()
	}
	<-time.After(time.Minute)
	for _, m := range s.mates {
		n := 0
		after := m.sent.count()
		for what, k := range after {
			n += k - before[m][what]
			after[what] = k - before[m][what]
			if after[what] == 0 {
				delete(after, what)
			}
		}
		most := 0
		for _, x := range w.rates {
			most = max(most, x)
		}
		if over {
			t.Logf("idle w%d, watching %t: %d commands a minute; busiest %d: %v", m.n, m.watch.Watching(), n, most, after)
		}
		idle := 120
		if len(m.cfg.Tenants) > 0 {
			idle *= 2 // a poll is two queries: of the types that are claimed by tenant, and of the others
		}
		if over && n > idle {
			s.fault("w%d is idle and sends %d commands a minute", m.n, n)
		}
	}
	s.check(tasks, retried)
	t.Logf("seed %d: %d workers of %d slots, calm %t, %d types, %d tasks, %d calls, took %v", seed, workers, s.slots, s.calm, len(s.types), len(ids), len(s.calls), took)
	if len(s.faults) > 0 {
		cur, err := db.Collection("permits").Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var raws []bson.Raw
		require.NoError(t, cur.All(t.Context(), &raws))
		for _, raw := range raws {
			s.note("permit %v", raw)
		}
		var turns []bson.Raw
		cur, err = db.Collection("turns").Find(t.Context(), bson.D{})
		require.NoError(t, err)
		require.NoError(t, cur.All(t.Context(), &turns))
		s.note("turns %v", turns)
		for _, typ := range s.types {
			s.note("type %+v", typ)
		}
		for _, task := range tasks {
			if !ended(task) {
				s.note("%+v", task)
			}
		}
		for _, l := range s.log {
			t.Log(l)
		}
		t.Errorf("%d faults:\n%s", len(s.faults), strings.Join(s.faults, "\n"))
	}
}

// check compares what is stored with what the handlers did.
func (s *site) check(tasks []*model.Task, retried map[string]bool) {
	type exec struct {
		m        *mate
		task, id string
	}
	byExec := map[exec][]*call{}
	byTask := map[string][]*call{}
	for _, c := range s.calls {
		e := exec{c.m, c.task, c.exec}
		byExec[e] = append(byExec[e], c)
		byTask[c.task] = append(byTask[c.task], c)
	}
	costs := map[string]int{}
	unsure := map[string]bool{}
	for e, calls := range byExec {
		last := calls[len(calls)-1]
		if !last.ret {
			s.fault("a handler of %s has not returned", e.task)
			continue
		}
		var end *Event
		for _, c := range calls {
			for i := range c.events {
				switch ev := &c.events[i]; ev.Kind {
				case workerevent.Finished, workerevent.Parked, workerevent.Fenced:
					if end != nil {
						s.fault("%s ends twice: %v and %v", e.task, *end, *ev)
					}
					end = ev
				}
			}
		}
		if end == nil {
			unsure[e.task] = true
			if !e.m.leaving && s.calm {
				s.fault("%s of w%d has no end", e.task, e.m.n)
			}
			continue
		}
		if end.Kind != workerevent.Finished {
			unsure[e.task] = true
			continue
		}
		if lifecycle.Costs(end.Outcome) {
			costs[e.task]++
		}
		var want []model.FailKind
		switch err := last.err; {
		case last.cause != nil && (err != nil || last.act == panics || last.act == goexits):
			want = []model.FailKind{failkind.Timeout, failkind.Released, failkind.Cancelled}
		case last.act == panics, last.act == goexits:
			want = []model.FailKind{failkind.Panic, failkind.Cancelled, failkind.Timeout, failkind.Released} // while a local retry waited
		case err == nil:
			want = []model.FailKind{""}
		case last.act == fatal:
			want = []model.FailKind{failkind.Fatal, failkind.Cancelled}
		case last.act == cancels:
			want = []model.FailKind{failkind.Cancelled}
		case last.act == snoozes, last.act == releases:
			want = []model.FailKind{failkind.Released, failkind.Cancelled}
		default:
			want = []model.FailKind{failkind.Error, failkind.Cancelled, failkind.Timeout, failkind.Released}
		}
		if !slices.Contains(want, end.Outcome) {
			s.fault("%s: act %d, error %v, cause %v ended as %q", e.task, last.act, last.err, last.cause, end.Outcome)
		}
	}
	for _, task := range tasks {
		if retried[task.ID] || task.Generation > 1 {
			continue
		}
		if n := costs[task.ID]; !unsure[task.ID] && task.LapseCount == 0 && task.ErrorCount != n {
			s.fault("%s counts %d errors, its handlers had %d", task.ID, task.ErrorCount, n)
		}
		if task.Status == model.StatusSuccess {
			if lifecycle.Successes(task) < lifecycle.Wanted(task) {
				s.fault("%s is Success by %d", task.ID, lifecycle.Successes(task))
			}
			var result int
			_ = task.Result.Unmarshal(&result)
			ok := result == 1000 || slices.ContainsFunc(byTask[task.ID], func(c *call) bool {
				return c.n == result && c.err == nil && slices.ContainsFunc(c.events, func(e Event) bool { return e.Kind == workerevent.Finished && e.Outcome == "" })
			})
			if !ok && !unsure[task.ID] {
				s.fault("%s has result %d of no call that counts", task.ID, result)
			}
		}
	}
}
