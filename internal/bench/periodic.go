package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// everySecond is how many rules of every second the first part has, and so ticks a second.
const everySecond = 500

func periodics(*Config) []part {
	return []part{
		{"periodic/ticks", 1, tickLateness},
		{"periodic/one", 1, func(ctx context.Context, r *run) error { return rulesAtRest(ctx, r, 1) }},
		{"periodic/many", 1, func(ctx context.Context, r *run) error {
			return rulesAtRest(ctx, r, r.cfg.or(r.cfg.Tasks, 100_000, 5_000))
		}},
	}
}

// scheduler is an engine of this process, with what it sends counted.
type scheduler struct {
	*periodic.Periodic
	meter  *meter
	ticks  *tickWatch
	client *mongo.Client
	end    context.CancelFunc
	ended  chan error
}

// schedule makes an engine; start lets it run.
func (r *run) schedule() (*scheduler, error) {
	s := &scheduler{ticks: &tickWatch{now: r.arena.store.Clock.Now}, ended: make(chan error, 1)}
	s.meter = &meter{now: r.cfg.Clock.Now, also: &event.CommandMonitor{Started: s.ticks.started, Succeeded: s.ticks.succeeded}}
	var err error
	if s.client, err = s.meter.connect(r.arena.uri); err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	s.Periodic, err = periodic.New(periodic.Config{Database: s.client.Database(r.arena.name), Clock: r.cfg.Clock})
	return s, err
}

func (s *scheduler) start(ctx context.Context) {
	ctx, s.end = context.WithCancel(ctx)
	go func() { s.ended <- s.Run(ctx) }()
}

// stop ends the engine and its client.
func (s *scheduler) stop() error {
	var err error
	if s.end != nil {
		s.end()
		err = <-s.ended
	}
	return errors.Join(err, s.client.Disconnect(context.Background()))
}

// tickWatch looks at an engine's commands: when the tasks of ticks were stored, and how
// many documents were read.
type tickWatch struct {
	now func() time.Time // the database's clock

	mu      sync.Mutex
	sending map[int64][]tickSent // inserts of tasks under way, by request
	late    map[string]float64   // of each task: milliseconds from its nominal time to the answer that it is stored
	read    int64                // documents
	last    time.Time            // when the last task was stored
}

type tickSent struct {
	id      string
	nominal time.Time
}

func (w *tickWatch) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.CommandName != "insert" || e.Command.Lookup("insert").StringValue() != "tasks" {
		return
	}
	docs, _ := e.Command.Lookup("documents").ArrayOK()
	values, _ := docs.Values()
	sent := make([]tickSent, 0, len(values))
	for _, v := range values {
		doc, _ := v.DocumentOK()
		nominal, _ := doc.Lookup("origin", "tick", "nominal").TimeOK()
		sent = append(sent, tickSent{strings.Clone(doc.Lookup("_id").StringValue()), nominal})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sending == nil {
		w.sending = map[int64][]tickSent{}
	}
	w.sending[e.RequestID] = sent
}

func (w *tickWatch) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.CommandName {
	case "find", "getMore":
		for _, field := range []string{"firstBatch", "nextBatch"} {
			batch, _ := e.Reply.Lookup("cursor", field).ArrayOK()
			values, _ := batch.Values()
			w.read += int64(len(values))
		}
	case "findAndModify":
		if e.Reply.Lookup("value").Type == bson.TypeEmbeddedDocument {
			w.read++
		}
	case "insert":
		for _, t := range w.sending[e.RequestID] {
			if _, again := w.late[t.id]; !again {
				if w.late == nil {
					w.late = map[string]float64{}
				}
				w.late[t.id] = round(millis(now.Sub(t.nominal)))
				w.last = now
			}
		}
		delete(w.sending, e.RequestID)
	}
}

func (w *tickWatch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late, w.read = nil, 0
}

func (w *tickWatch) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.late)
}

// tickSpec is a rule whose ticks send no-op tasks.
func (r *run) tickSpec(name, cron string, from time.Time) periodic.Spec {
	return periodic.Spec{
		Name: name, Cron: cron, StartAt: from, Type: noop.Name(), Args: args{Pad: strings.Repeat("x", r.cfg.ArgsBytes)},
		CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Cap: 10_000},
	}
}

// rules makes and enables n rules by the API, which says what a rule's document is, and by
// copies of that.
func (r *run) rules(ctx context.Context, p *periodic.Periodic, n int, spec func(i int) periodic.Spec) error {
	first, err := p.Create(ctx, spec(0))
	if err == nil {
		first, err = p.Enable(ctx, first.ID, 0)
	}
	if err != nil {
		return err
	}
	show := r.progress("making rules")
	coll := r.arena.client.Database(r.arena.name, options.Database().SetRegistry(codec.Registry())).Collection("periodic_rules")
	const chunk = 1000
	var docs []*schedule.Rule
	for i := 1; i < n; i++ {
		c := *first
		s := spec(i)
		c.ID, c.Name, c.Living, c.StartAt = fmt.Sprintf("%s-%d", first.ID, i), s.Name, schedule.RuleName("", s.Name), s.StartAt
		c.NextFireAt = first.NextFireAt.Add(c.StartAt.Sub(first.StartAt))
		docs = append(docs, &c)
		if len(docs) == chunk || i == n-1 {
			if _, err := coll.InsertMany(ctx, docs); err != nil {
				return fmt.Errorf("making rules: %w", err)
			}
			docs = nil
			show(i+1, n)
		}
	}
	return nil
}

