package consumer

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// claim decides which candidates this worker takes, writes that as one batch and
// starts what was won. The caller holds claiming. lost counts candidates that somebody
// else changed first.
func (c *Consumer) claim(ctx context.Context, found []*model.Task) (took, lost int, err error) {
	return c.claimBy(ctx, found, nil)
}

// claimBy is [Consumer.claim] with the slots and permits of a hand; nil = none. With a hand the
// caller need not hold claiming, because the hand has slots of its own.
func (c *Consumer) claimBy(ctx context.Context, found []*model.Task, with *hand) (took, lost int, err error) {
	by := lifecycle.Claimant{WorkerID: c.cfg.WorkerID, ExecID: newExecID(), Only: c.only}
	grants, found, err := c.admit(ctx, found, by.ExecID, with)
	if err != nil {
		return 0, 0, err
	}
	mine := map[*model.Task]bool{} // those whose grant is used
	defer func() { c.returnGrants(grants, mine, with) }()
	now := c.store.Clock.Now() // after the starts were reserved
	room := map[*handler]int{}
	var h *handler // of the last one, and so mostly of the next
	claims, repairs, wrong := make([]store.Write, 0, len(found)), []store.Write(nil), 0
	for _, t := range found {
		if h == nil || h.typ != t.Type {
			h = c.handlerOf(t.Type)
		}
		if h == nil || h.left.Load() {
			continue
		}
		free, known := room[h]
		if !known {
			free = c.held.room(t.Type, h.limit) + with.slots()
		}
		room[h] = free - 1
		if free <= 0 {
			continue
		}
		if len(grants) > 0 && grants[t].Late(now) {
			continue
		}
		eff := h.effective(t)
		by.Applied, by.From = h.said.Load(), grants[t].From
		after, no := lifecycle.Claim(t, by, *eff, now)
		if _, granted := grants[t]; no == "" && !granted && c.gate.Limited(t) {
			// When grants were asked for it was not to be claimed, or not limited.
			room[h] = free
			c.wake.now() // the next fetch asks for it
			continue
		}
		if no == "" {
			claims = append(claims, store.Write{Before: t, After: after})
			continue
		}
		room[h] = free
		if fixed := lifecycle.Repair(t, *eff, now); no.Stale() && fixed != nil {
			repairs = append(repairs, store.Write{Before: t, After: fixed})
			if no != lifecycle.RefusedExpired {
				wrong++
			}
		} else {
			var retry time.Time
			if no == lifecycle.RefusedOwnRetry {
				retry = lifecycle.RetryOf(t, c.cfg.WorkerID)
			}
			c.seeker.Refused.Add(t.ID, now, retry)
		}
	}
	if err := c.repair(ctx, repairs, wrong); err != nil {
		return 0, 0, err
	}
	if len(claims) == 0 {
		return 0, 0, nil
	}
	sent := clock.Read(c.cfg.Clock)
	written, err := c.writeClaims(ctx, claims, by.ExecID, 0)
	c.lapses.Hint() // who looked for leases before the write saw none, and rests
	if err != nil {
		grants = nil // they may have been won: the sweeper finds out
		return 0, 0, err
	}
	c.gate.Claimed(grants)
	won := make([]wonTask, 0, len(claims))
	var apart []store.Write
	for i, w := range written {
		if w.Applied {
			t := claims[i].Before
			won = append(won, wonTask{task: claims[i].After, due: t.DueAt, grant: grants[t]})
			if len(grants) > 0 {
				mine[t] = true
			}
		} else if w.Refused != nil {
			c.unwritable(claims[i].Before, w.Refused)
		} else if w.Held {
			apart = append(apart, claims[i])
			mine[claims[i].Before] = true
		}
	}
	c.stats.attempted.Add(int64(len(claims) - len(apart)))
	c.stats.won.Add(int64(len(won)))
	c.hold(won, by.ExecID, sent)
	c.claimApart(ctx, apart, by.ExecID, sent, grants)
	return len(won), len(claims) - len(won) - len(apart), nil
}

// repair writes what was found to promise what no worker gets, and carries out what follows
// the end of those that have expired. Of wrong ones their own fields contradicted each other.
func (c *Consumer) repair(ctx context.Context, repairs []store.Write, wrong int) error {
	if len(repairs) == 0 {
		return nil
	}
	if wrong > 0 {
		c.log.Warn().Int("tasks", wrong).Str("task_id", repairs[0].Before.ID).Msg("repairing derived fields that contradict the task")
	}
	apart, err := c.writeRepairs(ctx, repairs, 0)
	if len(apart) > 0 {
		c.leaveOut(apart)
		c.apart.Go(func() {
			_, err := c.writeRepairs(ctx, apart, store.Patience)
			c.health.Report(err)
		})
	}
	return err
}

