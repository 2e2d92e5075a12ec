//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/producer"
)

// The first argument of a process that is started here.
const (
	asServer = "chaos-server"
	asChild  = "chaos-child"
)

// TestMain is also what the processes run.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	run := map[string]func([]string) error{asServer: serve, asChild: work}[os.Args[1]]
	if run == nil {
		os.Exit(m.Run())
	}
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The signals that fill the disk of the embedded server, and make room again.
const (
	diskFull = syscall.SIGUSR1
	diskRoom = syscall.SIGUSR2
)

// serve is the embedded server as a process.
func serve(args []string) error {
	signal.Ignore(syscall.SIGXFSZ) // a write beyond the limit fails instead
	file := filepath.Join(args[1], "db")
	told := make(chan os.Signal, 8)
	signal.Notify(told, diskFull, diskRoom)
	logger := zerolog.New(os.Stderr)
	if _, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:" + args[0], Path: file, Logger: &logger}); err != nil {
		return err
	}
	for s := range told {
		limit := syscall.Rlimit{}
		err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
		if limit.Cur = limit.Max; s == diskFull { // what lies in the second half cannot even be overwritten
			st, statErr := os.Stat(file)
			if err = errors.Join(err, statErr); err == nil {
				limit.Cur = uint64(st.Size() / 2)
			}
		}
		if err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)); err != nil {
			return err
		}
	}
	return nil
}

// settings configure a process. Its parent passes them as JSON.
type settings struct {
	Name, URI, Database, Target string
	Worker, Engine, Sender      bool
	NoStream                    bool
}

// report is a line that a process writes for its parent.
type report struct {
	Event  string `json:",omitempty"` // of the worker
	Stored string `json:",omitempty"` // what the sender was told that it is stored: one of kinds
	ID     string `json:",omitempty"`
	Result string `json:",omitempty"` // of a task that the sender awaited
	Wrong  string `json:",omitempty"` // why a request of a sender is refused for good
}

// movable is the clock that the product gets.
type movable struct{ off atomic.Int64 }

func (m *movable) Now() time.Time {
	return clock.System().Now().Add(time.Duration(m.off.Load())).Round(0)
}
func (*movable) Monotonic() time.Duration { return clock.System().Monotonic() }

// child is a process of the product.
type child struct {
	settings
	target target
	clock  movable
	db     *mongo.Database

	out sync.Mutex
	p   *producer.Producer
	f   *flow.Flows
	pl  *plan.Plans
}

// work is a worker, an engine, a sender, or all of them, until its standard input ends.
func work(args []string) error {
	c := &child{}
	if err := json.Unmarshal([]byte(args[0]), &c.settings); err != nil {
		return err
	}
	client, err := engine.Client(c.URI)
	if err != nil {
		return err
	}
	c.db, c.target = client.Database(c.Database), target(c.Target)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if by, err := time.ParseDuration(lines.Text()); err == nil {
				c.clock.off.Add(int64(by))
			}
		}
	}()
	runs, err := c.parts()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	errs := make(chan error, len(runs))
	for _, run := range runs {
		running.Go(func() {
			defer stop()
			errs <- run(ctx)
		})
	}
	running.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// parts are what the process is made of.
func (c *child) parts() (runs []func(context.Context) error, err error) {
	logger := zerolog.New(os.Stderr).Level(zerolog.ErrorLevel).With().Timestamp().Logger()
	if c.f, err = flow.New(flow.Config{Database: c.db, EngineID: c.Name, Clock: &c.clock, Logger: logger}); err != nil {
		return nil, err
	}
	if c.pl, err = plan.New(plan.Config{Database: c.db, EngineID: c.Name, Clock: &c.clock, Logger: logger}); err != nil {
		return nil, err
	}
	if c.Engine {
		rules, err := periodic.New(periodic.Config{Database: c.db, EngineID: c.Name, Clock: &c.clock, Logger: logger})
		if err != nil {
			return nil, err
		}
		runs = append(runs, c.f.Run, c.pl.Run, rules.Run)
	}
	if c.Worker {
		w, err := consumer.New(consumer.Config{
			Database: c.db, WorkerID: c.Name, Concurrency: 6, ShutdownTimeout: -1, PollInterval: 5 * time.Second, NoStream: c.NoStream, Clock: &c.clock, Logger: logger,
			OnEvent: func(e consumer.Event) {
				switch e.Kind {
				case workerevent.TakenOver, workerevent.Lapsed, workerevent.Fenced, workerevent.LeaseLost:
					c.tell(report{Event: e.Kind, ID: e.TaskID})
				}
			},
		})
		if err != nil {
			return nil, err
		}
		for _, typ := range promises.Types {
			err := consumer.Handle(w, model.NewType[map[string]any, string](typ), func(ctx context.Context, t *consumer.Task[map[string]any]) (string, error) {
				return c.handle(ctx, t.Execution)
			})
			if err != nil {
				return nil, err
			}
		}
		runs = append(runs, w.Run)
	}
	if c.Sender {
		if c.p, err = producer.New(producer.Config{Database: c.db, Clock: &c.clock, Logger: logger}); err != nil {
			return nil, err
		}
		for n := range loops {
			runs = append(runs, func(ctx context.Context) error { c.send(ctx, n); return nil })
		}
	}
	return runs, nil
}

