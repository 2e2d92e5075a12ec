package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// everySecond is how many rules of every second the first part has, and so ticks a second.
const everySecond = 500

// periodics measure an engine of this process. A worker runs the tasks, so that their ends
// are decided, too.
func periodics(c *Config) []part {
	return []part{tickLateness(c), rulesAtRest(c, "periodic/one", 1), rulesAtRest(c, "periodic/many", c.or(c.Tasks, 100_000, 5_000))}
}

// tickLateness measures how long after their nominal time the tasks of rules that all fire
// each second are stored.
func tickLateness(c *Config) part {
	lasts := c.lasting(30*time.Second, 5*time.Second).Truncate(time.Second)
	rules := c.or(c.Tasks, everySecond, everySecond)
	n := rules * int(lasts/time.Second)
	var s *scheduler
	var from time.Time
	return part{
		name: "periodic/ticks", workers: 1,
		load: func(ctx context.Context, r *run) (err error) {
			if s, err = r.schedule(ctx); err != nil {
				return err
			}
			from = r.db.Store.Clock.Now().Truncate(time.Second).Add(4 * time.Second)
			err = r.rules(ctx, s.Periodic, rules, func(i int) schedule.Spec {
				spec := r.tickSpec(i, "* * * * * *", from)
				spec.EndAt = from.Add(lasts)
				return spec
			})
			s.start()
			return err
		},
		measure: func(ctx context.Context, r *run) (err error) {
			cpu, theirs := cpuTime(), r.crew.totals().CPU
			show := r.progress("ticks")
			var last time.Time
			for len(r.late) < n && err == nil {
				show(len(r.late), n)
				err = pause(ctx, 100*time.Millisecond)
				r.late, last, _ = s.ticks.seen()
			}
			err = errors.Join(err, r.awaitEnds(ctx, "ending", n)) // and they run
			tasks := len(r.late)
			r.res.measured(tasks, max(last.Sub(from), time.Duration(tasks)*time.Second/time.Duration(rules))) // a tick stands for its second
			if each := (&spent{tasks: tasks, cpu: cpuTime() - cpu}).cpuEach(); each != nil {
				r.note("processor time a tick: engine and server %.0f µs, worker %.0f µs", *each, float64(r.crew.totals().CPU-theirs)/1e3/float64(tasks))
			}
			return err
		},
	}
}

// rulesAtRest measures what an engine with n enabled rules costs, together with the worker of its ticks. One rule is
// due each second; with n = 1 it is always the same rule.
func rulesAtRest(c *Config, name string, n int) part {
	var s *scheduler
	return part{
		name: name, workers: 1,
		load: func(ctx context.Context, r *run) (err error) {
			if s, err = r.schedule(ctx); err != nil {
				return err
			}
			r.counts = func() totals { return s.meter.totals().plus(r.crew.totals(), 1) }
			now := r.db.Store.Clock.Now().Truncate(time.Second)
			err = r.rules(ctx, s.Periodic, n, func(i int) schedule.Spec {
				// The first ones are due while the others are still being made, and are caught up.
				return r.tickSpec(i, fmt.Sprintf("@every %ds", n), now.Add(time.Duration(i+1)*time.Second))
			})
			if err != nil {
				return err
			}
			s.start()
			err = pause(ctx, 3*time.Second) // what begins has ended
			s.ticks.reset()
			return err
		},
		measure: func(ctx context.Context, r *run) error {
			cpu, before, engine := cpuTime(), r.counts(), s.meter.totals()
			took, err := r.rest(ctx, "ticks", c.lasting(time.Minute, 10*time.Second))
			late, _, read := s.ticks.seen()
			for len(late) == 0 && err == nil { // a busy machine may come to none in so short a time
				var more time.Duration
				more, err = r.rest(ctx, "ticks", time.Second)
				took += more
				late, _, read = s.ticks.seen()
			}
			used := r.counts().plus(before, -1)
			cpu = cpuTime() - cpu
			r.late = late
			r.res.measured(len(late), took)
			r.note("commands a minute: %s", perMinute(used.Commands, took))
			r.note("of the engine alone: %s; documents that it read a minute: %.0f", perMinute(s.meter.totals().plus(engine, -1).Commands, took), float64(read)/took.Minutes())
			r.note("processor time: engine and server %.2f ms a second, worker %.2f ms a second", millis(cpu)/took.Seconds(), float64(used.CPU)/1e6/took.Seconds())
			return err
		},
	}
}

