// Package stream keeps a change stream open while a worker is idle and has a seat. Streams are
// few, because each costs the database's primary; who has no seat polls. [Ranks] says which of
// the watchers of an event claims its task first. What becomes of the events is the caller's; see
// [Follower].
package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Follower does what the events of one stream ask for.
type Follower interface {
	Follow(ctx context.Context, woken []store.Woken) error
	FollowLate(ctx context.Context) // what had to wait, until ctx ends
}

// Config is what a [Watcher] needs.
type Config struct {
	Store   *store.Store
	Clock   clock.Clock
	Health  *health.Monitor
	Log     zerolog.Logger
	Holder  string                // of the seat: unique to this process
	Only    *lifecycle.Conditions // of the tasks whose events are of use; nil = all
	Batch   int                   // how many events to take at once
	Types   func() []string       // whose events are of use, sorted
	Fleet   func() int            // live workers
	Backlog func() bool           // the last fetch left more to find
	Waits   func() bool           // a slot is free, and nothing waits for one
	Open    func(*Ranks) Follower
	Missed  func()              // called when events may have been missed: a fetch finds their tasks
	Tell    func(reason string) // called when the worker begins to watch or to poll
}

// Watcher watches while its worker is idle. It is safe for concurrent use.
type Watcher struct {
	cfg    Config
	rested chan struct{} // the worker has found nothing more to do
	looked atomic.Bool   // it has so once
	open   atomic.Pointer[Ranks]
	// refused: the log says that the database refuses change streams.
	refused atomic.Bool
}

const (
	// SeatRetry is how often an idle worker without a seat asks for one.
	SeatRetry = 30 * time.Second
	// seatKeep is how long a stream is kept while others may want its seat, and
	// longestWatch how long where nobody does.
	seatKeep     = 10 * time.Minute
	longestWatch = time.Hour
	busyPause    = time.Second
	// drainTicks and busyTicks are for how long a watcher keeps its stream although it
	// drains a backlog, or has no free slot, in pauses of busyPause.
	drainTicks = 2
	busyTicks  = 10
	// RenewEvery is how often a watcher renews its seat.
	RenewEvery = store.SeatLease * 2 / 3
	// LookEvery is how often a watcher asks who else watches.
	LookEvery    = 2 * RenewEvery
	doubtPause   = 5 * time.Second // between two looks at the seats because of a lost claim
	closeTimeout = 2 * time.Second // a server that never answers must not hold up a stop
)

// New returns a Watcher whose loop does not run yet.
func New(cfg Config) *Watcher { return &Watcher{cfg: cfg, rested: make(chan struct{}, 1)} }

// Rested records that the worker has looked for work and found nothing more.
func (w *Watcher) Rested() {
	w.looked.Store(true)
	clock.Wake(w.rested)
}

// Idle says whether the worker waits for work: it has looked, knows of none, and has a
// slot. While it drains a backlog every event would only tell it what its next fetch
// finds, and cost the server what the event costs.
func (w *Watcher) Idle() bool { return w.looked.Load() && !w.cfg.Backlog() && w.cfg.Waits() }

// Watching reports whether a change stream tells the worker of new work.
func (w *Watcher) Watching() bool { return w.open.Load() != nil }

// Turn is how long after a start time the worker looks for what is due then: others know of
// it, too.
func (w *Watcher) Turn(due time.Time) time.Duration {
	workers := w.cfg.Fleet()
	if ranks := w.open.Load(); ranks != nil {
		return ranks.turn(due, true, workers, 0)
	}
	return new(Ranks).turn(due, false, workers, share(w.cfg.Holder+due.String()))
}

// Loop keeps a change stream open while the worker is idle and has a seat, until ctx ends.
func (w *Watcher) Loop(ctx context.Context) {
	for wait := w.cfg.Health.NewBackOff(); ctx.Err() == nil; {
		if !w.Idle() {
			clock.PauseOr(ctx, busyPause, w.rested)
			continue
		}
		err := w.watchOnce(ctx)
		w.cfg.Health.Report(err)
		if err != nil && ctx.Err() == nil {
			w.cfg.Tell("polling: " + err.Error())
			if unopened := (*unopenedError)(nil); errors.As(err, &unopened) && store.Final(err) { // a privilege is missing, say
				if !w.refused.Swap(true) {
					w.cfg.Log.Warn().Err(err).Msg("the database refuses change streams; polling")
				}
				clock.Pause(ctx, SeatRetry)
				continue
			}
			w.cfg.Log.Debug().Err(err).Msg("the change stream ended; polling until it is open again")
			wait.Sleep(ctx)
			continue
		}
		wait.Reset()
	}
}

// unopenedError is why a change stream could not be opened.
type unopenedError struct{ error }

func (e *unopenedError) Unwrap() error { return e.error }

