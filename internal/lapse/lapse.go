// Package lapse watches for lapsed leases: when to ask the database for them, and when to leave
// them alone because their owners may be well. What becomes of a task over a lapsed lease is the
// caller's; see [Config].
package lapse

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Config is what a [Watch] needs.
type Config struct {
	Store  *store.Store
	Clock  clock.Clock
	Health *health.Monitor
	Log    zerolog.Logger
	Poll   time.Duration   // the longest pause between two scans while something is executing
	Pause  time.Duration   // the longest that a slow database adds to that
	Limit  int             // how many lapsed leases one query returns
	Types  func() []string // whose tasks this worker runs
	Fleet  func() int      // how many workers scan
	// Preempt decides what becomes of the tasks over lapsed leases and writes it. It returns how
	// many have changed, and what it leaves alone for a while.
	Preempt func(ctx context.Context, found []*model.Task) (changed int, left claim.LeftAlone, err error)
	Ends    func(ctx context.Context) error // waits for the ends of this worker that are to be written
}

// Watch looks for lapsed leases, and knows whether anything is executing anywhere. While
// nothing is, each poll of the worker asks whether that has changed, see [Watch.See]; while
// something is, scans do.
type Watch struct {
	cfg       Config
	hint      chan struct{}
	pace      *clock.Pacer
	executing atomic.Bool  // somebody executed something when it was last asked
	askedAt   atomic.Int64 // monotonic: when that was
	scans     atomic.Int64
	restored  atomic.Bool      // an outage has ended since the primary was last asked for
	from      store.LapsedFrom // where the next scan begins; of the scans alone
}

// scansPerSecond is how often the whole fleet looks for lapsed leases.
const scansPerSecond = 4

// longestScanPause lets an idle worker of a large fleet trust what it finds. The gap between two
// answers stays below one that could cost a lease of 30 s, see [claim.Trust]. With a longer gap it
// would have to observe for a ping interval before it takes a task over.
const longestScanPause = 8 * time.Second

// ScanPause is the mean pause between the scans of one worker of a fleet of so many while
// something is executing.
func ScanPause(fleet int) time.Duration { return min(share(fleet), longestScanPause) }

func share(fleet int) time.Duration { return time.Duration(fleet) * time.Second / scansPerSecond }

// New returns a Watch that knows of no execution.
func New(cfg Config) *Watch {
	return &Watch{cfg: cfg, hint: make(chan struct{}, 1), pace: clock.NewPacer(cfg.Clock, 0, cfg.Pause)}
}

// Hint says that a task was found, inserted or claimed: it may be executing by now.
func (w *Watch) Hint() { clock.Wake(w.hint) }

// Executing reports whether something was executing when the database was last asked.
func (w *Watch) Executing() bool { return w.executing.Load() }

// Restored says that an outage is over, perhaps because another primary was elected: the next scan asks.
func (w *Watch) Restored() {
	w.restored.Store(true)
	w.Hint()
}

// Hinted carries a token after [Watch.Hint].
func (w *Watch) Hinted() <-chan struct{} { return w.hint }

// See records whether something is executing, as a poll saw it.
func (w *Watch) See(executing bool) {
	w.executing.Store(executing)
	if executing {
		w.Hint()
	}
}

// Asked records that the database has answered whether something is executing.
func (w *Watch) Asked() { w.askedAt.Store(int64(w.cfg.Clock.Monotonic())) }

// Scans is how often the database was asked for the next lapse.
func (w *Watch) Scans() int64 { return w.scans.Load() }

// Begin records since when the owners of leases could ping. That is when some process first noted
// the present primary, or now if nobody did. Call it before the first scan, when the clock has been
// read.
func (w *Watch) Begin(ctx context.Context) {
	ago := time.Duration(0)
	if name := w.cfg.Health.Trust.Primary(); name != "" {
		call, cancel := context.WithTimeout(ctx, health.CallTimeout)
		since, err := w.cfg.Store.Control.TermSince(call, name)
		cancel()
		w.cfg.Health.Report(err)
		if err == nil {
			ago = w.cfg.Store.Clock.Now().Sub(since)
		}
	}
	w.cfg.Health.Trust.DoubtBefore(ago)
}

// Loop looks for lapsed leases until ctx ends: at start, and while executions are open anywhere
// so often that the fleet scans about four times a second. It calls [Watch.Begin] first.
func (w *Watch) Loop(ctx context.Context) {
	w.Begin(ctx)
	for wait := w.cfg.Health.NewBackOff(); ctx.Err() == nil; {
		left, err := w.Scan(ctx)
		if err == nil && left.Wait > 0 {
			err = w.Observe(ctx, left)
		}
		w.cfg.Health.Report(err)
		if err != nil {
			if ctx.Err() == nil && !store.Outage(err) {
				w.cfg.Log.Error().Err(err).Msg("could not search for lapsed leases; retrying")
			}
			wait.Sleep(ctx)
			continue
		}
		wait.Reset()
		if left.Wait == 0 {
			clock.Pause(ctx, max(w.scanPause(), w.pace.Left()))
		}
		for !w.Executing() && ctx.Err() == nil {
			if w.awaitHint(ctx) {
				break
			}
		}
	}
}

// awaitHint waits, while nothing is executing, until a poll saw a lease, a task was found or an
// event came, which mean that an execution may be open by now. Or until the polls have not
// asked for long.
func (w *Watch) awaitHint(ctx context.Context) (scan bool) {
	age := w.cfg.Clock.Monotonic() - time.Duration(w.askedAt.Load())
	left := w.cfg.Poll*3/2 - age
	if left <= 0 {
		return true
	}
	return clock.PauseOr(ctx, left, w.Hinted())
}