// writeRepairs returns the held ones, see [store.Tasks.Writes].
func (c *Consumer) writeRepairs(ctx context.Context, repairs []store.Write, search time.Duration) (held []store.Write, err error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	written, err := c.store.Tasks.Writes(ctx, repairs, search)
	for i, w := range written {
		switch {
		case w.Held:
			held = append(held, repairs[i])
		case w.Applied && repairs[i].After.Status.Ended():
			c.outcomes.Ended(repairs[i].After)
		}
	}
	return held, err
}

// unwritable notes a task that the server does not let anybody claim, because its document
// has no room left, say: it must not stand at the head of every fetch.
func (c *Consumer) unwritable(t *model.Task, why error) {
	now := c.store.Clock.Now()
	if c.seeker.Refused.Has(t.ID, now) {
		return // it has been said a moment ago
	}
	c.seeker.Refused.Add(t.ID, now, time.Time{})
	c.log.Error().Err(why).Str("task_id", t.ID).Msg("the database refuses every write of a task; it cannot run")
}

// writeClaims sends a batch of claims. Where the answer is lost it asks, until the
// server answers, which of them were won: giving up would leave tasks that nobody
// knows to be held until their leases lapse. search is that of [store.Tasks.Writes].
func (c *Consumer) writeClaims(ctx context.Context, claims []store.Write, execID string, search time.Duration) ([]store.Written, error) {
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	written, err := c.store.Tasks.Writes(store.For(call, store.Claiming), claims, search)
	cancel()
	if err == nil || store.Classify(err) == store.Fatal {
		return written, err
	}
	// Also where the last command never reached the server: one before it may have.
	return c.settleClaims(claims, execID, err)
}

// settleClaims asks, until the server answers, which of the claims were won whose answer
// was lost with the error.
func (c *Consumer) settleClaims(claims []store.Write, execID string, err error) (written []store.Written, _ error) {
	lease := c.effOf(claims[0].After).Lease
	c.health.Report(err)
	for wait := c.health.NewBackOff(); c.unsure.Err() == nil; wait.Sleep(c.unsure) {
		call, cancel := context.WithTimeout(c.unsure, rpcTimeout)
		written, err = c.store.Tasks.SettleClaim(call, claims, execID, lease)
		cancel()
		c.health.Report(err)
		if err == nil || store.Classify(err) == store.Fatal {
			return written, err
		}
	}
	return nil, err
}

func (c *Consumer) effOf(t *model.Task) *lifecycle.Effective {
	return c.handlerOf(t.Type).effective(t)
}

// wonTask is a task as it is after this worker's claim.
type wonTask struct {
	task     *model.Task
	due      time.Time // when it became claimable
	previous string    // the worker whose lease lapsed, for a takeover
	grant    limits.Grant
}

// hold takes won tasks in and starts what fits the slots. sent is when the claim was
// sent: the lease is trusted from then.
func (c *Consumer) hold(won []wonTask, execID string, sent clock.Instant) {
	if len(won) == 0 {
		return
	}
	xs := make([]*execution, 0, len(won))
	var h *handler
	for _, t := range won {
		if h == nil || h.typ != t.task.Type {
			h = c.handlerOf(t.task.Type)
		}
		i, w := t.task.Execution(execID)
		eff := h.effective(t.task)
		x := &execution{
			task: t.task, execID: execID, index: i, attempt: w.Attempt,
			h: h, eff: eff, dueAt: t.due, permits: t.grant.Permits,
			from: t.grant.From, until: t.grant.Until,
			lease: lease.New(t.task, execID, eff, sent),
		}
		xs = append(xs, x)
		kind := EventClaimed
		if t.previous != "" {
			kind = EventTakenOver
		}
		c.emitFor(x, Event{Kind: kind, Previous: t.previous})
	}
	c.held.add(xs, c.cfg.Clock.Monotonic(), c.store.Clock.Now())
	c.control.LookFrom(xs[0].task.UpdatedAt) // a signal may have named them before they were held
	c.leases.Added()
	c.startReady()
}

// startReady starts handlers while there are free slots and something waits. Each goes on
// with what waits by then, in the same goroutine: its stack has grown already.
func (c *Consumer) startReady() {
	c.held.startDue(c.store.Clock.Now(), c.cfg.Clock.Monotonic(), c.startReady)
	for x := c.ready(); x != nil; x = c.ready() {
		c.handlersWG.Go(func() {
			through := false
			defer func() {
				if !through { // a handler ended the goroutine: what waits goes on in another
					c.startReady()
				}
			}()
			for next := x; next != nil; next = c.ready() {
				c.run(next)
			}
			through = true
		})
	}
}

// ready takes the next execution that may start; nil when there is none.
func (c *Consumer) ready() *execution {
	if c.isStopping() {
		return nil
	}
	return c.held.next(c.cfg.Clock.Monotonic())
}
