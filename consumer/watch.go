package consumer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

const (
	// seatRetry is how often an idle worker without a seat asks for one.
	seatRetry = 30 * time.Second
	// seatKeep is how long a stream is kept while others may want its seat, and
	// longestWatch how long where nobody does.
	seatKeep     = 10 * time.Minute
	longestWatch = time.Hour
	busyPause    = time.Second
	// drainTicks and busyTicks are for how long a watcher keeps its stream although it
	// drains a backlog, or has no free slot, in pauses of busyPause.
	drainTicks   = 2
	busyTicks    = 10
	renewPermits = store.SeatLease * 2 / 3
	askPermits   = 2 * renewPermits
	doubtPause   = 5 * time.Second // between two looks at the seats because of a lost claim
	closeTimeout = 2 * time.Second // a server that never answers must not hold up a stop
)

// watchLoop keeps a change stream open while this worker is idle and has a seat.
// Streams are few, because each costs the database's primary; who has none polls.
func (c *Consumer) watchLoop(ctx context.Context) {
	if c.cfg.NoStream {
		return
	}
	holder := c.cfg.WorkerID + "/" + randomHex(4)
	for wait := c.health.NewBackOff(); ctx.Err() == nil; {
		if !c.idle() {
			c.awaitRest(ctx, busyPause)
			continue
		}
		err := c.watchOnce(ctx, holder)
		c.health.Report(err)
		if err != nil && ctx.Err() == nil {
			c.log.Debug().Err(err).Msg("the change stream ended; polling meanwhile")
			c.emit(Event{Kind: EventStream, Reason: "polling: " + err.Error()})
			wait.Sleep(ctx)
			continue
		}
		wait.Reset()
	}
}

// awaitRest waits for d, or until the fetch loop has found nothing more to do.
func (c *Consumer) awaitRest(ctx context.Context, d time.Duration) {
	clock.PauseOr(ctx, d, c.rested)
}

// idle says whether this worker waits for work: it has looked, knows of none, and has a
// slot. While it drains a backlog every event would only tell it what its next fetch
// finds, and cost the server what the event costs.
func (c *Consumer) idle() bool {
	n := c.held.count()
	return c.looked.Load() && !c.backlog.Load() && n.running < c.cfg.Concurrency && n.buffered == 0
}

// watchOnce takes a seat, watches until the turn is over or the worker gets busy, and
// gives the seat back. Without streams or seats it waits.
func (c *Consumer) watchOnce(ctx context.Context, holder string) error {
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	topology, err := c.store.Topology(call)
	if err != nil {
		return err
	}
	if !topology.Streams() {
		c.log.Info().Msg("this deployment has no change streams for workers; polling")
		c.emit(Event{Kind: EventStream, Reason: "polling: no change streams on this deployment"})
		<-ctx.Done()
		return nil
	}
	served, types := c.served.Load(), c.types()
	if len(types) == 0 { // of no category yet
		clock.Pause(ctx, busyPause)
		return nil
	}
	seat, err := c.store.Seats.Acquire(call, c.sameStream(types), holder)
	if err != nil {
		return err
	}
	if seat == nil {
		clock.Pause(ctx, seatRetry*3/4+rand.N(seatRetry/2))
		return nil
	}
	passOn, err := c.watch(ctx, types, served, seat, holder)
	call, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = c.store.Seats.Release(call, seat, holder) // else it lapses
	if passOn {
		clock.Pause(ctx, seatRetry*5/4) // all who wait for a seat ask in this time
	}
	return err
}

// watch follows the stream. passOn says that its turn is over, for others to watch.
func (c *Consumer) watch(ctx context.Context, types []string, served int64, seat *store.Seat, holder string) (passOn bool, err error) {
	// A deadline, though nothing ends by it: without one, the driver would lay the
	// client's own timeout, which is for calls, over each wait for an event.
	ctx, cancel := context.WithTimeout(ctx, 2*longestWatch)
	defer cancel()
	stream, err := c.store.Watch(ctx, types, c.only)
	if err != nil {
		return false, err
	}
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	f := newFollower(c)
	c.follower.Store(f)
	defer func() {
		c.follower.Store(nil)
		c.seeker.Forget()
		c.wake.now() // what came since is not known, and from now on it polls
	}()
	c.emit(Event{Kind: EventStream, Reason: "watching"})
	c.seeker.Forget()
	c.wake.now() // what came before the stream was open
	var beside sync.WaitGroup
	beside.Go(func() {
		defer cancel()
		passOn = c.keepPermit(ctx, f, served, seat, holder)
	})
	beside.Go(func() { f.followLate(ctx) })
	err = c.followAll(ctx, stream, f)
	cancel()
	beside.Wait()
	return passOn, err
}

// followAll takes events until ctx ends.
func (c *Consumer) followAll(ctx context.Context, stream *store.Stream, f *follower) error {
	for {
		woken, err := stream.Next(ctx, c.cfg.Concurrency)
		if err == nil {
			err = f.follow(ctx, woken)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it shall end
		case err != nil:
			return err
		}
	}
}

// watching says whether a change stream tells this worker of new work.
func (c *Consumer) watching() bool { return c.follower.Load() != nil }

// keepPermit keeps the seat while the stream is open, and returns when it is lost, the
// worker has been busy for a while, its types are others now, or the turn is over: then
// others shall watch.
func (c *Consumer) keepPermit(ctx context.Context, f *follower, served int64, seat *store.Seat, holder string) (passOn bool) {
	began := c.cfg.Clock.Monotonic()
	renewed, asked := began, time.Duration(-1)
	var others store.Watching
	keep := seatKeep*3/4 + rand.N(seatKeep/2) // not all at once, or nobody would watch for a while
	var busy busyness
	for ctx.Err() == nil && c.served.Load() == served {
		now := c.cfg.Clock.Monotonic()
		if now-renewed >= renewPermits {
			call, cancel := context.WithTimeout(ctx, rpcTimeout)
			ok, err := c.store.Seats.Renew(call, seat, holder)
			cancel()
			switch {
			case err == nil && !ok:
				return false
			case err == nil:
				renewed = now
			}
		}
		if asked < 0 || now-asked >= askPermits || len(f.doubt) > 0 && now-asked >= doubtPause {
			call, cancel := context.WithTimeout(ctx, rpcTimeout)
			w, err := c.store.Seats.Watching(call, seat)
			cancel()
			if err == nil {
				others, asked = w, now
				f.learn(w)
				empty(f.doubt)
			}
		}
		if turn := now - began; turn > longestWatch || turn > keep && c.wanted(others) {
			return c.wanted(others)
		}
		if busy.tick(c.backlog.Load(), c.idle()) {
			return false
		}
		clock.Pause(ctx, busyPause)
	}
	return false
}

// wanted says whether somebody may be waiting for this worker's seat.
func (c *Consumer) wanted(w store.Watching) bool {
	return w.Full || w.Watchers >= store.StreamsPerTypes && int(c.fleet.Load()) > w.Watchers
}

func empty(ch chan struct{}) {
	select {
	case <-ch:
	default:
	}
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
func (c *Consumer) sameStream(types []string) []string {
	if c.only == nil {
		return types
	}
	mark := func(kind string, values []string) string {
		return kind + strings.Join(slices.Sorted(slices.Values(values)), "\x00")
	}
	return append(slices.Clone(types), mark("tenants/", c.only.Tenants), mark("categories/", c.only.Categories), mark("creators/", c.only.Creators))
}
