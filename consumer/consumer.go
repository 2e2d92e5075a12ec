package consumer

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/callback"
	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/control"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lapse"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// Consumer is a worker: it finds, claims, runs, pings and finishes tasks of the types that it
// has handlers for. Create one with [New]. It runs once.
type Consumer struct {
	cfg    Config
	store  *store.Store
	only   *lifecycle.Conditions // what tasks it takes; nil = all
	seeker *claim.Seeker
	log    zerolog.Logger
	tracer tracing.Tracer

	mu         sync.Mutex
	handlers   map[string]*handler
	categories []*category
	started    bool
	left       bool // handlers of a Drain that has returned may still run

	held      *holdings
	ends      *finish.Ends
	steps     *finish.Steps
	offers    chan []*model.Task
	late      sync.WaitGroup // ends that wait for another try
	apart     sync.WaitGroup // claims beside the fetches, see [Consumer.claimApart]
	wake      waker
	health    *health.Monitor
	outages   outages
	leases    *lease.Keeper[*execution]
	deadlines clock.Seldom // by type: the log has one that has passed
	undecoded clock.Seldom // by type: the log has one that this worker left to others
	lapses    *lapse.Watch
	watch     *stream.Watcher
	control   *control.Copy
	presence  *presence.Presence
	taskTypes *tasktypes.Cache
	outcomes  *outcome.Runner
	gate      *limits.Gate
	passes    passes
	secrets   *secret.Box         // nil = none
	deliverer *callback.Deliverer // nil = this process delivers no callbacks
	stats     counters
	tap       atomic.Pointer[func(Event)] // a second listener, while draining

	claimer  *claim.Claimer
	claiming clock.Lock // one claim at a time, so that slots are not promised twice
	plan     *fetchplan.Plan
	nextPace *clock.Pacer // of the question when something is due
	knownDue time.Time    // its last answer; of the fetch loop alone
	pollPace *clock.Pacer
	typeScan *claim.TypeScan

	handlerCtx  context.Context // of all handlers: ends at no stop, only each by its cause
	service     context.Context // of what must go on until the last handler has returned
	endService  context.CancelFunc
	unsure      context.Context // of asking which claims were won: ends soon after a stop began
	giveUp      context.CancelFunc
	handlersWG  sync.WaitGroup
	starting    sync.RWMutex    // read-locked while executions are taken to be started
	stopping    context.Context // has ended: no more claims and starts
	requestStop context.CancelFunc
	hurry       context.Context
	hurryUp     context.CancelFunc
	done        chan struct{}               // closed when the Run or Drain that was started has returned
	asks        atomic.Pointer[store.Drain] // what an operator asks this worker for; nil = nothing
	cutShort    atomic.Bool                 // a Drain ends with work left: nothing starts any more until the next
	backlog     atomic.Bool                 // the last fetch left more to find
	recent      recently
	outOfTime   chan chan struct{} // claims that the next fetch lets go first; closed when they were tried again
	patience    time.Duration      // apartPatience, but in tests
}

