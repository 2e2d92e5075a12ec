package consumer

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// fetchLoop looks for due tasks: at start, when woken, when a slot frees while more
// work is known, at a start time it knows of, and with every poll that saw something.
func (c *Consumer) fetchLoop(ctx context.Context) {
	for wait := c.health.NewBackOff(); ctx.Err() == nil; {
		full, err := c.fetch(ctx)
		if err == nil && !full {
			c.watch.Rested()
			err = c.rest(ctx)
		}
		c.health.Report(err)
		if err != nil {
			if ctx.Err() == nil && !store.Outage(err) {
				c.log.Error().Err(err).Msg("looking for work")
			}
			wait.Sleep(ctx)
			continue
		}
		wait.Reset()
		if full {
			c.awaitRoom(ctx)
			clock.Pause(ctx, c.nextFetch-c.cfg.Clock.Monotonic())
		}
	}
}

// awaitRoom waits until it is worth while to fetch again: more work is known.
func (c *Consumer) awaitRoom(ctx context.Context) {
	for {
		n := c.held.count()
		// Told only when so few wait that a fetch may be worth while: not by each of the
		// thousands that start a second.
		change := c.held.below(c.lead.enough(c.cfg.Concurrency-n.running, c.perSecond(n)))
		if c.room(c.held.count()) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-change:
		}
	}
}

// room is how many tasks to fetch now.
func (c *Consumer) room(n counts) int {
	return c.lead.toFetch(c.cfg.Concurrency-n.running, n.buffered, c.perSecond(n), c.presence.Fleet() <= 1)
}

// perSecond is how many handlers start. Where they ran out of tasks it is how many could start.
func (c *Consumer) perSecond(n counts) float64 {
	observed := c.rate.observe(c.cfg.Clock.Monotonic(), n.started)
	if n.running < c.cfg.Concurrency && c.lead.ranOut() {
		return max(observed, c.rate.possible(c.cfg.Concurrency))
	}
	return observed
}

// waits says whether tasks of the type are not to be claimed now, whoever has room: it is
// paused, or what is stored of it, limits among it, cannot be read.
func (c *Consumer) waits(typ string) bool {
	return c.control.Paused(typ) || c.taskTypes.Unread(typ) != nil
}

