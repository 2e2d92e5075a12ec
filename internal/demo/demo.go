package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
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
	// Watch is where what happens is told, and Terminal whether it can be redrawn.
	Watch    io.Writer
	Terminal bool
	Clock    clock.Clock // nil = the machine's
}

// Validate says what is wrong with the Config.
func (c *Config) Validate() error {
	var errs []error
	if c.Tasks < MinTasks || c.Tasks > MaxTasks {
		errs = append(errs, model.Invalid("--tasks", "is %d; want %d to %d", c.Tasks, MinTasks, MaxTasks))
	}
	if c.Workers < MinWorkers || c.Workers > MaxWorkers {
		errs = append(errs, model.Invalid("--workers", "is %d; want %d to %d: one is killed, one is frozen, one must be left", c.Workers, MinWorkers, MaxWorkers))
	}
	return errors.Join(errs...)
}

// demo is one run.
type demo struct {
	Config
	clock  clock.Clock
	dir    string // for the tasks' file and the workers' logs
	uri    string
	client *mongo.Client
	store  *store.Store
	target *target
	fleet  *fleet
	view   *view
}

// Run runs the demo to its end. The summary says whether something was lost; an error,
// that the demo itself did not work. Everything it made is gone afterwards, except the
// workers' logs after an error.
func Run(ctx context.Context, c Config) (s Summary, err error) {
	if err := supported(); err != nil {
		return s, err
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Concurrency == 0 {
		c.Concurrency = 24
	}
	d := &demo{Config: c, clock: c.Clock}
	d.dir, err = os.MkdirTemp("", "mscheduler-demo-")
	if err != nil {
		return s, fmt.Errorf("making a directory: %w", err)
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	d.target, err = startTarget()
	if err != nil {
		return s, err
	}
	defer d.target.close()
	closeDatabase, err := d.openDatabase(ctx)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, closeDatabase()) }()
	d.view = newView(d)
	defer d.view.close()
	d.fleet = newFleet(d.view.event)
	defer d.fleet.end()
	return d.play(ctx)
}

// openDatabase opens the database that the demo may do with as it likes.
func (d *demo) openDatabase(ctx context.Context) (closing func() error, err error) {
	d.uri = d.URI
	var server *embedded.Server
	if d.uri == "" {
		if server, err = embedded.Start(embedded.Options{}); err != nil {
			return nil, err
		}
		d.uri = server.URI()
	}
	d.client, err = mongo.Connect(options.Client().ApplyURI(d.uri).SetAppName("mscheduler demo").SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	db := d.client.Database(d.Database)
	closing = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err := db.Drop(ctx)
		if err != nil {
			err = fmt.Errorf("dropping the demo's database %s: %w", d.Database, err)
		}
		err = errors.Join(err, d.client.Disconnect(ctx))
		if server != nil {
			err = errors.Join(err, server.Close())
		}
		return err
	}
	if d.store, err = store.Open(store.Config{Database: db}); err == nil {
		err = d.store.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, closing())
	}
	return closing, nil
}

// play is the demo itself.
func (d *demo) play(ctx context.Context) (s Summary, err error) {
	began := d.clock.Monotonic()
	d.view.start()
	if err := d.startWorkers(ctx); err != nil {
		return s, err
	}
	if err := d.send(ctx); err != nil {
		return s, err
	}
	if err := d.reach(ctx, 20); err != nil {
		return s, err
	}
	if s.killed, err = d.killOne(ctx); err != nil {
		return s, err
	}
	if err := d.reach(ctx, 45); err != nil {
		return s, err
	}
	if s.frozen, err = d.freezeOne(ctx); err != nil {
		return s, err
	}
	if err := d.drain(ctx); err != nil {
		return s, err
	}
	stop, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := d.fleet.stop(stop); err != nil {
		return s, err
	}
	s.WallSeconds = (d.clock.Monotonic() - began).Round(time.Millisecond).Seconds()
	d.view.note("every task has ended; now looking whether that is true")
	d.view.close()
	return s, d.verify(ctx, &s)
}

func (d *demo) startWorkers(ctx context.Context) error {
	ids := make([]string, d.Workers)
	for i := range ids {
		ids[i] = fmt.Sprintf("worker-%d", i+1)
		if err := d.fleet.start(d.Config, d.dir, ids[i], d.uri, d.Database); err != nil {
			return err
		}
	}
	d.view.note("started %d workers, each a process of its own", d.Workers)
	// They say of themselves in the database that they live.
	return d.poll(ctx, "the workers to start", func() (bool, error) {
		workers, err := d.store.Workers(ctx)
		if err != nil {
			return false, err
		}
		for _, doc := range workers {
			for _, w := range d.fleet.all() {
				if w.id == doc.ID && d.fleet.stateOf(w) == starting {
					d.fleet.become(w, working)
				}
			}
		}
		return len(d.fleet.live()) == d.Workers, nil
	})
}

// send writes the file and sends it with the command that a user would use.
func (d *demo) send(ctx context.Context) error {
	path := filepath.Join(d.dir, "tasks.jsonl")
	if err := writeTasks(path, d.Tasks, d.target.url); err != nil {
		return err
	}
	began := d.clock.Monotonic()
	cmd := exec.CommandContext(ctx, d.Executable, "send", "--file", path)
	cmd.Env = append(withoutSettings(d.Environ), "MSCHEDULER_MONGODB_URI="+d.uri, "MSCHEDULER_DATABASE="+d.Database)
	ownGroup(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mscheduler send --file %s: %w: %s", path, err, strings.TrimSpace(out.String()))
	}
	d.view.note("mscheduler send --file tasks.jsonl: %s (%.1f s)", strings.TrimSpace(out.String()), (d.clock.Monotonic() - began).Seconds())
	d.view.note("they become due over %.0f s; a lease is %v, extended every %v", spread(d.Tasks).Seconds(), lease, pingInterval)
	d.view.sent()
	return nil
}

// reach waits until that share of the tasks had their effect.
func (d *demo) reach(ctx context.Context, percent int) error {
	return d.until(ctx, fmt.Sprintf("%d %% of the tasks", percent), func() bool {
		return d.target.happened()*100 >= d.Tasks*percent
	})
}

// drain waits until every task has ended.
func (d *demo) drain(ctx context.Context) error {
	ended := []model.Status{model.StatusSuccess, model.StatusFailure, model.StatusPending, model.StatusCancelled}
	return d.poll(ctx, "the last tasks to end", func() (bool, error) {
		n, err := d.store.Count(ctx, store.Filter{Statuses: ended})
		return n >= int64(d.Tasks), err
	})
}

const pollEvery = 50 * time.Millisecond

// poll waits for a condition of the database.
func (d *demo) poll(ctx context.Context, what string, met func() (bool, error)) error {
	limit := time.NewTimer(actTime + spread(d.Tasks))
	defer limit.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := met()
		if ok || err != nil {
			return err
		}
		if err := d.fleet.broken(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("waited for %s in vain; the workers' logs: %s", what, d.dir)
		}
	}
}
