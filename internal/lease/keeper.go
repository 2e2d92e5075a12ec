package lease

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Holder is an execution whose lease a [Keeper] keeps.
type Holder interface {
	Lease() *Hold
	// Pingable reports whether pings may extend the lease: nobody else has the task, and no
	// transaction of the handler may be ending it.
	Pingable() bool
	// Unreturned reports whether the handler waits for its slot or runs.
	Unreturned() bool
}

// Config is what a [Keeper] needs.
type Config[X Holder] struct {
	Store  *store.Store
	Clock  clock.Clock
	Health *health.Monitor
	Log    zerolog.Logger
	Held   func() []X // all executions of this process
	Lost   func(X)    // called when somebody else has taken the task over or ended it
	Ended  func(X)    // called when the lease, or its margin, has ended
}

// Keeper keeps the leases of everything that a process holds.
type Keeper[X Holder] struct {
	cfg     Config[X]
	ping    chan struct{} // the next ping may be due earlier than the loop knows
	guard   chan struct{} // the same, for the next margin
	beside  sync.WaitGroup
	waiting atomic.Int64 // batches without an answer

	mu       sync.Mutex
	answered clock.Instant // when the last ping that was answered was sent
	batches  atomic.Int64
	refused  clock.Seldom
}

const (
	// LongestPause is the time between two looks at which pings are due, at most.
	LongestPause  = time.Second
	shortestPause = 20 * time.Millisecond
	// Early is the share of a ping interval by which pings may be early, so that they gather.
	Early = 4
	// confirmTime is how long the database has to confirm leases that have ended by the wall clock
	// alone.
	confirmTime = time.Second
	// A batch of pings waits for its answer for intervalsWaited ping intervals, which is about the length of its leases,
	// and at most longestWait. At most mostWaiting batches wait at once, each on a connection.
	intervalsWaited = 3
	longestWait     = 30 * time.Second
	mostWaiting     = 3
)

// NewKeeper returns a Keeper whose loops do not run yet.
func NewKeeper[X Holder](cfg Config[X]) *Keeper[X] {
	return &Keeper[X]{cfg: cfg, ping: make(chan struct{}, 1), guard: make(chan struct{}, 1)}
}

// Added says that something new is held: its ping interval and its margin may be shorter than
// the loops sleep.
func (k *Keeper[X]) Added() {
	k.PingNow()
	clock.Wake(k.guard)
}

// PingNow makes the ping loop look at once which pings are due.
func (k *Keeper[X]) PingNow() { clock.Wake(k.ping) }

// Woken carries a token after [Keeper.PingNow].
func (k *Keeper[X]) Woken() <-chan struct{} { return k.ping }

// Batches is how many batches of pings the database has answered.
func (k *Keeper[X]) Batches() int64 { return k.batches.Load() }

// Wait waits for what the loops began beside themselves.
func (k *Keeper[X]) Wait() { k.beside.Wait() }

// PingLoop keeps the leases until ctx ends, one batch an interval.
func (k *Keeper[X]) PingLoop(ctx context.Context) {
	for ctx.Err() == nil {
		clock.PauseOr(ctx, k.PingDue(ctx), k.Woken())
	}
}

// PingDue pings what is due, and what is almost due so that pings gather, and returns
// how long until the next.
func (k *Keeper[X]) PingDue(ctx context.Context) time.Duration {
	var batch []X
	answered, waits, awaited := true, false, false
	next := LongestPause
	for _, x := range k.cfg.Held() {
		if !x.Pingable() || x.Lease().Bounded() {
			continue
		}
		if rest := x.Lease().expected(k.cfg.Clock); rest > 0 {
			next, awaited = min(next, rest), true
			continue
		}
		due, interval := x.Lease().pingDue(k.cfg.Clock), x.Lease().Interval()
		if due <= interval/Early {
			batch = append(batch, x)
			due = interval / 8 // of a next try, if this one is not answered
		}
		next = min(next, due)
	}
	if len(batch) > 0 {
		answered, waits = k.pingBatch(ctx, batch)
	}
	switch {
	case answered && !awaited:
		k.cfg.Health.Pinged()
	case !answered && !waits: // others believe that a healthy worker tries again so soon
		next = min(next, claim.RetryPings/2+rand.N(claim.RetryPings/2))
	}
	return max(next, shortestPause)
}