// watchOnce takes a seat, watches until the turn is over or the worker gets busy, and
// gives the seat back. Without streams or seats it waits.
func (w *Watcher) watchOnce(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, health.CallTimeout)
	defer cancel()
	topology, err := w.cfg.Store.Topology(call)
	if err != nil {
		return err
	}
	if !topology.Streams() {
		w.cfg.Log.Info().Msg("change streams are not available to workers; polling")
		w.cfg.Tell("polling: no change streams on this deployment")
		<-ctx.Done()
		return nil
	}
	types := w.cfg.Types()
	if len(types) == 0 { // of no category yet
		clock.Pause(ctx, busyPause)
		return nil
	}
	seat, err := w.cfg.Store.Seats.Acquire(call, sameStream(types, w.cfg.Only), w.cfg.Holder)
	if err != nil {
		return err
	}
	if seat == nil {
		clock.Pause(ctx, SeatRetry*3/4+rand.N(SeatRetry/2))
		return nil
	}
	passOn, err := w.watch(ctx, types, seat)
	call, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = w.cfg.Store.Seats.Release(call, seat, w.cfg.Holder) // else it lapses
	if passOn {
		clock.Pause(ctx, SeatRetry*5/4) // all who wait for a seat ask in this time
	}
	return err
}

// watch follows the stream. passOn says that its turn is over, for others to watch.
func (w *Watcher) watch(ctx context.Context, types []string, seat *store.Seat) (passOn bool, err error) {
	// A deadline, though nothing ends by it: without one, the driver would lay the
	// client's own timeout, which is for calls, over each wait for an event.
	ctx, cancel := context.WithTimeout(ctx, 2*longestWatch)
	defer cancel()
	stream, err := w.cfg.Store.Watch(ctx, types, w.cfg.Only)
	if err != nil {
		return false, &unopenedError{err}
	}
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	ranks, closed := w.Opened()
	defer closed()
	follower := w.cfg.Open(ranks)
	w.cfg.Tell("watching")
	w.cfg.Missed() // what came before the stream was open
	var beside sync.WaitGroup
	beside.Go(func() {
		defer cancel()
		passOn = w.keepSeat(ctx, ranks, types, seat)
	})
	beside.Go(func() { follower.FollowLate(ctx) })
	err = w.followAll(ctx, stream, follower)
	cancel()
	beside.Wait()
	return passOn, err
}

// Opened records that a stream is open. closed ends that: what comes from then on is not
// known, and the worker polls.
func (w *Watcher) Opened() (ranks *Ranks, closed func()) {
	ranks = NewRanks()
	w.open.Store(ranks)
	return ranks, func() {
		w.open.Store(nil)
		w.cfg.Missed()
	}
}

// followAll takes events until ctx ends.
func (w *Watcher) followAll(ctx context.Context, stream *store.Stream, f Follower) error {
	for {
		woken, err := stream.Next(ctx, w.cfg.Batch)
		if err == nil {
			err = f.Follow(ctx, woken)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it shall end
		case err != nil:
			return err
		}
	}
}

// keepSeat keeps the seat while the stream is open, and returns when it is lost, the
// worker has been busy for a while, its types are others now, or the turn is over: then
// others shall watch.
func (w *Watcher) keepSeat(ctx context.Context, ranks *Ranks, types []string, seat *store.Seat) (passOn bool) {
	began := w.cfg.Clock.Monotonic()
	renewed, asked := began, time.Duration(-1)
	var others store.Watching
	keep := seatKeep*3/4 + rand.N(seatKeep/2) // not all at once, or nobody would watch for a while
	var busy busyness
	for ctx.Err() == nil && slices.Equal(types, w.cfg.Types()) {
		now := w.cfg.Clock.Monotonic()
		if now-renewed >= RenewEvery {
			call, cancel := context.WithTimeout(ctx, health.CallTimeout)
			ok, err := w.cfg.Store.Seats.Renew(call, seat, w.cfg.Holder)
			cancel()
			switch {
			case err == nil && !ok:
				return false
			case err == nil:
				renewed = now
			}
		}
		if asked < 0 || now-asked >= LookEvery || len(ranks.doubt) > 0 && now-asked >= doubtPause {
			call, cancel := context.WithTimeout(ctx, health.CallTimeout)
			watching, err := w.cfg.Store.Seats.Watching(call, seat)
			cancel()
			if err == nil {
				others, asked = watching, now
				ranks.Learn(watching)
			}
		}
		if turn := now - began; turn > longestWatch || turn > keep && w.wanted(others) {
			return w.wanted(others)
		}
		if busy.tick(w.cfg.Backlog(), w.Idle()) {
			return false
		}
		clock.Pause(ctx, busyPause)
	}
	return false
}

// wanted says whether somebody may be waiting for this worker's seat.
func (w *Watcher) wanted(others store.Watching) bool {
	return others.Full || others.Watchers >= store.StreamsPerTypes && w.cfg.Fleet() > others.Watchers
}

// busyness says when a watcher has so much to do that its stream is of no use. It is
// asked once in a busyPause.
type busyness struct{ draining, busy int }

func (b *busyness) tick(backlog, idle bool) (giveUp bool) {
	b.draining, b.busy = b.draining+1, b.busy+1
	if !backlog {
		b.draining = 0
	}
	if idle {
		b.busy = 0
	}
	return b.draining >= drainTicks || b.busy >= busyTicks
}

// sameStream names what makes two workers' change streams alike.
func sameStream(types []string, only *lifecycle.Conditions) []string {
	if only == nil {
		return types
	}
	mark := func(kind string, values []string) string {
		return kind + strings.Join(slices.Sorted(slices.Values(values)), "\x00")
	}
	return append(slices.Clone(types), mark("tenants/", only.Tenants), mark("categories/", only.Categories), mark("creators/", only.Creators))
}