// tell writes a line for the parent.
func (c *child) tell(r report) {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n')) // a parent that is gone needs none
}

// handle is the handler of every type: it takes its time, which at times is longer than its lease, has its
// effect, fails at times, and at times hears of no cancel, nor that its effect was refused.
func (c *child) handle(ctx context.Context, e *consumer.Execution) (string, error) {
	s := c.target.begin(ctx, c.Name, e)
	takes := rand.N(600 * time.Millisecond)
	if rand.IntN(3) == 0 {
		takes = rand.N(3 * promises.Lease)
	}
	deaf := rand.IntN(3) == 0
	s.stay(takes/2, deaf)
	if e.Type == promises.Work {
		s.step, _ = consumer.Step(ctx, "who", func(context.Context) (string, error) { return e.ID, nil }) // who was told to stop has none
	}
	refused := !s.effect()
	s.stay(takes/2, deaf)
	var err error
	switch {
	case !deaf && refused:
		err = errors.New("the effect is refused: a later execution had it")
	case !deaf && ctx.Err() != nil:
		err = context.Cause(ctx)
	case rand.IntN(10) == 0:
		err = fmt.Errorf("the %d. try fails", e.Attempt)
	}
	s.end(err)
	return e.ID, err
}

// send sends tasks, flows, nodes of a stream and plans, and awaits the tasks before it goes on.
func (c *child) send(ctx context.Context, n int) {
	run := strconv.FormatInt(time.Now().UnixMilli(), 36)
	for i := 0; ctx.Err() == nil; i++ {
		key := strings.Join([]string{c.Name, run, strconv.Itoa(n), strconv.Itoa(i)}, "-")
		typ := promises.Work
		if rand.IntN(8) == 0 {
			typ = promises.Limited
		}
		var sent []producer.Sent
		c.sure(ctx, func(ctx context.Context) (err error) {
			sent, err = c.sendSome(ctx, typ, key, i%4)
			return err
		}, func() {
			for _, s := range sent {
				c.tell(report{Stored: "task", ID: s.ID})
			}
		})
		switch i % 4 {
		case 0:
			c.sure(ctx, func(ctx context.Context) error {
				_, err := c.f.Start(ctx, promises.Flow(key))
				return err
			}, func() { c.tell(report{Stored: "flow", ID: "-/" + key}) })
		case 1:
			node, id := promises.LinkOf(strconv.Itoa(n), c.Name+"-"+run, i/4) // each stream has links of all senders
			c.sure(ctx, func(ctx context.Context) error {
				_, err := c.f.Append(ctx, promises.Links, strconv.Itoa(n), node)
				return err
			}, func() { c.tell(report{Stored: "link", ID: id}) })
		case 2:
			c.sure(ctx, func(ctx context.Context) error {
				_, err := c.pl.Publish(ctx, promises.Plan(key))
				return err
			}, func() { c.tell(report{Stored: "plan", ID: "-/" + key}) })
		}
		for _, s := range sent {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			if t, err := c.p.AwaitTask(ctx, s); err == nil && t.Status.Succeeded() {
				c.tell(report{ID: t.ID, Result: promises.Result(t)})
			}
			cancel()
		}
	}
}

// sendSome sends one task, or several at once.
func (c *child) sendSome(ctx context.Context, typ, key string, more int) ([]producer.Sent, error) {
	o := promises.Options()
	opts := []producer.Option{producer.Lease(o.PingInterval, o.WorkerTimeout), producer.Retry(*o.Retry), producer.MaxLapses(*o.MaxLapses), producer.In(rand.N(2 * time.Second))}
	t := model.NewType[map[string]any, string](typ)
	if more == 0 {
		s, err := producer.Send(ctx, c.p, t, map[string]any{}, append(opts, producer.Key(key))...)
		return []producer.Sent{s}, err
	}
	items := make([]producer.Item[map[string]any], more+1)
	for i := range items {
		items[i] = producer.Item[map[string]any]{Args: map[string]any{}, Options: append(opts[:len(opts):len(opts)], producer.Key(fmt.Sprint(key, "-", i)))}
	}
	return producer.SendMany(ctx, c.p, t, items)
}

// loops is how many requests a sender has under way at once.
const loops = 8

// sure repeats a request until it is answered: all of them are idempotent.
func (c *child) sure(ctx context.Context, ask func(ctx context.Context) error, answered func()) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := ask(limited)
		cancel()
		if err == nil {
			answered()
			return
		}
		if errors.Is(err, model.ErrInvalid) {
			c.tell(report{Wrong: err.Error()})
			return
		}
		fmt.Fprintln(os.Stderr, "sending:", err)
		clock.Pause(ctx, rand.N(time.Second))
	}
}
