package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
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

	clients *proxy.Pipes
	proxy   *proxy.Proxy
	client  *mongo.Client

	producer *producer.Producer
	flows    *flow.Flows
	plans    *plan.Plans
	rules    *periodic.Periodic
	jobs     *bulk.Jobs

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
	p = &process{w: w, name: name, clients: proxy.ListenPipes(), draw: newChance(w.seed, hash.Sum64())}
	p.clock = newMachine(float64(p.draw.between(-500, 500))*1e-6, p.draw.between(-time.Hour, time.Hour))
	p.proxy = proxy.Between(p.clients, w.db.dial)
	p.proxy.Fates(p.fate)
	if w.events {
		p.proxy.Rewrite(p.muddle)
	}
	if p.client, err = connect(p.clients); err != nil {
		return nil, err
	}
	db := p.client.Database("sim")
	if p.producer, err = producer.New(producer.Config{Database: db, Clock: p.clock, SecretKey: secretKey}); err != nil {
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
	cfg := consumer.Config{
		Database: db, WorkerID: name, Concurrency: 4, ShutdownTimeout: -1, PollInterval: 5 * time.Second, NoStream: p.draw.of(0.2), Clock: p.clock,
	}
	if w.callbacks {
		cfg.Callbacks = &consumer.CallbackConfig{SecretKey: secretKey}
	}
	c, err := consumer.New(cfg)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(store.Config{Database: db, Clock: p.clock})
	if err != nil {
		return nil, err
	}
	p.jobs = bulk.New(p.producer, admin.New(p.producer), st)
	if w.people {
		if err := bulk.Register(c, p.jobs); err != nil {
			return nil, err
		}
	}
	for _, typ := range types {
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
		if what == "flows" && !w.graphs && !w.stream || what == "plans" && !w.repeats || what == "rules" && !w.ticks {
			continue
		}
		p.work.Go(func() {
			if err := run(ctx); err != nil && !p.dead.Load() {
				w.violated("the %s of %s ended: %v", what, name, err)
			}
		})
	}
	if w.pulls {
		p.work.Go(func() { p.pulls(ctx) })
	}
	w.note(name, "starts; its clock is off by %v", time.Duration(p.clock.off.Load()).Round(time.Second))
	return p, nil
}

func connect(to *proxy.Pipes) (*mongo.Client, error) {
	uri := "mongodb://" + to.Addr().String() + "/?directConnection=true&connectTimeoutMS=5000"
	return mongo.Connect(options.Client().ApplyURI(uri).SetDialer(&proxy.Dialer{}))
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
func (p *process) fate(command string) (f proxy.Fate) {
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
	f.Answer = p.w.db.refuses(command)
	switch {
	case p.draw.of(0.01):
		f.Do = proxy.CutBefore
	case p.draw.of(0.01):
		f.Do = proxy.CutAfter
	}
	f.Before, f.After = p.draw.seldomLong(3*time.Second), p.draw.seldomLong(3*time.Second)
	return f
}

// muddle loses events of change streams, and sends others twice.
func (p *process) muddle(command string, answer bson.Raw) bson.Raw {
	if command != "getMore" || p.w.healed.Load() {
		return answer
	}
	events, err := answer.LookupErr("cursor", "nextBatch")
	if err != nil {
		return answer
	}
	list, err := events.Array().Values()
	if err != nil || len(list) == 0 {
		return answer
	}
	var kept bson.A
	for _, e := range list {
		for range []int{0, 1, 1, 1, 2}[p.draw.below(5)] {
			kept = append(kept, e)
		}
	}
	var doc bson.D
	if bson.Unmarshal(answer, &doc) != nil {
		return answer
	}
	for i := range doc {
		if doc[i].Key == "cursor" {
			cursor := doc[i].Value.(bson.D)
			for k := range cursor {
				if cursor[k].Key == "nextBatch" {
					cursor[k].Value = kept
				}
			}
		}
	}
	out, err := bson.Marshal(doc)
	if err != nil {
		return answer
	}
	return out
}

// kill ends the process at once: nothing of it reaches the database any more.
func (p *process) kill() {
	p.dead.Store(true)
	p.proxy.Cut()
	p.stop()
}

// end waits until the process does nothing more that anybody waits for.
func (p *process) end() error {
	p.stop()
	p.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.producer.Close(ctx)
	if p.dead.Load() {
		err = nil
	}
	return err
}

// disconnect leaves nothing of the process. It needs to have ended a while ago: a command that looks for a server
// while its client is disconnected does so without a pause, until its time is up (mongo-driver v2.9.3), which never comes
// in virtual time.
func (p *process) disconnect() error {
	err := p.client.Disconnect(context.Background())
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
	fails := 0.1
	if errorsOf(e.Type) == 0 {
		fails = 0.4
	}
	switch {
	case ctx.Err() != nil && p.draw.of(0.5):
		err = context.Cause(ctx)
	case p.w.people && e.Type == step && p.draw.of(0.1):
		err = consumer.PlanError(errors.New("the plan makes no sense"))
	case p.draw.of(fails):
		err = fmt.Errorf("the %d. try fails", e.Attempt)
	case e.Type == parked && p.draw.of(0.8):
		x.unsure = true // it may time out
		p.w.ends(x, nil)
		p.completesLater(x, e.Handle)
		return "", consumer.Park(e.Now().Add(parksFor))
	}
	p.w.ends(x, err)
	return x.Name, err
}
