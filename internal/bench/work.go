package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
)

// args of a no-op task. Sent is when Send was called, in Unix nanoseconds; 0 = nobody
// asks.
type args struct {
	Sent int64  `json:"sent,omitempty"`
	Pad  string `json:"pad,omitempty"`
}

var noop = model.NewType[args, model.None]("bench.noop")

// counting is the same type for handlers that return a result.
var counting = model.NewType[args, int64](noop.Name())

const (
	lookEvery   = 5 * time.Millisecond // how exactly the last end is known
	reportEvery = 4                    // looks
	reportIdle  = 50                   // looks, when nothing moves
)

// Work is a worker of a bench: it reads from in what to do and reports to out, until in
// ends. The bench runs it in a process of its own, or in a goroutine.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	w := &worker{clock: clock.System(), out: json.NewEncoder(out), start: make(chan struct{})}
	w.meter = &meter{}
	err := w.work(ctx, bufio.NewReader(in))
	if err != nil && !errors.Is(err, context.Canceled) {
		_ = w.out.Encode(report{Failed: err.Error()}) // the error is returned as well
	}
	return err
}

type worker struct {
	spec
	clock    clock.Clock
	meter    *meter
	consumer *consumer.Consumer
	engines  []func(context.Context) error // what it runs beside the consumer
	db       *mongo.Database
	out      *json.Encoder
	start    chan struct{} // closed when the bench says go
	watching atomic.Bool
	cpu      time.Duration // used before the start
	counted  atomic.Int64  // results that were returned, or nodes that were appended

	mu     sync.Mutex
	news   report // lists that were not reported yet
	last   int64  // when something last finished
	before int64  // how much had finished then
	ended  int64  // when a handler returned last
}

func (w *worker) work(ctx context.Context, in *bufio.Reader) error {
	first, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	if err := json.Unmarshal(first, &w.spec); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	w.meter.fetches = w.Fetches
	client, err := w.meter.connect(w.URI)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Disconnect(ctx) // it is over
	}()
	if err := client.Ping(ctx, nil); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	cfg := consumer.Config{
		Database: client.Database(w.Database), WorkerID: w.WorkerID, Concurrency: w.Concurrency, ShutdownTimeout: -1,
	}
	if w.Latencies || w.Starts || w.Hold || w.Limited {
		cfg.OnEvent = w.event // it costs a little, so only where it is wanted
	}
	w.db = cfg.Database
	if w.consumer, err = consumer.New(cfg); err != nil {
		return err
	}
	if w.Flows {
		flows, err := flow.New(flow.Config{Database: cfg.Database})
		if err != nil {
			return err
		}
		w.engines = append(w.engines, flows.Run)
	}
	if w.Plans {
		plans, err := plan.New(plan.Config{Database: cfg.Database})
		if err != nil {
			return err
		}
		w.engines = append(w.engines, plans.Run)
	}
	if w.Results {
		err = consumer.Handle(w.consumer, counting, w.count)
	} else {
		err = consumer.Handle(w.consumer, noop, w.handle)
	}
	if err != nil {
		return err
	}
	if w.Limited {
		if err := consumer.Handle(w.consumer, limitedType, w.handleLimited); err != nil {
			return err
		}
	}
	return w.run(ctx, in)
}