// claimableTypes are the types to ask for now: registered, not paused, with room below
// their limit and, where they are more than one query may name, with tasks. all is false
// while types with work may be missing: then ask again.
func (c *Consumer) claimableTypes(ctx context.Context) (types []string, all bool, err error) {
	registered := c.types()
	not := func(typ string) bool {
		return c.waits(typ) || c.noRoomFor(typ) || c.held.room(typ, c.handlerOf(typ).limit) <= 0
	}
	types = slices.DeleteFunc(slices.Clone(registered), not)
	if len(types) <= store.MaxTypes {
		return types, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	types, all, err = c.typeScan.Look(ctx, registered)
	return slices.DeleteFunc(types, not), all, err
}

// someTypes are as many of the types as a query may name: a random choice, which is fair.
func (c *Consumer) someTypes(types []string) []string {
	if len(types) > store.MaxTypes {
		rand.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		types = types[:store.MaxTypes]
	}
	return types
}

// turnOf is the next part of the types, which are sorted, that one query may name. last says
// that the others have had their turns: a worker does not rest before.
func (c *Consumer) turnOf(types []string) (some []string, last bool) {
	if len(types) <= store.MaxTypes {
		c.turnFrom = ""
		return types, true
	}
	from, _ := slices.BinarySearch(types, c.turnFrom)
	if from == len(types) {
		from = 0
	}
	to := min(from+store.MaxTypes, len(types))
	if c.turnFrom = ""; to < len(types) {
		c.turnFrom = types[to]
	}
	return types[from:to], to == len(types)
}

// fetch finds and claims one batch. full says that there is likely more.
func (c *Consumer) fetch(ctx context.Context) (full bool, err error) {
	before, began, won := c.held.count(), c.cfg.Clock.Monotonic(), c.stats.won.Load()
	full, asked, err := c.fetchOnce(ctx)
	if asked && err == nil {
		c.lead.learn(before, c.held.count(), c.cfg.Clock.Monotonic()-began, int(c.stats.won.Load()-won))
		if c.backlog.Store(full); !full {
			c.rate.backlogEnded()
		}
	}
	return full, err
}

// fetchOnce is [Consumer.fetch]. asked says whether it had a slot to look for.
func (c *Consumer) fetchOnce(ctx context.Context) (full, asked bool, err error) {
	if err := c.lapses.OwnFirst(ctx); err != nil {
		return false, true, err
	}
	c.claiming.Lock()
	defer c.claiming.Unlock()
	n := c.room(c.held.count())
	if n <= 0 {
		return true, false, nil // whether there is work is not known: look when there is room
	}
	if err := c.control.Fresh(ctx); err != nil {
		return false, true, err
	}
	types, all, err := c.claimableTypes(ctx)
	if err != nil || len(types) == 0 {
		c.seeker.NothingSkipped()
		return !all && err == nil, true, err
	}
	types, last := c.turnOf(types)
	all = all && last
	n = c.store.Tasks.Fit(c.gate.AtMost(types, n))
	workers := c.presence.Fleet()
	if c.stats.fetches.Load() == 0 {
		c.spread.crowd(workers)
	}
	began := c.cfg.Clock.Monotonic()
	got, err := c.search(ctx, types, n, workers)
	if err != nil {
		return false, true, err
	}
	found := got.Tasks
	if len(found) > 0 {
		c.lapses.Hint()
	}
	if err := c.lapses.OwnFirst(ctx); err != nil { // the search may have waited for the database
		return false, true, err
	}
	took, lost, err := c.claim(ctx, found)
	if err != nil {
		return false, true, err
	}
	if c.watch.Watching() && took+lost == len(found) {
		c.recent.add(found, c.cfg.Clock.Monotonic())
	}
	c.spread.learn(took, lost, workers)
	ended := c.cfg.Clock.Monotonic()
	c.nextFetch = ended
	if !c.claimer.AnyLimited(found) { // whose starts are lost when they come late
		// The error of the clock is about a round trip, and all this took three.
		c.nextFetch += c.spread.rest(max(0, ended-began-3*c.store.Clock.Error()))
	}
	none := took == 0 && lost == 0 && c.seeker.Refused.Full()
	if !c.refusedWalk.learn(c.cfg.Clock.Monotonic(), got.Take, len(found) < got.Take, none) {
		return !all, true, nil
	}
	if c.priorityEnded(got) {
		c.seeker.Forget()
		return true, true, nil
	}
	return !all || len(found) >= got.Take || !got.AtHead || lost > 0 || took < len(found) && took > 0, true, nil
}

// priorityEnded reports whether a backlog has ended, of one priority perhaps: what there is of
// others may not be known to be in use, and only a full look finds it.
func (c *Consumer) priorityEnded(got claim.Catch) bool {
	if !got.AtHead {
		return false
	}
	now, filled := c.cfg.Clock.Monotonic(), c.filled
	c.filled = len(got.Queue) >= got.Take
	if got.Full {
		c.fullAt = now
	}
	return filled && !c.filled && !got.Full && now-c.fullAt >= claim.FullEvery/4
}

// search finds up to n candidates for a claim. Three things decide where it looks: the knowledge
// of the queue (c.seeker), the crowd (c.spread), and the tasks at the head that this worker may
// not run (c.refusedWalk).
func (c *Consumer) search(ctx context.Context, types []string, n, workers int) (claim.Catch, error) {
	for {
		now := c.cfg.Clock.Monotonic()
		past := c.refusedWalk.offset(now)
		if past == 0 && c.spread.wantsTail(now) {
			if err := c.askTail(ctx); err != nil {
				return claim.Catch{}, err
			}
		}
		a := aim{atHead: true, skip: past, take: n}
		if past == 0 {
			quick := min(c.perSecond(c.held.count())*quickShare.Seconds(), maxBatch)
			a = c.spread.look(n, int(quick), workers, now, c.random)
		}
		got, err := c.find(ctx, types, a)
		if err != nil {
			return claim.Catch{}, err
		}
		a.take = got.Take
		if past > 0 || !c.spread.saw(a, got.Queue, workers, now, c.random) {
			return got, nil
		}
	}
}

// askTail queries the end of the part of the queue in which the crowd looks.
func (c *Consumer) askTail(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tail, err := c.seeker.Tail(ctx, c.spread.field.first)
	if err == nil {
		c.spread.sawTail(tail, c.cfg.Clock.Monotonic())
	}
	return err
}

// find reads candidates at the place of the aim.
func (c *Consumer) find(ctx context.Context, types []string, a aim) (claim.Catch, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	c.stats.fetches.Add(1)
	got, err := c.seeker.Find(ctx, types, claim.Aim{
		AtHead: a.atHead, Whole: a.atHead && (a.skip > 0 || c.seeker.Refused.Full()),
		Skip: a.skip, Take: a.take, Scout: a.scout, Place: a.place,
	})
	c.lookedAt = got.At
	if got.AtHead {
		c.lookedFull = got.Full
	}
	if got.Trip > 0 {
		c.lead.tripped(got.Trip)
	}
	return got, err
}