// ticking hires a worker for the ticks' tasks and makes an engine.
func (r *run) ticking(ctx context.Context) (s *scheduler, c *crew, end func() error, err error) {
	if err := r.arena.store.ReadClock(ctx); err != nil {
		return nil, nil, nil, err
	}
	c, dismiss := r.crew()
	if s, err = r.schedule(); err == nil {
		if _, err = c.hire(r.spec(0), ""); err == nil {
			_, err = c.begin(ctx)
		}
	}
	return s, c, func() error {
		dismiss()
		if s == nil {
			return nil
		}
		return s.stop()
	}, err
}

// tickLateness measures how long after their nominal time the tasks of rules that all fire
// each second are stored. A worker runs the tasks, so that their ends are decided, too.
func tickLateness(ctx context.Context, r *run) (err error) {
	s, c, end, err := r.ticking(ctx)
	if end != nil {
		defer func() { err = errors.Join(err, end()) }()
	}
	if err != nil {
		return err
	}
	lasts := r.cfg.lasting(30*time.Second, 5*time.Second).Truncate(time.Second)
	rules := r.cfg.or(r.cfg.Tasks, everySecond, everySecond)
	from := r.arena.store.Clock.Now().Truncate(time.Second).Add(4 * time.Second)
	err = r.rules(ctx, s.Periodic, rules, func(i int) periodic.Spec {
		spec := r.tickSpec(fmt.Sprint("rule ", i), "* * * * * *", from)
		spec.EndAt = from.Add(lasts)
		return spec
	})
	if err != nil {
		return err
	}
	s.start(ctx)
	defer r.cfg.OnMeasure(r.name)()
	n := rules * int(lasts/time.Second)
	s.meter.reset()
	cpu, theirs := cpuTime(), c.totals().CPU
	show := r.progress("ticks")
	for s.sent() < n && err == nil {
		show(s.sent(), n)
		err = pause(ctx, 100*time.Millisecond)
	}
	// And they run.
	err = errors.Join(err, c.await(ctx, func() bool { return c.sum().Finished >= int64(n) }))
	s.ticks.mu.Lock()
	defer s.ticks.mu.Unlock()
	late := make([]float64, 0, len(s.ticks.late))
	for _, ms := range s.ticks.late {
		late = append(late, ms)
	}
	r.res.measured(len(late), s.ticks.last.Sub(from))
	var t totals
	s.meter.counts(&t)
	r.res.counted(t)
	r.res.Latency = percentiles(late)
	if each := (&spent{tasks: len(late), cpu: cpuTime() - cpu}).cpuEach(); each != nil {
		r.note("processor time a tick: engine and server %.0f µs, worker %.0f µs", *each, float64(c.totals().CPU-theirs)/1e3/float64(len(late)))
	}
	return err
}

func (s *scheduler) sent() int { return s.ticks.sent() }

// rulesAtRest measures what an engine costs that has n enabled rules, one of which is due
// each second. With one rule that is the same each time.
func rulesAtRest(ctx context.Context, r *run, n int) (err error) {
	s, _, end, err := r.ticking(ctx)
	if end != nil {
		defer func() { err = errors.Join(err, end()) }()
	}
	if err != nil {
		return err
	}
	cron := fmt.Sprintf("@every %ds", n)
	now := r.arena.store.Clock.Now().Truncate(time.Second)
	err = r.rules(ctx, s.Periodic, n, func(i int) periodic.Spec {
		// The first ones are due while the others are still being made, and are caught up.
		return r.tickSpec(fmt.Sprint("rule ", i), cron, now.Add(time.Duration(i+1)*time.Second))
	})
	if err != nil {
		return err
	}
	s.start(ctx)
	if err := pause(ctx, 3*time.Second); err != nil { // what begins has ended
		return err
	}
	defer r.cfg.OnMeasure(r.name)()
	s.meter.reset()
	s.ticks.reset()
	cpu, began := cpuTime(), r.cfg.Clock.Monotonic()
	lasts := r.cfg.lasting(time.Minute, 10*time.Second)
	show := r.progress("ticks")
	for passed := time.Duration(0); passed < lasts && err == nil; passed = r.cfg.Clock.Monotonic() - began {
		show(int(passed/time.Second), int(lasts/time.Second))
		err = pause(ctx, min(time.Second, lasts-passed))
	}
	took, used := r.cfg.Clock.Monotonic()-began, cpuTime()-cpu
	var t totals
	s.meter.counts(&t)
	s.ticks.mu.Lock()
	defer s.ticks.mu.Unlock()
	r.res.measured(len(s.ticks.late), took)
	r.res.counted(t)
	var late []float64
	for _, ms := range s.ticks.late {
		late = append(late, ms)
	}
	r.res.Latency = percentiles(late)
	r.note("commands a minute: %s", perMinute(t.Commands, took))
	r.note("documents read a minute: %.0f; processor time, server included: %.2f ms a second",
		float64(s.ticks.read)/took.Minutes(), millis(used)/took.Seconds())
	return err
}
