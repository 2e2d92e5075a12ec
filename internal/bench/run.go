package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/scratch"
	"github.com/mscheduler/mscheduler/producer"
)

// ErrRefused is what the error is when the database or the file is there already.
var ErrRefused = scratch.ErrRefused

// stopTime bounds how long a part takes to end what it began.
const stopTime = 15 * time.Second

// run is one part under way.
type run struct {
	part
	cfg     *Config
	db      *scratch.Database
	meter   *meter // of the bench's own client
	crew    *crew
	sender  *producer.Producer // made by producer
	res     *Result
	extra   []Result // beside its own
	earlier *results
	floor   *floor // nil = it is not measured

	began  time.Time     // when it is measured
	counts func() totals // of the measured clients. Defaults to those of the workers.
	late   []float64     // milliseconds, for the percentiles
	cpu    *float64      // microseconds of processor time a task
	writes spent         // by the yardstick, before and after
	apart  time.Duration // processor time within measure that does not count: of a yardstick
	closes []func(context.Context) error
}

func runPart(ctx context.Context, c *Config, p part, all *results, result func(Result) error) (err error) {
	r := &run{part: p, cfg: c, earlier: all, meter: &meter{}, crew: &crew{cfg: c}}
	r.counts = r.crew.totals
	r.res = &Result{Scenario: p.name, Processes: max(p.workers, 1), Concurrency: cmp.Or(p.concurrency, c.Concurrency)}
	r.db, err = scratch.Open(ctx, scratch.Options{User: "bench", URI: c.URI, Path: c.Path, Name: c.Database, Client: r.meter.attach, Clock: c.Clock})
	if err != nil {
		return err
	}
	r.res.Engine = r.db.Engine
	if err = r.drive(ctx); err == nil && r.raw.tasks > 0 {
		err = r.measureAgain(ctx)
	}
	err = errors.Join(err, r.db.Close(ctx))
	r.res.Partial = err != nil
	if err != nil && r.res.Tasks == 0 && r.res.RawPerSecond == nil && len(r.res.Commands) == 0 {
		return err // nothing was measured
	}
	for _, x := range append([]Result{*r.res}, r.extra...) {
		all.list = append(all.list, x)
		err = errors.Join(err, result(x))
	}
	return err
}

// drive carries a part out: raw writes, load, workers, measure.
func (r *run) drive(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if r.raw.tasks > 0 {
		if err := r.measureRaw(ctx); err != nil {
			return err
		}
	}
	if r.load != nil {
		if err := r.load(ctx, r); err != nil {
			return err
		}
	}
	busy := len(r.crew.members) // hired by load
	if err := r.hire(r.workers, r.orders); err != nil {
		return err
	}
	if r.settle > 0 {
		if err := r.awaitWatch(ctx, min(2, r.workers-busy)); err != nil { // there are two seats for a set of types
			return err
		}
	}
	if !r.profiles {
		defer r.cfg.OnMeasure(r.name)()
	}
	before, cpu := r.counts(), cpuTime()
	var used usage
	if r.usage {
		used = r.serverUsage(ctx)
	}
	if r.began, err = r.crew.begin(ctx); err == nil {
		err = r.measure(ctx, r)
	}
	t := r.counts().plus(before, -1)
	r.res.counted(t)
	r.res.Latency = percentiles(r.late)
	if r.settle == 0 { // else it was mostly waiting
		r.cpu = (&spent{tasks: r.res.Tasks, cpu: cpuTime() - cpu - r.apart + time.Duration(t.CPU)}).cpuEach()
	}
	if err == nil && r.usage {
		r.usedBy(used, r.serverUsage(ctx))
	}
	r.res.Partial = err != nil
	if r.after != nil {
		r.after(r)
	}
	return err
}

// close ends what the part began, the last thing first.
func (r *run) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	_ = r.crew.Stop(ctx, stopTime) // what counts has been measured
	var errs []error
	for _, f := range slices.Backward(r.closes) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

func (r *run) progress(step string) func(done, total int) {
	return func(done, total int) { r.cfg.OnProgress(r.name, step, done, total) }
}

func (r *run) note(format string, values ...any) {
	r.res.Notes = append(r.res.Notes, fmt.Sprintf(format, values...))
}