// OwnFirst waits, after an outage, until this worker has pinged its own leases and written its
// ends, see [health.Monitor.OwnFirst].
func (w *Watch) OwnFirst(ctx context.Context) error {
	if w.cfg.Health.Down() { // a question that changes nothing; its answer wakes pings and ends
		if _, err := w.Next(ctx); err != nil {
			return err
		}
	}
	w.cfg.Health.OwnFirst(ctx, w.cfg.Ends)
	return nil
}

// mostLeft bounds how many tasks one scan finds that it leaves as they are. The next scan goes on behind them.
const mostLeft = 2500

// Scan takes over what has lapsed.
func (w *Watch) Scan(ctx context.Context) (claim.LeftAlone, error) {
	if err := w.OwnFirst(ctx); err != nil {
		return claim.LeftAlone{}, err
	}
	if w.restored.Swap(false) {
		if err := w.CheckPrimary(ctx); err != nil {
			w.restored.Store(true)
			return claim.LeftAlone{}, err
		}
	}
	next, err := w.Next(ctx)
	if err != nil || next.IsZero() || next.After(w.cfg.Store.Clock.Now()) {
		return claim.LeftAlone{}, err
	}
	return w.pass(ctx)
}

// pass goes through the lapsed leases page by page, from where the last scan stopped to the last of them, and then from
// the first on. It does so until nothing changes any more.
func (w *Watch) pass(ctx context.Context) (left claim.LeftAlone, err error) {
	again := !w.from.Begins()
	for n := 0; n < mostLeft; {
		found, err := w.page(ctx)
		if err != nil {
			return left, err
		}
		if len(found) == 0 {
			w.from = store.LapsedFrom{}
			if !again {
				break
			}
			again = false
			continue
		}
		changed, some, err := w.cfg.Preempt(ctx, found)
		if left.Add(some); err != nil {
			return left, err
		}
		for _, t := range found {
			w.from.Leave(t)
		}
		again = again || changed > 0
		n += len(found) - changed
	}
	return left, nil
}

// page reads the next lapsed leases.
func (w *Watch) page(ctx context.Context) ([]*model.Task, error) {
	call, cancel := context.WithTimeout(ctx, health.CallTimeout)
	found, err := w.cfg.Store.Tasks.Lapsed(call, w.cfg.Types(), &w.from, w.cfg.Limit)
	cancel()
	if err != nil {
		return nil, err
	}
	w.cfg.Health.Trust.Answered() // over a slow network the questions of a scan take long together
	if len(found) == 0 {
		return nil, nil
	}
	if err = w.CheckPrimary(ctx); err != nil {
		return nil, err
	}
	w.cfg.Health.Trust.Answered()
	return found, nil
}

// Next reads when the next lease lapses; zero = none does. That reads one index key from every
// server that has tasks, so its answer also proves that the database is available.
func (w *Watch) Next(ctx context.Context) (next time.Time, err error) {
	call, cancel := context.WithTimeout(ctx, health.CallTimeout)
	defer cancel()
	var sure bool
	err = w.pace.Do(func() (err error) {
		next, sure, err = w.cfg.Store.Tasks.NextLapse(call, w.cfg.Types())
		return err
	})
	w.scans.Add(1)
	w.cfg.Health.Report(err)
	if err == nil {
		w.Asked()
		if sure {
			w.executing.Store(!next.IsZero())
		}
	}
	return next, err
}

// Observe watches the database until the first of the tasks that were left alone may be taken
// over, or no lease is lapsed any more; not for longer than [longestScanPause], since meanwhile other leases
// may lapse that nobody has to leave alone. A random part of the usual pause spreads the queries
// of the fleet.
func (w *Watch) Observe(ctx context.Context, left claim.LeftAlone) error {
	until := w.cfg.Clock.Monotonic() + min(left.Wait, longestScanPause) + rand.N(w.scanPause())
	for {
		rest := until - w.cfg.Clock.Monotonic()
		if rest <= 0 || !clock.Pause(ctx, min(rest, left.Every)) {
			return nil
		}
		next, err := w.Next(ctx)
		if err != nil || next.IsZero() || next.After(w.cfg.Store.Clock.Now()) {
			return err
		}
	}
}

// scanPause is this worker's share of the fleet's scans while something is executing.
func (w *Watch) scanPause() time.Duration {
	pause := share(w.cfg.Fleet())
	return min(pause*3/4+rand.N(pause/2+1), w.cfg.Poll, longestScanPause)
}

// CheckPrimary is [Watch.SeePrimary] of a process that runs: it also notes the primary for
// processes that start.
func (w *Watch) CheckPrimary(ctx context.Context) error {
	err := w.SeePrimary(ctx)
	if err == nil {
		w.cfg.Store.Control.NoteTerm(ctx, w.cfg.Health.Trust.Primary())
	}
	return err
}

// SeePrimary asks who the primary is: another one than before means that the workers
// may just not have been able to ping.
func (w *Watch) SeePrimary(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, health.CallTimeout)
	defer cancel()
	name, err := w.cfg.Store.Primary(ctx)
	if err == nil && w.cfg.Health.Trust.SawPrimary(name) {
		w.cfg.Log.Warn().Str("primary", name).Msg("the primary changed; takeovers are postponed")
		w.cfg.Store.Forget()
		w.cfg.Store.Clock.Doubt()
	}
	return err
}