// pingBatch pings free tasks in one batch. It pings held tasks one by one beside the batch. So
// they delay no other task, and keep their leases if the transaction ends in time. answered
// reports whether the database answered the batch, waits whether it still may.
func (k *Keeper[X]) pingBatch(ctx context.Context, batch []X) (answered, waits bool) {
	free := make([]X, 0, len(batch))
	for _, x := range batch {
		l := x.Lease()
		switch {
		case !k.cfg.Store.Suspected(l.task.ID):
			free = append(free, x)
		case l.alone.CompareAndSwap(false, true):
			k.beside.Go(func() {
				defer l.alone.Store(false)
				k.Ping(ctx, x)
			})
		}
	}
	if len(free) == 0 {
		return true, false
	}
	return k.pingOn(ctx, free)
}

// pingOn pings the batch and waits at most LongestPause, so that other leases can be pinged. If there is no answer within
// the patience of [Keeper.Ping], the next ping goes out beside this one, whose connection may never answer. A later
// answer still counts: the majority may lag, or handlers may use all connections of the pool.
func (k *Keeper[X]) pingOn(ctx context.Context, batch []X) (answered, waits bool) {
	if k.waiting.Load() >= mostWaiting {
		return false, false
	}
	patience := k.patience(batch)
	limit := patience
	if !k.cfg.Health.Down() {
		for _, x := range batch {
			limit = max(limit, min(intervalsWaited*x.Lease().Interval(), longestWait))
		}
	}
	until := k.cfg.Clock.Monotonic() + patience
	for _, x := range batch {
		x.Lease().expect(until)
	}
	var ok atomic.Bool
	done := make(chan struct{})
	k.waiting.Add(1)
	k.beside.Go(func() {
		defer close(done)
		defer k.waiting.Add(-1)
		ok.Store(k.pingWithin(ctx, limit, batch))
		for _, x := range batch {
			x.Lease().came(until)
		}
	})
	came := clock.PauseOr(ctx, min(patience, LongestPause), done)
	return ok.Load(), !came && patience > LongestPause
}

// patience is how long the answer to pings of the batch is waited for.
func (k *Keeper[X]) patience(batch []X) time.Duration {
	if k.cfg.Health.Down() { // on a connection, perhaps, that will never answer
		return time.Second
	}
	return max(shortest(batch), time.Second)
}

// shortest is the shortest ping interval of the batch.
func shortest[X Holder](batch []X) time.Duration {
	interval := batch[0].Lease().Interval()
	for _, x := range batch {
		interval = min(interval, x.Lease().Interval())
	}
	return interval
}

// Ping extends the leases of the batch, and reports whether the database answered within the shortest of their ping
// intervals.
func (k *Keeper[X]) Ping(ctx context.Context, batch ...X) (answered bool) {
	return k.pingWithin(ctx, k.patience(batch), batch)
}