// New validates the Config and creates a consumer. It does no I/O.
func New(cfg Config) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	secrets, err := cfg.Callbacks.secrets()
	if err != nil {
		return nil, err
	}
	st, err := store.Open(store.Config{Database: cfg.Database, Prefix: cfg.Prefix, Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	c := &Consumer{
		cfg: cfg, store: st, secrets: secrets, log: cfg.Logger.With().Str("worker_id", cfg.WorkerID).Logger(),
		tracer: tracing.New(cfg.TracerProvider), handlers: map[string]*handler{}, held: newHoldings(cfg.Concurrency), wake: newWaker(),
		plan: fetchplan.New(cfg.Concurrency, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))),
	}
	if only := (lifecycle.Conditions{Tenants: cfg.Tenants, Categories: cfg.Categories, Creators: cfg.Creators}); !lifecycle.Unconditional(&only) {
		c.only = &only
	}
	c.held.released = c.slotsReleased
	c.held.limits = func(typ string) bool { return c.gate.Prompt(typ) }
	c.nextPace = clock.NewPacer(cfg.Clock, 0, longestPace)
	c.pollPace = clock.NewPacer(cfg.Clock, 0, longestPace)
	c.typeScan = claim.NewTypeScan(st.Tasks.NextType, cfg.Clock)
	c.health = health.New(claim.NewTrust(st.Clock, cfg.Clock), c.databaseLost, c.databaseBack)
	c.taskTypes = tasktypes.New(st)
	finder := claim.Finder{Store: st, Types: c.taskTypes, WorkerID: cfg.WorkerID, Only: c.only}
	c.seeker = claim.NewSeeker(finder, cfg.Clock, cfg.PollInterval, longestPace)
	c.newEnds()
	c.control = control.New(control.Config{Store: st, Clock: cfg.Clock, Learn: c.learnTypes, Resumed: c.wake.now, Held: c.signalled})
	c.leases = lease.NewKeeper(lease.Config[*execution]{
		Store: st, Clock: cfg.Clock, Health: c.health, Log: c.log, Held: c.held.each, Lost: c.loseLease, Ended: c.leaseEnded,
	})
	c.presence = presence.New(presence.Config{
		Store: st, Clock: cfg.Clock, Log: c.log, Worker: c.document, Types: c.types,
		Watching: func() bool { return c.watch.Watching() },
		Busy:     func() bool { return c.held.count().all > 0 || c.backlog.Load() },
		Asked:    c.asked,
	})
	c.watch = stream.New(stream.Config{
		Store: st, Clock: cfg.Clock, Health: c.health, Log: c.log, Holder: cfg.WorkerID + "/" + crand.Text(), Only: c.only, Batch: cfg.Concurrency,
		Types: c.types, Fleet: c.presence.Fleet, Backlog: c.backlog.Load, Waits: c.held.waitsForWork, Missed: c.eventsMissed,
		Open: func(r *stream.Ranks) stream.Follower { return newFollower(c, r) },
		Tell: func(reason string) { c.emit(Event{Kind: workerevent.Stream, Reason: reason}) },
	})
	c.lapses = lapse.New(lapse.Config{
		Store: st, Clock: cfg.Clock, Health: c.health, Log: c.log, Poll: cfg.PollInterval, Pause: longestPace, Limit: fetchplan.MaxBatch,
		Types: c.types, Fleet: c.presence.Fleet, Preempt: c.preempt, Ends: c.ends.Wait,
	})
	c.offers = make(chan []*model.Task, maxOffers)
	c.outOfTime, c.patience = make(chan chan struct{}, 1), apartPatience
	c.newService()
	c.stopping, c.requestStop = context.WithCancel(context.Background())
	c.hurry, c.hurryUp = context.WithCancel(context.Background())
	if cfg.Callbacks != nil {
		return c, c.deliverCallbacks()
	}
	return c, nil
}

// WorkerID returns the id under which this consumer claims tasks.
func (c *Consumer) WorkerID() string { return c.cfg.WorkerID }

// errStarted is returned when a consumer is run a second time.
var errStarted = errors.New("the consumer was already started")

// LeftError lists the handlers that had not returned when Run or Drain returned. The process keeps
// pinging their executions until they return or the process ends, so that no other worker runs
// their tasks.
type LeftError struct{ Executions []string }

func (e *LeftError) Error() string {
	return fmt.Sprintf("%d handlers ignored the cancellation of their context and are still running: %s", len(e.Executions), strings.Join(e.Executions, ", "))
}

// Run works until ctx ends or [Consumer.Stop] is called. Then it stops gracefully and returns
// nil, or a [*LeftError] if handlers did not return. It waits for a server that is down. If
// waiting cannot help, it returns an error at once: a missing permission, a server that is too
// old, or a schema of another release.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		return err
	}
	defer close(c.done)
	defer c.store.Measure.Enter(c.measured)()
	life, endLife := undated(ctx)
	defer endLife()
	if err := c.prepare(life); err != nil {
		c.outcomes.Close()
		c.gate.Close()
		c.endService()
		if ctx.Err() != nil || c.isStopping() {
			return nil
		}
		return err
	}
	defer context.AfterFunc(c.stopping, endLife)()
	var seekers, keepers sync.WaitGroup
	c.keep(&keepers)
	c.openPasses()
	if !c.cfg.NoStream {
		seekers.Go(func() { c.watch.Loop(life) })
	}
	for _, loop := range []func(context.Context){c.fetchLoop, c.passLoop, c.offerLoop, c.lapses.Loop, c.upkeep().Loop} {
		seekers.Go(func() { loop(life) })
	}
	defer decision.Offers(c.store, c.offered)()
	select {
	case <-ctx.Done():
	case <-c.stopping.Done():
	}
	c.requestStop()
	endLife()
	c.awaitSeekers(&seekers)
	return c.shutdown(&keepers)
}

