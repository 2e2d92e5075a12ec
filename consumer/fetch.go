package consumer

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
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
				c.log.Error().Err(err).Msg("could not search for due tasks; retrying")
			}
			wait.Sleep(ctx)
			continue
		}
		wait.Reset()
		if full {
			c.awaitRoom(ctx)
			clock.Pause(ctx, c.plan.Next()-c.cfg.Clock.Monotonic())
		}
	}
}

// awaitRoom waits until it is worth while to fetch again: more work is known.
func (c *Consumer) awaitRoom(ctx context.Context) {
	for {
		n := c.held.count()
		// Told only when so few wait that a fetch may be worth while: not by each of the
		// thousands that start a second.
		change := c.held.below(c.plan.Enough(n.forPlan(), c.cfg.Clock.Monotonic()))
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
	return c.plan.Room(n.forPlan(), c.presence.Fleet() <= 1, c.cfg.Clock.Monotonic())
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

// fetch finds and claims one batch. full says that there is likely more.
func (c *Consumer) fetch(ctx context.Context) (full bool, err error) {
	c.awaitApart(ctx)
	before, began, won := c.held.count(), c.cfg.Clock.Monotonic(), c.stats.won.Load()
	full, asked, err := c.fetchOnce(ctx)
	if asked && err == nil {
		c.backlog.Store(full)
		c.plan.Learn(before.forPlan(), c.held.count().forPlan(), c.cfg.Clock.Monotonic()-began, int(c.stats.won.Load()-won), full)
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
	types, last := c.plan.Turn(types, store.MaxTypes)
	all = all && last
	n = c.store.Tasks.Fit(c.gate.AtMost(types, c.atMost(types, n)))
	workers := c.presence.Fleet()
	if c.stats.fetches.Load() == 0 {
		c.plan.Crowd(workers)
	}
	c.plan.Stand(c.presence.Rank(), c.store.Clock.Now())
	began := c.cfg.Clock.Monotonic()
	got, err := c.search(ctx, types, n, workers)
	if err != nil {
		return false, true, err
	}
	found := got.Tasks
	if len(found) > 0 {
		c.lapses.Hint()
	}
	// The search may have waited for the database.
	if err := c.control.Fresh(ctx); err != nil {
		return false, true, err
	}
	if err := c.lapses.OwnFirst(ctx); err != nil {
		return false, true, err
	}
	found = slices.DeleteFunc(slices.Clone(found), func(t *model.Task) bool { return c.waits(t.Type) })
	out, err := c.claim(ctx, found, nil)
	if err != nil {
		return false, true, err
	}
	took, lost := len(out.Won), out.Lost+out.Unwritable
	if out.Lost > 0 {
		c.presence.Met()
	}
	if c.watch.Watching() && took+lost == len(found) {
		c.recent.add(found, c.cfg.Clock.Monotonic())
	}
	done := fetchplan.Fetched{
		Got: got, Took: took, Lost: lost, OnlyRefused: took == 0 && lost == 0 && c.seeker.Refused.Full(),
		Workers: workers, Ended: c.cfg.Clock.Monotonic(),
	}
	if !c.claimer.AnyLimited(found) { // whose starts are lost when they come late
		// The error of the clock is about a round trip, and all this took three.
		done.Busy = max(0, done.Ended-began-3*c.store.Clock.Error())
	}
	more, anew := c.plan.Done(done)
	if anew {
		c.seeker.Forget()
	}
	return !all || more, true, nil
}

// atMost is how many tasks of the types are worth reading, where n fit. Types with a limit in this process bound it to
// a few more than may be claimed, since some candidates are refused or lost. One without is room for any number.
func (c *Consumer) atMost(types []string, n int) int {
	sum, room := 0, c.roomWith(nil)
	for _, typ := range types {
		sum += max(room(typ), 0)
	}
	return min(n, 2*sum+16)
}

// search finds up to n candidates for a claim. The plan decides where, by the crowd and by the
// tasks at the head that this worker may not run; the seeker knows the queue.
func (c *Consumer) search(ctx context.Context, types []string, n, workers int) (claim.Catch, error) {
	for {
		now := c.cfg.Clock.Monotonic()
		if first := c.plan.WantsTail(now); first != nil {
			if err := c.askTail(ctx, first); err != nil {
				return claim.Catch{}, err
			}
		}
		aim := c.plan.Aim(n, c.held.count().forPlan(), workers, now)
		got, err := c.find(ctx, types, aim)
		if err != nil {
			return claim.Catch{}, err
		}
		if !c.plan.Saw(aim, got, workers, now) {
			return got, nil
		}
	}
}

// askTail queries the end of the part of the queue in which the crowd looks.
func (c *Consumer) askTail(ctx context.Context, first *model.Task) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tail, err := c.seeker.Tail(ctx, first)
	if err == nil {
		c.plan.SawTail(tail, c.cfg.Clock.Monotonic())
	}
	return err
}

// find reads candidates at the place of the aim.
func (c *Consumer) find(ctx context.Context, types []string, a fetchplan.Aim) (claim.Catch, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	c.stats.fetches.Add(1)
	return c.seeker.Find(ctx, types, a.For(c.seeker.Refused.Full()))
}
