package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/producer"
)

// process is a machine with one process: a worker, an engine of rules, flows and plans, a sender.
type process struct {
	w     *world
	name  string
	clock *machine
	draw  *chance

	clients *pipes
	proxy   *proxy.Proxy
	client  *mongo.Client

	producer *producer.Producer
	flows    *flow.Flows
	plans    *plan.Plans
	rules    *periodic.Periodic

	asked pace // how often it asks the database

	silent atomic.Int64 // until then, in nanoseconds of Unix time, nothing arrives at either end
	dead   atomic.Bool  // it was killed: what its goroutines still do does not happen
	stop   context.CancelFunc
	work   sync.WaitGroup
}

// launch starts a process.
func (w *world) launch(name string) (p *process, err error) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // it never fails
	p = &process{w: w, name: name, clients: newPipes(), draw: newChance(w.seed, hash.Sum64())}
	p.clock = newMachine(float64(p.draw.between(-500, 500))*1e-6, p.draw.between(-time.Hour, time.Hour))
	p.proxy = proxy.Between(p.clients, w.db.dial)
	p.proxy.Fates(p.fate)
	if p.client, err = connect(p.clients); err != nil {
		return nil, err
	}
	db := p.client.Database("sim")
	if p.producer, err = producer.New(producer.Config{Database: db, Clock: p.clock}); err != nil {
		return nil, err
	}
	if p.flows, err = flow.New(flow.Config{Database: db, EngineID: name, Clock: p.clock}); err != nil {
		return nil, err
	}
	if p.plans, err = plan.New(plan.Config{Database: db, EngineID: name, Clock: p.clock}); err != nil {
		return nil, err
	}
	if p.rules, err = periodic.New(periodic.Config{Database: db, EngineID: name, Clock: p.clock}); err != nil {
		return nil, err
	}
	c, err := consumer.New(consumer.Config{
		Database: db, WorkerID: name, Concurrency: 4, ShutdownTimeout: -1, PollInterval: 5 * time.Second, NoStream: p.draw.of(0.2), Clock: p.clock,
	})
	if err != nil {
		return nil, err
	}
	for _, typ := range promises.Types {
		err := consumer.Handle(c, model.NewType[map[string]any, string](typ), func(ctx context.Context, t *consumer.Task[map[string]any]) (string, error) {
			return p.handle(ctx, t.Execution)
		})
		if err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	for what, run := range map[string]func(context.Context) error{"worker": c.Run, "flows": p.flows.Run, "plans": p.plans.Run, "rules": p.rules.Run} {
		p.work.Go(func() {
			if err := run(ctx); err != nil && !p.dead.Load() {
				w.violated("the %s of %s ended: %v", what, name, err)
			}
		})
	}
	w.note(name, "starts; its clock is off by %v", time.Duration(p.clock.off.Load()).Round(time.Second))
	return p, nil
}

func connect(d *pipes) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI("mongodb://database:27017/?directConnection=true&connectTimeoutMS=5000").SetDialer(d))
}

// mostASecond is how many commands a process may send within a second: several times what it needs. One that spins
// sends thousands, since commands take no time here.
const mostASecond = 1000

// pace counts commands.
type pace struct {
	second, sent atomic.Int64
}

// tooFast counts a command, and reports whether it is the one too many of its second.
func (c *pace) tooFast() bool {
	if now := time.Now().Unix(); c.second.Swap(now) != now {
		c.sent.Store(0)
	}
	return c.sent.Add(1) == mostASecond
}

// fate is what the network does with a command of this process.
func (p *process) fate(string) (f proxy.Fate) {
	if p.asked.tooFast() {
		p.w.violated("%s has sent %d commands within a second", p.name, mostASecond)
	}
	if until := time.Until(time.Unix(0, p.silent.Load())); until > 0 { // it arrives, and is answered, later
		f.Before, f.After = until, p.draw.between(0, time.Second)
		return f
	}
	if p.w.healed.Load() {
		return f
	}
	switch {
	case p.draw.of(0.01):
		f.Do = proxy.CutBefore
	case p.draw.of(0.01):
		f.Do = proxy.CutAfter
	}
	f.Before, f.After = p.draw.seldomLong(3*time.Second), p.draw.seldomLong(3*time.Second)
	return f
}

// kill ends the process at once: nothing of it reaches the database any more.
func (p *process) kill() {
	p.dead.Store(true)
	p.proxy.Cut()
	p.stop()
}

// end waits until nothing of the process is left.
func (p *process) end() error {
	p.stop()
	p.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.producer.Close(ctx)
	if p.dead.Load() {
		err = nil
	}
	err = errors.Join(err, p.client.Disconnect(context.Background()))
	p.proxy.Close()
	return err
}

// sure repeats a request until it is answered, or the process is dead: all of them are idempotent.
func (p *process) sure(what string, ask func(ctx context.Context) error) bool {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := ask(ctx)
		cancel()
		if p.dead.Load() {
			return false
		}
		if err == nil {
			p.w.note(p.name, "%s", what)
			return true
		}
		p.w.note(p.name, "%s: %v", what, shortly(err))
		time.Sleep(p.draw.between(0, 2*time.Second))
	}
}

func shortly(err error) string {
	text := err.Error()
	if len(text) > 120 {
		text = text[:120] + "…"
	}
	return text
}

// handle is the handler of every type: it takes its time, fails at times, and at times hears of no cancel.
func (p *process) handle(ctx context.Context, e *consumer.Execution) (string, error) {
	x := p.w.begins(p, ctx, e)
	takes := p.draw.between(0, 3*time.Second)
	if deaf := p.draw.of(0.1); deaf {
		time.Sleep(takes + p.draw.between(0, 10*time.Second))
	} else {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	var err error
	switch {
	case ctx.Err() != nil && p.draw.of(0.5):
		err = context.Cause(ctx)
	case p.draw.of(0.1):
		err = fmt.Errorf("the %d. try fails", e.Attempt)
	}
	p.w.ends(x, err)
	return x.Name, err
}
