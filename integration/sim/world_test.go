package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

// How long it takes, in virtual time.
const (
	troubled = 45 * time.Second // of faults
	patience = 15 * time.Minute // until everything must have ended, after that
)

// world is a deployment.
type world struct {
	history
	seed   uint64
	db     *database
	healed atomic.Bool // nothing goes wrong any more

	mu      sync.Mutex
	procs   []*process // those that live
	gone    []*process
	running map[*execution]bool
	ran     promises.Ran
	asked   promises.Asked // what was answered

	observer *mongo.Client
	look     *proxy.Proxy
}

// execution is one run of a handler.
type execution struct {
	promises.Execution
	p    *process
	ctx  context.Context
	task string
	typ  string
}

func newWorld(seed uint64, dir string) *world {
	w := &world{
		seed: seed, db: &database{path: filepath.Join(dir, "db")},
		running: map[*execution]bool{}, ran: promises.Ran{}, asked: promises.NewAsked(),
	}
	w.began = time.Now()
	return w
}

// simulate plays a seed, and returns its history, also where a promise was broken.
func simulate(t *testing.T, seed uint64, trouble func(w *world)) *world {
	t.Helper()
	w := newWorld(seed, quickDir(t))
	if err := w.play(trouble); err != nil {
		w.violated("%v", err)
	}
	return w
}

// quickDir is a directory in memory, where there is one: nobody waits for a disk.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "mscheduler-sim-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) play(trouble func(w *world)) (err error) {
	if err := w.db.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.db.stop()) }()
	clients := newPipes()
	w.look = proxy.Between(clients, w.db.dial)
	defer w.look.Close()
	if w.observer, err = connect(clients); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.observer.Disconnect(context.Background())) }()
	if err := w.set(); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	w.healed.Store(true) // the schema is made in peace
	for n := range 3 {
		if err := w.join(fmt.Sprintf("p%d", n+1)); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second) // all have read the database's clock, and so will notice when it is set
	w.healed.Store(false)
	var asking sync.WaitGroup
	for n, p := range w.living() {
		asking.Go(func() { w.asks(p, n) })
	}
	trouble(w)
	w.heal()
	asking.Wait()
	w.check(w.settled())
	w.mu.Lock()
	all := append(w.gone, w.procs...)
	w.mu.Unlock()
	for _, p := range all {
		err = errors.Join(err, p.end())
	}
	return err
}

// set stores what there is before the processes: the limit and the rule.
func (w *world) set() error {
	ctx := context.Background()
	p, err := producer.New(producer.Config{Database: w.observer.Database("sim")})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(ctx) }()
	if _, err := admin.New(p).PutType(ctx, model.TaskType{Code: promises.Limited, MaxRunning: promises.AtOnce}); err != nil {
		return err
	}
	rules, err := periodic.New(periodic.Config{Database: w.observer.Database("sim")})
	if err != nil {
		return err
	}
	r, err := rules.Create(ctx, promises.Rule(w.db.now(), troubled))
	if err == nil {
		_, err = rules.Enable(ctx, r.ID, r.Version)
	}
	return err
}

// join adds a process.
func (w *world) join(name string) error {
	p, err := w.launch(name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs = append(w.procs, p)
	return nil
}

func (w *world) living() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*process(nil), w.procs...)
}

// asks has a process hand over work.
func (w *world) asks(p *process, n int) {
	for i := range 6 {
		time.Sleep(p.draw.between(0, troubled/8))
		typ, key := []string{promises.Work, promises.Limited}[p.draw.below(2)], fmt.Sprintf("%d-%d", n, i)
		o := promises.Options()
		var sent producer.Sent
		if p.sure(fmt.Sprintf("sends %s/%s", typ, key), func(ctx context.Context) (err error) {
			sent, err = p.producer.SendJSON(ctx, typ, []byte(`{}`), producer.Key(key), producer.Lease(o.PingInterval, o.WorkerTimeout),
				producer.Retry(*o.Retry), producer.MaxLapses(*o.MaxLapses), producer.In(p.draw.between(0, 5*time.Second)))
			return err
		}) {
			w.mu.Lock()
			w.asked.Tasks[sent.ID] = true
			w.mu.Unlock()
		}
	}
	key := fmt.Sprint(n)
	if p.sure("starts the flow "+key, func(ctx context.Context) error {
		_, err := p.flows.Start(ctx, promises.Flow(key))
		return err
	}) {
		w.mu.Lock()
		w.asked.Flows["-/"+key] = true
		w.mu.Unlock()
	}
	if p.sure("publishes the plan "+key, func(ctx context.Context) error {
		_, err := p.plans.Publish(ctx, promises.Plan(key))
		return err
	}) {
		w.mu.Lock()
		w.asked.Plans["-/"+key] = true
		w.mu.Unlock()
	}
}

// heal ends all that goes wrong.
func (w *world) heal() {
	w.note("", "all is well again")
	w.healed.Store(true)
	for _, p := range w.living() {
		p.silent.Store(0)
		p.proxy.Mend()
	}
}

// begins notes that a handler begins, and looks whether it may.
func (w *world) begins(p *process, ctx context.Context, e *consumer.Execution) *execution {
	x := &execution{Execution: promises.Execution{Name: e.ID, Began: time.Now()}, p: p, ctx: ctx, task: e.TaskID, typ: e.Type}
	w.note(p.name, "runs %s, try %d, token %v", e.TaskID, e.Attempt, e.Token)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead.Load() {
		return x
	}
	together := 1
	for other := range w.running {
		if other.p.dead.Load() || other.ctx.Err() != nil {
			continue // its machine is dead, or it was told to stop
		}
		if other.task == x.task {
			w.violated("%s runs on %s and on %s", x.task, other.p.name, p.name)
		}
		if other.typ == x.typ {
			together++
		}
	}
	if x.typ == promises.Limited && together > promises.AtOnce {
		w.violated("%d tasks of the type %s run, and %d may", together, promises.Limited, promises.AtOnce)
	}
	w.running[x] = true
	w.ran[x.task] = append(w.ran[x.task], &x.Execution)
	return x
}

func (w *world) ends(x *execution, err error) {
	if x.p.dead.Load() {
		w.mu.Lock()
		delete(w.running, x)
		w.mu.Unlock()
		return
	}
	if err != nil {
		w.note(x.p.name, "fails %s: %v", x.task, err)
	} else {
		w.note(x.p.name, "did %s", x.task)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, x)
	x.Ended = time.Now()
	if err != nil {
		x.Err = err.Error()
	}
}