// run waits for the word, works until the bench closes the pipe, and reports meanwhile.
func (w *worker) run(ctx context.Context, in *bufio.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with in
		defer cancel()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line == "go\n" {
				close(w.start)
			}
		}
	}()
	if err := w.out.Encode(report{Ready: true}); err != nil {
		return err
	}
	select {
	case <-w.start:
	case <-ctx.Done():
		return nil
	}
	stop, err := w.profile()
	if err != nil {
		return err
	}
	defer stop()
	w.meter.reset()
	w.cpu = cpuTime()
	ended := make(chan error, 1+len(w.engines))
	go func() {
		switch {
		case w.Append != nil:
			if err := w.append(ctx, w.db); err != nil {
				ended <- err
			}
		case w.Floor:
			ended <- w.claimRaw(ctx)
		default:
			ended <- w.consumer.Run(ctx)
		}
	}()
	var engines sync.WaitGroup
	for _, engine := range w.engines {
		engines.Go(func() {
			if err := engine(ctx); err != nil {
				ended <- fmt.Errorf("an engine: %w", err)
			}
		})
	}
	defer engines.Wait()
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks, said := 1, int64(0); ; looks++ {
		select {
		case err := <-ended:
			return errors.Join(err, w.out.Encode(w.report()))
		case <-tick.C:
		}
		n := w.look()
		if n != said && looks%reportEvery == 0 || looks%reportIdle == 0 {
			said = n
			if err := w.out.Encode(w.report()); err != nil {
				cancel() // the bench is gone
			}
		}
	}
}

// profile starts this process's CPU profile, if one is wanted.
func (w *worker) profile() (stop func(), err error) {
	if !w.Own || w.Profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(w.Profile)
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // what is missing shows when it is read
	}, nil
}

// look notes when the last task finished.
func (w *worker) look() int64 {
	n := w.consumer.Stats().Finished
	if w.Append != nil {
		n = w.counted.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n != w.before {
		w.before, w.last = n, w.clock.Now().UnixNano()
	}
	return n
}

func (w *worker) report() report {
	w.look()
	s := w.consumer.Stats()
	w.mu.Lock()
	r := w.news
	w.news = report{}
	r.totals = w.meter.totals()
	r.Finished, r.LastFinish = w.before, w.last
	w.mu.Unlock()
	r.Attempted, r.Won, r.Running, r.Watching = s.ClaimsAttempted, s.ClaimsWon, s.Running, w.watching.Load()
	if w.Own {
		r.CPU = int64(cpuTime() - w.cpu)
	}
	r.Fetches = w.meter.takeFetches()
	return r
}

func (w *worker) event(e consumer.Event) {
	switch e.Kind {
	case workerevent.Stream:
		w.watching.Store(e.Reason == "watching")
	case workerevent.Started:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.Latencies {
			w.news.Late = append(w.news.Late, round(millis(e.Late)))
		}
		if w.Starts || w.Limited && e.Type == limitedType.Name() {
			w.news.Starts = append(w.news.Starts, start{e.TaskID, e.At.UnixNano()})
		}
	}
}

// handle is the no-op.
func (w *worker) handle(ctx context.Context, t *consumer.Task[args]) (model.None, error) {
	if w.Hold {
		<-ctx.Done()
		return model.None{}, context.Cause(ctx)
	}
	if w.Steps {
		defer w.step()()
	}
	if w.Latencies && t.Args.Sent != 0 {
		w.sent(t.Args.Sent)
	}
	return model.None{}, nil
}

// handleLimited takes [limitedTime], and notes how long that was: on a busy machine it is longer.
func (w *worker) handleLimited(ctx context.Context, _ *consumer.Task[model.None]) (model.None, error) {
	began := w.clock.Monotonic()
	clock.Pause(ctx, limitedTime)
	took := w.clock.Monotonic() - began
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news.Took = append(w.news.Took, round(millis(took)))
	return model.None{}, context.Cause(ctx)
}

// sent notes how long ago that was, in Unix nanoseconds.
func (w *worker) sent(at int64) {
	took := time.Duration(w.clock.Now().UnixNano() - at)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news.Sent = append(w.news.Sent, round(millis(took)))
}

// step notes how long no handler has run. What it returns is called when the handler returns.
func (w *worker) step() func() {
	began := w.clock.Now().UnixNano()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != 0 {
		w.news.Steps = append(w.news.Steps, round(millis(time.Duration(began-w.ended))))
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = w.clock.Now().UnixNano()
	}
}

// count is the no-op whose result is another one each time.
func (w *worker) count(ctx context.Context, t *consumer.Task[args]) (int64, error) {
	_, err := w.handle(ctx, t)
	return w.counted.Add(1), err
}
