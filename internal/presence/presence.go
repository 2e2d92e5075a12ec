// Package presence makes a worker known to the others: its document, written every half minute,
// how many workers are alive beside it, and its rank among them.
package presence

import (
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Config is what a [Presence] needs.
type Config struct {
	Store    *store.Store
	Clock    clock.Clock
	Log      zerolog.Logger
	Worker   func() store.Worker // the worker's document as it is to be now
	Types    func() []string     // of that document, sorted
	Watching func() bool         // a change stream tells the worker of new work
	Busy     func() bool         // it holds something, or knows of more to find
	Asked    func(*store.Drain)  // called with each heartbeat: what an operator asks the worker for; nil = nothing
}

// Presence is this worker among the others. One goroutine at a time calls it, but for
// Fleet, Rank and Met, which are safe for concurrent use.
type Presence struct {
	cfg   Config
	id    string        // of this process
	beat  clock.Instant // the last heartbeat that was answered
	types []string      // that it told
	known bool          // a heartbeat of this process was answered
	warns clock.Seldom

	draining bool // that it told
	watching bool // it has told once that it watches
	fleet    atomic.Int64
	rank     atomic.Int64
	met      atomic.Bool   // another worker was quicker, so there are some
	early    time.Duration // how long after a count the next is early, if there are others
	counted  time.Duration // monotonic: when the others were counted; 0 = never
}

// How often a worker that has nothing to do counts the others: by their number go its
// polls, while it does not watch.
const (
	// CountPolling is the pause of one that polls.
	CountPolling = 2 * time.Minute
	// CountWatching is the pause of one that watches.
	CountWatching = 10 * time.Minute
)

// PollWatching is the default pause between the polls of a worker that watches a change stream.
const PollWatching = 30 * time.Second

// PollPause is the mean pause between the polls of a worker that does not watch: a fleet of
// so many polls about twenty times a second, however large it is.
func PollPause(fleet int) time.Duration {
	return max(time.Second, time.Duration(fleet)*time.Second/20)
}

// New returns the Presence of a worker that nobody knows yet.
func New(cfg Config) *Presence { return &Presence{cfg: cfg, id: rand.Text()} }

// Fleet is how many live workers serve one of the worker's types, this one included; 0 = they
// were not counted yet.
func (p *Presence) Fleet() int { return int(p.fleet.Load()) }

// Rank is how many of the live workers come before this one in the order of their ids.
func (p *Presence) Rank() int { return int(p.rank.Load()) }

// Met says that other workers want the same tasks. Those that started together have not seen all of
// each other, so the others are counted again soon.
func (p *Presence) Met() { p.met.Store(true) }

// firstEarly is the time from the first count to the second where others were met. Each such
// time is twice the one before, up to a heartbeat.
const firstEarly = 250 * time.Millisecond

// Due reports whether it is time for a heartbeat: also when the types have changed, the worker watches for the first
// time, it has begun to drain or ceased to, or the clock was not read for as long.
func (p *Presence) Due() bool {
	return p.countsEarly() || !p.watching && p.cfg.Watching() || p.draining != p.cfg.Worker().Draining || p.beat.Since(p.cfg.Clock) >= store.HeartbeatInterval || p.cfg.Store.Clock.Age() >= store.HeartbeatInterval || !slices.Equal(p.types, p.cfg.Types())
}

// countsEarly reports whether other workers were met that the last count may have missed.
func (p *Presence) countsEarly() bool {
	return p.met.Load() && p.counted != 0 && p.early < store.HeartbeatInterval && p.cfg.Clock.Monotonic()-p.counted >= p.early
}

// Beat writes the worker's document and reads the clock.
func (p *Presence) Beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, health.CallTimeout)
	defer cancel()
	watching := p.watching || p.cfg.Watching() // before the document says it
	worker, began := p.cfg.Worker(), p.cfg.Clock.Monotonic()
	worker.Process = p.id
	stored, err := p.cfg.Store.Workers.Beat(ctx, worker, !p.known)
	if err != nil {
		return err
	}
	p.known = true
	p.cfg.Asked(stored.Drain)
	if other := stored.SharedBy(); other != nil && p.warns.Again(worker.ID, p.cfg.Clock) {
		p.cfg.Log.Warn().Str("other_host", other.Host).Int("other_pid", other.PID).
			Msg("another live process uses the id of this worker; give each process its own worker id")
	}
	if ago, ok := p.cfg.Store.Clock.Jumped(input.MinWorkerTimeout / claim.MarginShare); ok && ago <= p.cfg.Clock.Monotonic()-began {
		p.cfg.Log.Warn().Msg("the database and this machine measured different elapsed times; takeovers of short leases are postponed")
	}
	if err := p.count(ctx, worker); err != nil {
		return err
	}
	p.beat, p.types, p.draining, p.watching = clock.Read(p.cfg.Clock), worker.Types, worker.Draining, watching
	return nil
}

// count counts the live workers: with every heartbeat while there is something to do, else
// rarely.
func (p *Presence) count(ctx context.Context, worker store.Worker) error {
	now, every := p.cfg.Clock.Monotonic(), CountPolling
	if p.cfg.Watching() {
		every = CountWatching
	}
	if p.counted != 0 && now-p.counted < every && !p.cfg.Busy() && !p.countsEarly() {
		return nil
	}
	ids, err := p.cfg.Store.Workers.Alive(ctx, worker.Types)
	if err == nil {
		rank, _ := slices.BinarySearch(ids, worker.ID)
		p.rank.Store(int64(rank))
		p.fleet.Store(int64(max(len(ids), 1)))
		p.met.Store(false)
		p.counted, p.early = max(now, 1), max(firstEarly, 2*p.early)
	}
	return err
}