// also adds a result beside the part's own.
func (r *run) also(name string, s span, partial bool) {
	x := Result{Scenario: name, Engine: r.res.Engine, Processes: r.res.Processes, Concurrency: r.res.Concurrency, Partial: partial}
	x.measured(s.tasks, s.took)
	r.extra = append(r.extra, x)
}

// ended sets the rate from the beginning to the last end.
func (r *run) ended() {
	t := r.crew.totals()
	r.res.measured(int(t.Finished), time.Unix(0, t.LastFinish).Sub(r.began))
}

// await waits until the workers have reported so many, which count tells under the lock.
func (r *run) await(ctx context.Context, step string, n int, count func() int) error {
	show := r.progress(step)
	return r.crew.Await(ctx, func() bool {
		done := count()
		show(done, n)
		return done >= n
	})
}

// awaitEnds waits until so many tasks have ended.
func (r *run) awaitEnds(ctx context.Context, step string, n int) error {
	return r.await(ctx, step, n, func() int { return int(r.crew.sum().Finished) })
}

// awaitStarts waits until the workers have reported so many starts.
func (r *run) awaitStarts(ctx context.Context, step string, n int) error {
	return r.await(ctx, step, n, func() int { return len(r.crew.starts) })
}

// hire starts workers until there are so many.
func (r *run) hire(n int, orders func(*run, *spec)) error {
	uri, build := r.db.URI, cmp.Or(r.build, r.cfg.Executable)
	if r.rtt > 0 {
		far, err := distant(uri, r.rtt)
		if err != nil {
			return err
		}
		r.closes = append(r.closes, func(context.Context) error { far.Close(); return nil })
		uri = far.uri
	}
	for i := len(r.crew.members); i < n; i++ {
		s := spec{URI: uri, Database: r.db.Name, WorkerID: workerID(i), Concurrency: r.res.Concurrency, Own: !r.here}
		if s.Own {
			s.Profile = r.cfg.WorkerProfile(r.name, s.WorkerID)
		}
		if orders != nil {
			orders(r, &s)
		}
		if err := r.crew.hire(s, build); err != nil {
			return err
		}
	}
	return nil
}

func workerID(i int) string { return fmt.Sprintf("bench-%d", i+1) }

// watchTime is how long a worker may take to open its change stream; where there are
// none it polls.
const watchTime = 10 * time.Second

// awaitWatch lets the workers begin, and waits until so many watch and have been left alone
// for a while.
func (r *run) awaitWatch(ctx context.Context, wanted int) error {
	if _, err := r.crew.begin(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	err := r.crew.Await(limited, func() bool { return r.crew.watching() >= wanted })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		r.note("no change stream: the workers poll")
		err = nil
	}
	if err != nil {
		return err
	}
	return pause(ctx, r.settle)
}

// rest waits for a while in which the workers have nothing to do.
func (r *run) rest(ctx context.Context, step string, lasts time.Duration) (took time.Duration, err error) {
	show := r.progress(step)
	began := r.cfg.Clock.Monotonic()
	for took < lasts && err == nil {
		show(int(took/time.Second), int(lasts/time.Second))
		err = pause(ctx, min(time.Second, lasts-took))
		took = r.cfg.Clock.Monotonic() - began
	}
	return took, err
}

// readClock reads the database's clock a few times, because times of less than a slow answer are
// measured by it: together the readings are as good as the quickest one.
func (r *run) readClock(ctx context.Context) error {
	for range 5 {
		if err := r.db.Store.ReadClock(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	clock.Pause(ctx, d)
	return context.Cause(ctx)
}

// measureRaw comes first in every part that has a yardstick.
func (r *run) measureRaw(ctx context.Context) error {
	s, err := raw(ctx, r.db.DB, r.raw, r.cfg.ArgsBytes, r.progress("raw writes"))
	if err != nil {
		return err
	}
	r.writes.add(s)
	r.res.yardstick(r.writes.rate())
	return nil
}

// measureAgain repeats the yardstick after the scenario, and the mean counts: on a machine
// that does other things, too, the two differ.
func (r *run) measureAgain(ctx context.Context) error {
	if err := r.measureRaw(ctx); err != nil {
		return err
	}
	for i := range r.extra {
		r.extra[i].yardstick(r.res.RawPerSecond)
	}
	if each := r.writes.cpuEach(); each != nil && r.cpu != nil && r.db.Embedded() {
		r.note("processor time a task, server included: raw %.0f µs, here %.0f µs, %.2f", *each, *r.cpu, *each / *r.cpu)
	}
	return nil
}
