package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/scratch"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of what the demo can be asked for.
const (
	DefaultTasks   = 2000
	DefaultWorkers = 3
	MinTasks       = 100
	MaxTasks       = 200_000
	MinWorkers     = 3 // one is killed, one is frozen, one must be left
	MaxWorkers     = 32
)

// Config of a demo.
type Config struct {
	Tasks   int
	Workers int
	// Concurrency of each worker. Defaults to 24.
	Concurrency int
	// URI of a MongoDB deployment; "" = an embedded server of the demo's own.
	URI string
	// Database that the demo makes on it and drops afterwards.
	Database string
	// Executable is this binary, which is started again as workers.
	Executable string
	// Environ is what the workers get, less the settings of mscheduler.
	Environ []string
	// Watch is where what happens is told.
	Watch io.Writer
	Clock clock.Clock // nil = the machine's
}

// Validate says what is wrong with the Config.
func (c *Config) Validate() error {
	var errs []error
	if c.Tasks < MinTasks || c.Tasks > MaxTasks {
		errs = append(errs, input.Invalid("--tasks", "is %d; want %d to %d", c.Tasks, MinTasks, MaxTasks))
	}
	if c.Workers < MinWorkers || c.Workers > MaxWorkers {
		errs = append(errs, input.Invalid("--workers", "is %d; want %d to %d: one is killed, one is frozen, one must be left", c.Workers, MinWorkers, MaxWorkers))
	}
	return errors.Join(errs...)
}

// demo is one run. The fleet's lock guards what the workers, the target and the view know.
type demo struct {
	Config
	fleet.Fleet
	reports
	dir    string // for the tasks' file and the workers' logs
	db     *scratch.Database
	target *target
	view   *view
}

// Run runs the demo to its end. The summary says whether something was lost; an error,
// that the demo itself did not work. Everything it made is gone afterwards, except the
// workers' logs after an error.
func Run(ctx context.Context, c Config) (s Summary, err error) {
	if err := fleet.Supported(); err != nil {
		return s, err
	}
	c.Clock = cmp.Or(c.Clock, clock.System())
	c.Concurrency = cmp.Or(c.Concurrency, 24)
	d := &demo{Config: c, reports: reports{
		started: map[string]*calls{}, lost: map[string]map[string]struct{}{}, takers: map[[2]string]int{},
	}}
	d.dir, err = os.MkdirTemp("", "mscheduler-demo-")
	if err != nil {
		return s, fmt.Errorf("creating a directory: %w", err)
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	d.target, err = startTarget(&d.Fleet)
	if err != nil {
		return s, err
	}
	defer d.target.close()
	d.db, err = scratch.Open(ctx, scratch.Options{User: "demo", URI: c.URI, Name: c.Database})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.db.Close(ctx)) }()
	d.view = newView(d)
	defer d.view.close()
	defer func() { _ = d.Stop(ctx, 0) }() // after an error, which counts
	return d.play(ctx)
}

// play is the demo itself.
func (d *demo) play(ctx context.Context) (s Summary, err error) {
	began := d.Clock.Monotonic()
	d.view.start()
	for _, step := range []func(context.Context) error{
		d.startWorkers,
		d.send,
		func(ctx context.Context) error { return d.reach(ctx, 20) },
		func(ctx context.Context) error { s.killed, err = d.killOne(ctx); return err },
		func(ctx context.Context) error { return d.reach(ctx, 45) },
		func(ctx context.Context) error { s.frozen, err = d.freezeOne(ctx); return err },
		d.drain,
		func(ctx context.Context) error { return d.runFlow(ctx, &s) },
		func(ctx context.Context) error { return d.Stop(ctx, 30*time.Second) },
	} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	s.WallSeconds = (d.Clock.Monotonic() - began).Round(time.Millisecond).Seconds()
	d.view.note("checking each task")
	d.view.close()
	return s, d.verify(ctx, &s)
}

// send writes the file and sends it with the command that a user would use.
func (d *demo) send(ctx context.Context) error {
	path := filepath.Join(d.dir, "tasks.jsonl")
	if err := writeTasks(path, d.Tasks, d.target.url); err != nil {
		return err
	}
	began := d.Clock.Monotonic()
	p, err := fleet.Start(d.command("mscheduler send", "send", "--file", path))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	if err := p.Wait(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("mscheduler send --file %s: %w", path, err))
	}
	d.view.note("mscheduler send --file tasks.jsonl: %s (%.1f s)", p.Output(), (d.Clock.Monotonic() - began).Seconds())
	d.view.note("they become due over %.0f s; a lease is %v, extended every %v", spread(d.Tasks).Seconds(), lease, pingInterval)
	d.Set(func() { d.view.sending = false })
	return nil
}

// reach waits until that share of the tasks had their effect.
func (d *demo) reach(ctx context.Context, percent int) error {
	return d.until(ctx, fmt.Sprintf("%d %% of the tasks", percent), func() bool { return d.target.done*100 >= d.Tasks*percent })
}

// drain waits until every task has ended.
func (d *demo) drain(ctx context.Context) error {
	ended := []model.Status{model.StatusSuccess, model.StatusFailure, model.StatusPending, model.StatusCancelled}
	return d.poll(ctx, "the last tasks to end", func() (bool, error) {
		n, err := d.db.Store.History.Count(ctx, store.Filter{Statuses: ended})
		return n >= int64(d.Tasks), err
	})
}

// actTime is for how long nothing may move while something is waited for. A wait takes longer with many tasks, or on
// a slow machine; a demo that hangs says what it waited for.
const actTime = 45 * time.Second

// lookTime is between two looks at whether something has moved.
const lookTime = 200 * time.Millisecond

// moved is what moves: the tasks with an effect, and the workers that work. It is read under the fleet's lock.
func (d *demo) moved() (n [2]int) {
	n[0] = d.target.done
	for _, w := range d.workers {
		if w.state == working {
			n[1]++
		}
	}
	return n
}

// waiting returns a context that ends when nothing has moved for [actTime]. The caller ends it.
func (d *demo) waiting(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	var last, now [2]int
	d.Look(func() { last = d.moved() })
	since := d.Clock.Monotonic()
	go func() {
		for clock.Pause(ctx, lookTime) {
			at := d.Clock.Monotonic()
			if d.Look(func() { now = d.moved() }); now != last {
				last, since = now, d.Clock.Monotonic()
			} else if at-since > actTime {
				end(fmt.Errorf("nothing has moved for %v; waited for %s", actTime, what))
			}
		}
	}()
	return ctx, func() { end(nil) }
}

// until waits for a condition on what is known, which is looked at whenever that changes.
func (d *demo) until(ctx context.Context, what string, met func() bool) error {
	ctx, end := d.waiting(ctx, what)
	defer end()
	return d.Await(ctx, met)
}

// poll waits for a condition of the database.
func (d *demo) poll(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, end := d.waiting(ctx, what+"; the workers' logs are in "+d.dir)
	defer end()
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		if err := d.Await(ctx, func() bool { return true }); err != nil { // a worker ended by itself
			return err
		}
		if !clock.Pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}
