package consumer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	scanLimit = maxBatch
	// scansPerSecond is how often the whole fleet looks for lapsed leases.
	scansPerSecond = 4
	// singly is how many takeovers are written one by one; more go out as a batch.
	singly = 3
)

// preemptLoop looks for lapsed leases: at start, and while executions are open anywhere
// so often that the fleet scans about four times a second. While nothing is executing,
// each poll asks whether that has changed, see rest.go.
func (c *Consumer) preemptLoop(ctx context.Context) {
	for wait := newBackOff(); ctx.Err() == nil; {
		err := c.scan(ctx)
		c.health.report(c, err)
		if err != nil {
			if ctx.Err() == nil && !store.Outage(err) {
				c.log.Error().Err(err).Msg("looking for lapsed leases")
			}
			wait.sleep(ctx)
			continue
		}
		wait = newBackOff()
		clock.Pause(ctx, c.scanPause())
		for !c.leases.watched() && ctx.Err() == nil {
			if c.awaitStir(ctx) {
				break
			}
		}
	}
}

// awaitStir waits, while nothing is executing, until something stirs: a poll that saw a
// lease, a task that was found or an event, which mean that an execution may be open by
// now. Or until the polls have not asked for long.
func (c *Consumer) awaitStir(ctx context.Context) (scan bool) {
	left := c.leases.left(c.cfg.Clock.Monotonic(), c.cfg.PollInterval*3/2)
	if left <= 0 {
		return true
	}
	return clock.PauseOr(ctx, left, c.stirred)
}

// scan takes over what has lapsed.
func (c *Consumer) scan(ctx context.Context) error {
	types := c.types()
	for {
		call, cancel := context.WithTimeout(ctx, rpcTimeout)
		next, err := c.store.NextLapse(call, types)
		c.stats.scans.Add(1)
		cancel()
		if err != nil {
			return err
		}
		c.leases.asked(c.cfg.Clock.Monotonic())
		c.leases.see(!next.IsZero())
		if next.IsZero() || next.After(c.store.Clock.Now()) {
			return nil
		}
		call, cancel = context.WithTimeout(ctx, rpcTimeout)
		found, err := c.store.Lapsed(call, types, scanLimit)
		cancel()
		if err != nil {
			return err
		}
		if progress, err := c.preempt(ctx, found); err != nil || progress == 0 {
			return err
		}
	}
}

// scanPause is this worker's share of the fleet's scans while something is executing.
func (c *Consumer) scanPause() time.Duration {
	share := time.Duration(c.fleet.Load()) * time.Second / scansPerSecond
	return min(share*3/4+rand.N(share/2+1), c.cfg.PollInterval)
}

// trustworthy says whether taking a task over is justified now: not while the database
// cannot be reached, nor within a ping interval after it came back or after a change of
// primary, when nobody could ping; nor while our idea of the database's time may be off
// by more than the margin of the lease.
func (c *Consumer) trustworthy(eff model.Effective) bool {
	if c.store.Clock.TakeJump() > eff.Lease/marginShare {
		c.health.disturb(c, true)
		c.log.Warn().Msg("the database's clock and this machine's disagree about the time passed; nobody is pre-empted for a while")
	}
	wait := eff.PingInterval
	if c.store.Clock.Error() > eff.Lease/marginShare {
		wait = eff.Lease
	}
	return c.store.Clock.Age() < 2*store.HeartbeatInterval && c.health.quiet(c, wait, eff.Lease)
}

// preempt decides what becomes of tasks over lapsed leases and writes it: taken over by
// this worker where it may and has a slot, else given back or ended, so that a scan
// leaves nothing behind. It returns how many it changed.
func (c *Consumer) preempt(ctx context.Context, found []*model.Task) (int, error) {
	if err := c.checkPrimary(ctx); err != nil {
		return 0, err
	}
	if err := c.control.fresh(ctx, c); err != nil {
		return 0, err
	}
	c.claiming.Lock()
	defer c.claiming.Unlock()
	now := c.store.Clock.Now()
	by := model.Claimant{WorkerID: c.cfg.WorkerID, ExecID: newExecID(), Only: c.only}
	n := c.held.count()
	slots := c.cfg.Concurrency - n.running - n.buffered
	room := map[string]int{}
	var takeovers, leaves []store.Write
	for _, t := range found {
		h := c.handlerOf(t.Type)
		eff := *h.effective(t)
		by.Applied = h.said.Load()
		if !c.trustworthy(eff) {
			continue
		}
		if _, known := room[t.Type]; !known {
			room[t.Type] = c.held.room(t.Type, h.limit)
		}
		// A limited one is claimed anew, when it has got a permit.
		may := !c.gate.Limited(t) && slots > len(takeovers) && room[t.Type] > 0 && !c.waits(t.Type)
		found, ok := claim.Lapsed(t, by, may, eff, now, rand.Float64())
		switch {
		case !ok:
		case found.Takeover:
			takeovers = append(takeovers, found.Write)
			room[t.Type]--
		default:
			leaves = append(leaves, found.Write)
		}
	}
	// First what this worker runs itself: what it leaves wakes others, who would look at
	// the same lapsed tasks.
	took, err := c.takeOver(ctx, takeovers, by.ExecID)
	if err != nil {
		return 0, err
	}
	left, err := c.leave(ctx, leaves)
	return took + left, err
}

