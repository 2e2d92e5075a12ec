package consumer

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// permitRetry is how often an idle worker without a permit asks for one, and how
	// long a stream is kept before another worker gets its turn.
	permitRetry  = 30 * time.Second
	permitKeep   = 10 * time.Minute
	busyPause    = time.Second
	rankDelay    = 5 * time.Millisecond
	renewPermits = store.PermitLease / 3
	closeTimeout = 2 * time.Second // a server that never answers must not hold up a stop
)

// watchLoop keeps a change stream open while this worker is idle and has a permit.
// Streams are few, because each costs the database's primary; who has none polls.
func (c *Consumer) watchLoop(ctx context.Context) {
	if c.cfg.NoStream {
		return
	}
	holder := c.cfg.WorkerID + "/" + randomHex(4)
	for wait := newBackOff(); ctx.Err() == nil; {
		if !c.idle() {
			sleep(ctx, busyPause)
			continue
		}
		err := c.watchOnce(ctx, holder)
		c.health.report(c, err)
		if err != nil && ctx.Err() == nil {
			c.log.Debug().Err(err).Msg("the change stream ended; polling meanwhile")
			c.emit(Event{Kind: EventStream, Reason: "polling: " + err.Error()})
			wait.sleep(ctx)
			continue
		}
		wait = newBackOff()
	}
}

// idle says whether this worker waits for work: it knows of none, and has a slot. While
// it drains a backlog every event would only tell it what its next fetch finds.
func (c *Consumer) idle() bool {
	n := c.held.count()
	return !c.backlog.Load() && n.running < c.cfg.Concurrency && n.buffered == 0
}

// watchOnce takes a permit, watches until the turn is over or the worker gets busy, and
// gives the permit back. Without streams or permits it waits.
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
	types := c.types()
	permit, err := c.store.AcquireStream(call, types, holder)
	if err != nil {
		return err
	}
	if permit == nil {
		sleep(ctx, permitRetry)
		return nil
	}
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = c.store.ReleaseStream(call, permit, holder) // else it lapses
	}()
	return c.watch(ctx, types, permit, holder)
}

func (c *Consumer) watch(ctx context.Context, types []string, permit *store.StreamPermit, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, permitKeep)
	defer cancel()
	stream, err := c.store.Watch(ctx, types)
	if err != nil {
		return err
	}
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = stream.Close(call) // else the server forgets it in time
	}()
	c.watching.Store(true)
	defer func() {
		c.watching.Store(false)
		c.wake.now() // what came since is not known, and from now on it polls
	}()
	c.emit(Event{Kind: EventStream, Reason: "watching"})
	c.wake.now() // what came before the stream was open
	go c.renew(ctx, cancel, permit, holder)
	for {
		woken, err := stream.Next(ctx, c.cfg.Concurrency)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.follow(ctx, woken, permit.Rank); err != nil {
			return err
		}
	}
}

// renew keeps the permit while the stream is open, and ends the stream when it is lost
// or the worker has been busy for a while.
func (c *Consumer) renew(ctx context.Context, end context.CancelFunc, permit *store.StreamPermit, holder string) {
	last := c.cfg.Clock.Monotonic()
	lastIdle := last
	for ctx.Err() == nil {
		sleep(ctx, busyPause)
		now := c.cfg.Clock.Monotonic()
		if c.idle() {
			lastIdle = now
		}
		if now-lastIdle > 10*busyPause {
			end()
			return
		}
		if now-last < renewPermits {
			continue
		}
		call, cancel := context.WithTimeout(ctx, rpcTimeout)
		ok, err := c.store.RenewStream(call, permit, holder)
		cancel()
		if err == nil && !ok {
			end()
			return
		}
		if err == nil {
			last = now
		}
	}
}

// follow claims what events named, without a search. Of the workers that see the same
// event one writes first: each task has a rank for each of them, and the later look
// before they write.
func (c *Consumer) follow(ctx context.Context, woken []store.Woken, rank int) error {
	token(c.stirred)
	now := c.store.Clock.Now()
	var mine []*model.Task
	var read []string
	for _, w := range woken {
		switch {
		case w.Task == nil || w.Task.DueAt.IsZero() || c.handlerOf(w.Task.Type) == nil:
			if _, typ, _, err := model.ParseTaskID(w.ID); err == nil && c.handlerOf(typ) != nil && w.Task == nil {
				read = append(read, w.ID)
			}
		case w.Task.DueAt.After(now):
			c.wake.at(w.Task.DueAt)
		case rankOf(w.ID, rank) == 0:
			mine = append(mine, w.Task)
		default:
			read = append(read, w.ID)
		}
	}
	if err := c.claimNamed(ctx, mine); err != nil {
		return err
	}
	if len(read) == 0 {
		return nil
	}
	sleep(ctx, rankDelay)
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tasks, err := c.store.ByIDs(call, read)
	if err != nil {
		return err
	}
	mine = mine[:0]
	now = c.store.Clock.Now()
	for _, t := range tasks {
		switch {
		case t.DueAt.IsZero(): // somebody has it
		case t.DueAt.After(now):
			c.wake.at(t.DueAt)
		default:
			mine = append(mine, t)
		}
	}
	return c.claimNamed(ctx, mine)
}

// rankOf is 0 for the watcher that may write at once, 1 for the one that looks first.
func rankOf(id string, rank int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return (int(h.Sum32()&1) + rank) % store.StreamsPerTypes
}

// claimNamed claims tasks that are known, as far as there is room; the rest is left to
// a fetch.
func (c *Consumer) claimNamed(ctx context.Context, tasks []*model.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	c.claiming.Lock()
	defer c.claiming.Unlock()
	if err := c.control.fresh(ctx, c); err != nil {
		return err
	}
	room := c.room(c.held.count())
	var now []*model.Task
	for _, t := range tasks {
		if len(now) < room && !c.control.paused(t.Type) && mayBeFor(t, c.cfg.WorkerID) {
			now = append(now, t)
		}
	}
	if len(now) < len(tasks) {
		c.wake.now()
	}
	_, _, err := c.claim(ctx, now)
	return err
}

// mayBeFor looks at the audience, as a query would.
func mayBeFor(t *model.Task, workerID string) bool {
	for _, a := range t.Audience {
		if a == workerID || a == model.AudienceAll || a == model.AudienceMany {
			return true
		}
	}
	return false
}