// scheduler is an engine of this process, with what it sends counted.
type scheduler struct {
	*periodic.Periodic
	ticks *tickWatch
	meter *meter
	start func()
}

// schedule hires the worker for the ticks' tasks and makes an engine, whose commands are
// those that the part counts.
func (r *run) schedule(ctx context.Context) (*scheduler, error) {
	if err := r.readClock(ctx); err != nil {
		return nil, err
	}
	if err := r.hire(1, nil); err != nil {
		return nil, err
	}
	if _, err := r.crew.begin(ctx); err != nil {
		return nil, err
	}
	s, err := r.scheduler(ctx)
	if err == nil {
		r.counts = s.meter.totals
	}
	return s, err
}

// scheduler makes an engine of rules, which counts what it sends.
func (r *run) scheduler(ctx context.Context) (*scheduler, error) {
	s := &scheduler{ticks: &tickWatch{now: r.db.Store.Clock.Now, sending: map[int64][]tickSent{}, late: map[string]float64{}}}
	s.meter = &meter{also: &event.CommandMonitor{Started: s.ticks.started, Succeeded: s.ticks.succeeded}}
	client, err := s.meter.connect(r.db.URI)
	if err != nil {
		return nil, err
	}
	r.closes = append(r.closes, client.Disconnect)
	s.Periodic, err = periodic.New(periodic.Config{Database: client.Database(r.db.Name), Clock: r.cfg.Clock})
	s.start = func() {
		ctx, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		r.closes = append(r.closes, func(context.Context) error { end(); return <-ended })
	}
	return s, err
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
	clear(w.late)
	w.read = 0
}

// seen is how late each task was stored, when the last one was, and how many documents were
// read.
func (w *tickWatch) seen() (late []float64, last time.Time, read int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.late)), w.last, w.read
}

// tickSpec is rule number i, whose ticks send no-op tasks.
func (r *run) tickSpec(i int, cron string, from time.Time) schedule.Spec {
	return schedule.Spec{
		Name: fmt.Sprint("rule ", i), Cron: cron, StartAt: from, Type: noop.Name(), Args: r.args(),
		CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Cap: 10_000},
	}
}

// rules makes and enables n rules by the API, which says what a rule's document is, and by
// copies of that.
func (r *run) rules(ctx context.Context, p *periodic.Periodic, n int, spec func(i int) schedule.Spec) error {
	first, err := p.Create(ctx, spec(0))
	if err == nil {
		first, err = p.Enable(ctx, first.ID, 0)
	}
	if err != nil {
		return err
	}
	show := r.progress("making rules")
	coll := r.db.Client.Database(r.db.Name, options.Database().SetRegistry(codec.Registry())).Collection("periodic_rules")
	return inTurn(ctx, n-1, 1000, 1, func(ctx context.Context, from, to int) error {
		var docs []*schedule.Rule
		for i := from + 1; i <= to; i++ { // number 0 is the first
			c, s := *first, spec(i)
			c.ID, c.Name, c.Living, c.StartAt = fmt.Sprintf("%s-%d", first.ID, i), s.Name, input.RuleName("", s.Name), s.StartAt
			c.NextFireAt = first.NextFireAt.Add(c.StartAt.Sub(first.StartAt))
			docs = append(docs, &c)
		}
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			return fmt.Errorf("making rules: %w", err)
		}
		show(to+1, n)
		return nil
	})
}