// pingWithin is [Keeper.Ping] with a limit of its own.
func (k *Keeper[X]) pingWithin(ctx context.Context, limit time.Duration, batch []X) (answered bool) {
	interval, slept := shortest(batch), k.cfg.Store.Clock.Age() >= store.MaxClockAge
	for _, x := range batch {
		slept = slept || x.Lease().mayHaveSlept(k.cfg.Clock)
	}
	call, cancel := k.cfg.Health.Call(ctx, limit)
	defer cancel()
	if slept { // a lease that counts from an estimate of before would have lapsed already
		if err := k.cfg.Store.ReadClock(call); err != nil {
			k.cfg.Health.Report(err)
			return false
		}
	}
	stamp := k.cfg.Store.Clock.Stamp()
	pings := make([]store.Ping, len(batch))
	byPing := make(map[[2]string]X, len(batch))
	for i, x := range batch {
		l := x.Lease()
		pings[i] = store.Ping{ID: l.task.ID, ExecID: l.execID, Index: l.index, Many: l.Many(), Until: lifecycle.Lease(l.entry(), l.length, stamp.Now)}
		byPing[[2]string{l.task.ID, l.execID}] = x
	}
	unsure, err := k.cfg.Store.Tasks.Extend(call, pings, interval/4)
	k.report(err, stamp.At)
	prove := func(p *store.Ping) {
		if x, kept := byPing[[2]string{p.ID, p.ExecID}]; kept && !p.Missed {
			l := x.Lease()
			l.prove(stamp, p.Until.Sub(stamp.Now), p.Until.Equal(l.entry().Deadline))
		}
	}
	for i := range pings { // answered pings count, whatever the results of the others
		prove(&pings[i])
	}
	if (err == nil || store.Final(err)) && len(unsure) > 0 { // of one of several commands, perhaps
		// The search for held documents may have taken all of the time. This read waits for nobody,
		// so it has a time of its own.
		look, cancel := k.cfg.Health.Call(ctx, limit)
		defer cancel()
		lost, unread := k.cfg.Store.Tasks.Lost(look, unsure)
		k.cfg.Health.Report(unread)
		err = cmp.Or(err, unread)
		for _, p := range lost {
			x := byPing[[2]string{p.ID, p.ExecID}]
			delete(byPing, [2]string{p.ID, p.ExecID})
			k.cfg.Lost(x)
		}
		for _, p := range unsure {
			prove(p)
		}
	}
	if err == nil {
		k.batches.Add(1)
	} else if ctx.Err() == nil && store.Final(err) && k.refused.Again("", k.cfg.Clock) {
		k.cfg.Log.Error().Err(err).Msg("could not ping; retrying")
	}
	return err == nil
}

// report reports what became of a ping that was sent then. If a later one was answered, the error of this one is no news.
func (k *Keeper[X]) report(err error, sent clock.Instant) {
	k.mu.Lock()
	old := k.answered.After(sent)
	if err == nil && !old {
		k.answered = sent
	}
	k.mu.Unlock()
	if err == nil || !old || !store.Outage(err) {
		k.cfg.Health.Report(err)
	}
}

// GuardLoop watches the margins until ctx ends: a handler whose lease could not be extended is
// told to stop before the lease ends and somebody else may begin.
func (k *Keeper[X]) GuardLoop(ctx context.Context) {
	for ctx.Err() == nil {
		next := LongestPause
		var doubtful []X
		for _, x := range k.cfg.Held() {
			if !x.Unreturned() {
				continue
			}
			left := x.Lease().Trusted(k.cfg.Clock)
			if left > 0 {
				next = min(next, left)
				continue
			}
			asked, rest := x.Lease().askFirst(k.cfg.Clock)
			switch asked {
			case unasked:
				doubtful = append(doubtful, x)
			case answered:
				k.cfg.Ended(x)
				continue
			case asking:
			}
			next = min(next, rest) // then it has lapsed by both clocks
		}
		if len(doubtful) > 0 { // beside the others, whose margin ends meanwhile
			k.beside.Go(func() { k.Confirm(ctx, doubtful) })
		}
		clock.PauseOr(ctx, max(next, time.Millisecond), k.guard)
	}
}

// Confirm pings executions whose leases have ended by the wall clock alone, so that setting a
// machine's clock does not cost it its work. A lease that ends at the deadline cannot be
// extended; the database's clock decides about it.
func (k *Keeper[X]) Confirm(ctx context.Context, doubtful []X) {
	defer clock.Wake(k.guard)
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var batch []X
	var bounded []*Hold
	for _, x := range doubtful {
		if l := x.Lease(); l.Bounded() {
			bounded = append(bounded, l)
		} else {
			batch = append(batch, x)
		}
	}
	if len(batch) > 0 {
		k.Ping(ctx, batch...)
	}
	if len(bounded) > 0 {
		err := k.cfg.Store.ReadClock(ctx)
		k.cfg.Health.Report(err)
		if stamp := k.cfg.Store.Clock.Stamp(); err == nil {
			for _, l := range bounded {
				l.prove(stamp, l.entry().Deadline.Sub(stamp.Now), true)
			}
		}
	}
	for _, x := range doubtful {
		x.Lease().confirmed()
	}
}