// checkPrimary asks who the primary is: another one than before means that the workers
// may just not have been able to ping.
func (c *Consumer) checkPrimary(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	c.store.Forget()
	t, err := c.store.Topology(ctx)
	if err == nil {
		c.health.samePrimary(c, t.Primary)
	}
	return err
}

// leave writes what the finder does not take itself, and says how much has changed since
// it was found.
func (c *Consumer) leave(ctx context.Context, leaves []store.Write) (changed int, err error) {
	if len(leaves) == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	written, err := c.store.Writes(call, leaves, rpcTimeout)
	for i, w := range written {
		t := leaves[i].After
		if w.Refused != nil {
			c.unwritable(t, w.Refused)
			continue
		}
		changed++
		if _, previous := claim.Previous(leaves[i].Before, t); w.Applied && previous != "" {
			c.outcomes.Ended(t)
			c.gate.Ended(t, model.EndedExecutions(leaves[i].Before, t))
			c.emit(Event{Kind: EventLapsed, TaskID: t.ID, Type: t.Type, ExecID: leaves[i].Lapsed, Previous: previous, Status: t.Status})
			if !t.DueAt.IsZero() {
				c.wake.at(t.DueAt)
			}
		}
	}
	return changed, err
}

// takeOver writes the takeovers and starts what was won: a few one by one with
// findOneAndUpdate, many as one batch whose documents are read back. It says how much has
// changed since it was found.
func (c *Consumer) takeOver(ctx context.Context, writes []store.Write, execID string) (changed int, err error) {
	var won []wonTask
	add := func(t *model.Task, w store.Write) {
		_, previous := claim.Previous(w.Before, w.After)
		won = append(won, wonTask{task: t, due: w.Before.LapseAt, previous: previous})
	}
	sent := clock.Read(c.cfg.Clock)
	if len(writes) <= singly {
		for _, w := range writes {
			call, cancel := context.WithTimeout(ctx, rpcTimeout)
			t, err := c.store.TakeOver(call, w)
			cancel()
			if store.Final(err) && !store.Denied(err) {
				c.unwritable(w.After, err) // the others go on
				continue
			}
			if err != nil {
				// Won or not: a lease that nobody pings lapses again.
				c.hold(won, execID, sent)
				return changed, err
			}
			changed++
			if t != nil {
				add(t, w)
			}
		}
	} else {
		written, err := c.writeClaims(ctx, writes, execID)
		if err != nil {
			return 0, err
		}
		ids := make([]string, len(writes))
		for i, w := range writes {
			ids[i] = w.After.ID
		}
		current, err := c.readBack(ids)
		if err != nil {
			return 0, err
		}
		for i, w := range writes {
			if written[i].Refused != nil {
				c.unwritable(w.After, written[i].Refused)
				continue
			}
			changed++
			t := current[w.After.ID]
			if !written[i].Applied || t == nil {
				continue
			}
			if _, st := t.Execution(execID); st != nil && st.Open() {
				add(t, w)
			}
		}
	}
	c.stats.takeovers.Add(int64(len(won)))
	c.hold(won, execID, sent)
	return changed, nil
}

// readBack reads what was taken over, again until the server answers: giving up would
// leave tasks that nobody knows to be held until their leases lapse once more.
func (c *Consumer) readBack(ids []string) (current map[string]*model.Task, err error) {
	for wait := newBackOff(); ; wait.sleep(c.unsure) {
		call, cancel := context.WithTimeout(c.unsure, rpcTimeout)
		current, err = c.store.ByIDs(call, ids)
		cancel()
		c.health.report(c, err)
		if err == nil || c.unsure.Err() != nil || store.Classify(err) == store.Fatal {
			return current, err
		}
	}
}
