package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

// What there is to do.
const (
	work, limited, ticked = promises.Work, promises.Limited, promises.Ticked
	node, step, link      = promises.Node, promises.Step, promises.Link // a link fails often
	manual                = "manual"                                    // the same; then it waits for a person
	parked                = "parked"                                    // mostly completed from outside, by its handle
	pulled                = "pulled"                                    // for workers that pull

	lease, maxErrors = promises.Lease, promises.MaxErrors
)

var types = append([]string{manual, parked}, promises.Types...)

// plays are what happens in a world beside tasks. Each world has some of them, so that a seed stays cheap.
type plays struct {
	ticks, graphs, repeats, people, stream, pulls, parks, callbacks, transactions, events bool
}

func newPlays(seed uint64) plays {
	draw := newChance(seed, 3)
	often, seldom := func() bool { return draw.of(0.45) }, func() bool { return draw.of(0.3) }
	return plays{
		ticks: often(), graphs: often(), repeats: often(), people: often(),
		stream: seldom(), pulls: seldom(), parks: seldom(), callbacks: seldom(), transactions: seldom(), events: seldom(),
	}
}

// How long it takes, in virtual time.
const (
	troubled = 30 * time.Second // of faults
	patience = 15 * time.Minute // until everything must have ended, after that
)

// world is a deployment.
type world struct {
	history
	plays
	seed   uint64
	db     *database
	healed atomic.Bool // nothing goes wrong any more

	mu      sync.Mutex
	procs   []*process // those that live
	gone    []*process
	running map[*execution]bool
	ran     map[string][]*execution // by task
	asked   promises.Asked          // what was answered
	deeds
	appends []*appended
	found   *found // what is stored when everything has ended

	receiver receiver
	observer *mongo.Client
	desk     *producer.Producer // of a person whose network never fails
	look     *proxy.Proxy
}

// execution is one run of a handler.
type execution struct {
	p     *process
	ctx   context.Context
	task  string
	typ   string
	token model.Token
	promises.Execution

	unsure           bool // whether it failed: it was parked, or the answer to its end was lost
	accepted, fenced bool // what its end was answered; of one whose handler returned neither
}

// life is one life of a task.
type life struct {
	task string
	n    int64
}

func (x *execution) life() life { return life{x.task, x.token.Generation} }

func lifeOf(t *model.Task) life { return life{t.ID, t.Generation} }

func newWorld(seed uint64, dir string) *world {
	w := &world{
		seed: seed, plays: newPlays(seed), db: &database{path: filepath.Join(dir, "db")}, deeds: newDeeds(),
		running: map[*execution]bool{}, ran: map[string][]*execution{}, asked: promises.NewAsked(),
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
	clients := proxy.ListenPipes()
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
	for n := range 2 + newChance(w.seed, 6).below(2) {
		if err := w.join(fmt.Sprintf("p%d", n+1)); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second) // all have read the database's clock, and so will notice when it is set
	w.healed.Store(false)
	if w.callbacks {
		defer receivers.open(w)()
	}
	var asking sync.WaitGroup
	for n, p := range w.living() {
		asking.Go(func() { w.asks(p, n) })
		if w.stream {
			asking.Go(func() { w.appendsNodes(p, n) })
		}
		if w.transactions {
			asking.Go(func() { w.orders(p, n) })
		}
	}
	if w.people {
		asking.Go(w.person)
	}
	trouble(w)
	w.heal()
	asking.Wait()
	w.found = w.settled()
	w.check(w.found)
	err = errors.Join(err, w.desk.Close(context.Background()))
	w.mu.Lock()
	all := append(w.gone, w.procs...)
	w.mu.Unlock()
	for _, p := range all {
		err = errors.Join(err, p.end())
	}
	time.Sleep(time.Minute) // for what nobody waits for any more
	for _, p := range all {
		err = errors.Join(err, p.disconnect())
	}
	return err
}

// set stores what there is before the processes: the limit, and the rule.
func (w *world) set() error {
	ctx := context.Background()
	p, err := producer.New(producer.Config{Database: w.observer.Database("sim"), SecretKey: secretKey})
	if err != nil {
		return err
	}
	w.desk = p
	if _, err := admin.New(p).PutType(ctx, model.TaskType{Code: limited, MaxRunning: promises.AtOnce}); err != nil {
		return err
	}
	if w.asked.NoRule = !w.ticks; w.asked.NoRule {
		return nil
	}
	rules, err := periodic.New(periodic.Config{Database: w.observer.Database("sim")})
	if err != nil {
		return err
	}
	spec := promises.Rule(w.db.now(), troubled-10*time.Second)
	spec.Args = edition(0)
	r, err := rules.Create(ctx, spec)
	if err == nil {
		_, err = rules.Enable(ctx, r.ID, r.Version)
	}
	return err
}

// brieflyOf are the options of a task of the type: some fail at once, and wait for a person.
func brieflyOf(typ string) model.Options {
	o := promises.Options()
	if errs := errorsOf(typ); errs < maxErrors {
		o.Retry.MaxErrors = &errs
	}
	if yes := typ == manual; yes {
		o.NeedManual = &yes
	}
	return o
}

// errorsOf is how many errors a task of the type may have before it ends.
func errorsOf(typ string) int {
	if typ == manual || typ == link {
		return 0
	}
	return maxErrors
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
		kinds := w.kinds()
		w.sends(p, kinds[p.draw.below(len(kinds))], fmt.Sprintf("%d-%d", n, i))
	}
	if w.graphs {
		w.startsFlow(p, fmt.Sprint(n))
	}
	if w.repeats {
		w.publishesPlan(p, fmt.Sprint(n))
	}
}