// start marks the consumer as used; handlers' contexts keep the values of ctx.
func (c *Consumer) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return ErrShutdown
	}
	if c.started {
		return errStarted
	}
	if len(c.handlers)+len(c.categories) == 0 {
		return input.Invalid("handlers", "are missing: register a type with Handle before Run")
	}
	c.started, c.done = true, make(chan struct{})
	c.cutShort.Store(false)
	if c.service.Err() != nil { // a Drain has ended it
		c.newService()
	}
	c.handlerCtx = tracing.Apart(context.WithoutCancel(ctx))
	return nil
}

func (c *Consumer) newService() {
	c.service, c.endService = context.WithCancel(context.Background())
	c.outcomes = outcome.New(c.store, c.log, c.followers()...)
	c.gate = limits.New(c.store, c.taskTypes, c.log, c.wake.now)
	c.gate.Admitted = c.admitted
	c.unsure, c.giveUp = context.WithCancel(c.service)
	c.claimer = c.newClaimer()
}

// keep starts the loops that go on while handlers run, also during a stop.
func (c *Consumer) keep(wg *sync.WaitGroup) {
	for _, loop := range []func(context.Context){c.leases.PingLoop, c.leases.GuardLoop, c.housekeepingLoop} {
		wg.Go(func() { loop(c.service) })
	}
}

// upkeep is this process's share of the fleet's housekeeping.
func (c *Consumer) upkeep() *upkeep.Keeper {
	ended := int64(0)
	busy := func() bool {
		before := ended
		ended = c.stats.finished.Load()
		return ended != before || c.gate.Lacks() // perhaps the permit of a process that died
	}
	return upkeep.New(c.store, c.cfg.WorkerID+"/"+crand.Text(), c.log, busy,
		upkeep.Outcomes{Runner: c.outcomes},
		upkeep.Limits{Gate: c.gate, Used: c.control.Limited},
		upkeep.Expiry{Store: c.store, Types: c.taskTypes, Ended: c.outcomes.Ended},
		upkeep.Archive{Store: c.store})
}

// undated returns a context that ends with the given one and has its values, but no deadline. The driver gives up a wait
// for change events that could last longer than the deadline leaves, and a call that ends with it looks like an outage.
func undated(ctx context.Context) (context.Context, context.CancelFunc) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	return out, func() {
		stop()
		end(nil)
	}
}

// prepare waits until the database can be worked on: schema and clock.
func (c *Consumer) prepare(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	for wait := c.health.NewBackOff(); ; wait.Sleep(ctx) {
		call, done := context.WithTimeout(ctx, rpcTimeout) // a server may accept and never answer
		err := c.store.Ready(call)
		done()
		if err == nil {
			err = c.lapses.SeePrimary(ctx) // before the clock is read, which may be another's
		}
		if err == nil {
			err = c.presence.Beat(ctx)
		}
		c.health.Report(err)
		if err == nil || ctx.Err() != nil || store.Classify(err) == store.Fatal {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Stop stops the worker gracefully and waits for Run or [Consumer.Drain] to return. If ctx ends
// first, Stop cancels the handlers at once and does not wait for them. A consumer cannot start
// again: a later Run returns at once, and a later Drain returns [ErrShutdown].
func (c *Consumer) Stop(ctx context.Context) error {
	c.requestStop()
	c.mu.Lock()
	started, done := c.started, c.done
	c.mu.Unlock()
	if !started {
		return nil
	}
	defer context.AfterFunc(ctx, c.hurryUp)()
	<-done
	return nil
}

func (c *Consumer) isStopping() bool { return c.stopping.Err() != nil }

// types are the registered names, and those of the categories now, sorted.
func (c *Consumer) types() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.handlers))
	for n, h := range c.handlers {
		if !h.left.Load() {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

func (c *Consumer) handlerOf(typ string) *handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handlers[typ]
}

// eventsMissed makes the next fetch look at everything, and at once.
func (c *Consumer) eventsMissed() {
	c.seeker.Forget()
	c.wake.now()
}

// document is what the other workers know of this one.
func (c *Consumer) document() store.Worker {
	stream := "polling"
	if c.watch.Watching() {
		stream = "watching"
	}
	return store.Worker{
		ID: c.cfg.WorkerID, Host: hostName(), PID: os.Getpid(), Version: c.cfg.Version,
		Types: c.types(), Only: c.only, Concurrency: c.cfg.Concurrency, Running: c.held.count().running, Stream: stream,
		Draining: c.asks.Load() != nil, NoDrain: c.cfg.NoDrain,
	}
}

// longestPace bounds how much later work is found, and a lapsed lease taken over, where the
// database answers slowly.
const longestPace = 5 * time.Second

// rpcTimeout bounds every call to the database that is not bounded otherwise.
const rpcTimeout = health.CallTimeout