// startsFlow has a process start a flow.
func (w *world) startsFlow(p *process, key string) {
	spec := promises.Flow(key)
	if w.people {
		spec.Nodes[1].OnFailure, spec.Nodes[1].Options = graph.Suspend, brieflyOf(link)
	}
	if p.sure("starts the flow "+key, func(ctx context.Context) error {
		_, err := p.flows.Start(ctx, spec)
		return err
	}) {
		w.mu.Lock()
		w.asked.Flows["-/"+key] = true
		w.mu.Unlock()
	}
}

// publishesPlan has a process publish a plan of three steps.
func (w *world) publishesPlan(p *process, key string) {
	if p.sure("publishes the plan "+key, func(ctx context.Context) error {
		_, err := p.plans.Publish(ctx, promises.Plan(key))
		return err
	}) {
		w.mu.Lock()
		w.asked.Plans["-/"+key] = true
		w.mu.Unlock()
	}
}

// kinds are the types of the tasks that processes send.
func (w *world) kinds() []string {
	kinds := []string{work, limited}
	for typ, also := range map[string]bool{manual: w.people, parked: w.parks, pulled: w.pulls} {
		if also {
			kinds = append(kinds, typ)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// sends has a process send a task.
func (w *world) sends(p *process, typ, key string) {
	opts := append(sentBriefly(typ), producer.Key(key), producer.In(p.draw.between(0, 5*time.Second)))
	id := model.TaskID("", typ, key)
	held := w.people && typ == work && p.draw.of(0.2)
	if held {
		opts = append(opts, producer.Held())
		w.holds(id)
	}
	if w.callbacks {
		opts = append(opts, producer.Callback(w.receiver.callback()))
	}
	if !p.sure(fmt.Sprintf("sends %s/%s", typ, key), func(ctx context.Context) error {
		_, err := p.producer.SendJSON(ctx, typ, []byte(`{}`), opts...)
		return err
	}) {
		return
	}
	w.mu.Lock()
	w.asked.Tasks[id] = true
	w.mu.Unlock()
	if held {
		time.Sleep(p.draw.between(0, 5*time.Second))
		w.releases(id)
		p.sure("releases "+id, func(ctx context.Context) error {
			t, err := p.producer.Release(ctx, id)
			w.saw(t)
			return refusedIsFine(err)
		})
	}
}

// sentBriefly are the options of a task of that type, see [briefly].
func sentBriefly(typ string) []producer.Option {
	o := brieflyOf(typ)
	return []producer.Option{producer.Lease(o.PingInterval, o.WorkerTimeout), producer.Retry(*o.Retry), producer.MaxLapses(*o.MaxLapses), producer.NeedManual(o.NeedManual != nil && *o.NeedManual)}
}

// heal ends all that goes wrong.
func (w *world) heal() {
	w.note("", "all is well again")
	w.healed.Store(true)
	w.db.full.Store(0)
	for _, p := range w.living() {
		p.silent.Store(0)
		p.proxy.Mend()
	}
}

// begins notes that a handler begins, and looks whether it may.
func (w *world) begins(p *process, ctx context.Context, e *consumer.Execution) *execution {
	x := &execution{p: p, ctx: ctx, task: e.TaskID, typ: e.Type, token: e.Token, Execution: promises.Execution{Name: e.ID, Began: time.Now()}}
	w.note(p.name, "runs %s, try %d, token %v", e.TaskID, e.Attempt, e.Token)
	w.run(x)
	return x
}

// run looks whether an execution may begin, and has it begin.
func (w *world) run(x *execution) {
	p := x.p
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead.Load() {
		return
	}
	w.allows(x)
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
	if x.typ == limited && together > promises.AtOnce {
		w.violated("%d tasks of the type %s run, and %d may", together, limited, promises.AtOnce)
	}
	w.running[x] = true
	w.ran[x.task] = append(w.ran[x.task], x)
}

// runsLate is run for an execution whose lease was over before it began. If nobody has taken the task over, what it
// returns counts all the same.
func (w *world) runsLate(x *execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !x.p.dead.Load() {
		w.ran[x.task] = append(w.ran[x.task], x)
	}
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
