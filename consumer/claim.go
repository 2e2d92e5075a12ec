package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// newClaimer makes the room in which this worker's claims are decided, written and settled.
func (c *Consumer) newClaimer() *claim.Claimer {
	return &claim.Claimer{
		Store: c.store, Gate: c.gate, Log: c.log, WorkerID: c.cfg.WorkerID, Only: c.only, Refused: &c.seeker.Refused, Unsure: c.unsure,
		Terms: func(t *model.Task) (*lifecycle.Effective, *model.Options) {
			h := c.handlerOf(t.Type)
			if h == nil {
				return nil, nil
			}
			return h.effective(t), h.said.Load()
		},
		Ended:   c.outcomes.Ended,
		Report:  c.health.Report,
		BackOff: func() func(context.Context) { return c.health.NewBackOff().Sleep },
	}
}

// claim claims what this worker takes of the candidates, in one batch, and starts what was won.
// The caller holds claiming. lost counts candidates that somebody else changed first.
func (c *Consumer) claim(ctx context.Context, found []*model.Task) (took, lost int, err error) {
	return c.claimBy(ctx, found, nil)
}

// claimBy is [Consumer.claim] with the slots and permits of a hand; nil = none. With a hand the
// caller need not hold claiming, because the hand has slots of its own.
func (c *Consumer) claimBy(ctx context.Context, found []*model.Task, with *hand) (took, lost int, err error) {
	b := claim.Bid{ExecID: claim.NewExecID(), Tasks: found, Hand: with.permits(), Room: c.roomWith(with), MayAsk: c.mayAsk(with)}
	out, err := c.claimer.Claim(ctx, b)
	if err != nil || out.Claims()+len(out.Held) > 0 {
		c.lapses.Hint() // who looked for leases before the write saw none, and rests
	}
	with.miss(c, out.Missed)
	for _, w := range slices.Concat(out.Won, out.Held) {
		if g, granted := out.Grants[w.Before]; granted {
			with.use(g)
		}
	}
	for _, g := range out.Unused {
		c.gate.Return(with.keep(g))
	}
	if out.Unasked {
		c.wake.now() // the next fetch asks for its grant
	}
	c.settled(&out, b.ExecID)
	c.claimApart(ctx, out, b.ExecID)
	return len(out.Won), out.Lost + out.Unwritable, err
}

// settled counts claims, and starts what was won.
func (c *Consumer) settled(out *claim.Outcome, execID string) {
	c.stats.attempted.Add(int64(out.Claims()))
	c.stats.won.Add(int64(len(out.Won)))
	won := make([]wonTask, len(out.Won))
	for i, w := range out.Won {
		won[i] = wonTask{task: w.After, due: w.Before.DueAt, grant: out.Grants[w.Before]}
	}
	c.hold(won, execID, out.Sent)
}

// claimApart continues what ran out of time, beside the fetches and without their lock: an open
// transaction that holds one candidate must not stop them. The store finds out which documents are
// held, and claims or repairs the others. The slots of the claims are kept meanwhile.
func (c *Consumer) claimApart(ctx context.Context, out claim.Outcome, execID string) {
	if len(out.HeldRepairs) > 0 {
		c.apart.Go(func() {
			_, err := c.claimer.Repair(ctx, out.HeldRepairs, store.Patience)
			c.health.Report(err)
		})
	}
	if len(out.Held) == 0 {
		return
	}
	release := c.held.promise(out.Held)
	c.apart.Go(func() {
		defer release()
		apart := claim.Outcome{Grants: out.Grants}
		if c.claimer.Write(ctx, out.Held, execID, store.Patience, &apart) != nil {
			return // they may have been won: the sweeper finds out
		}
		for _, g := range apart.Unused {
			c.gate.Return(g)
		}
		c.settled(&apart, execID)
	})
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
		i, w := lifecycle.ExecutionOf(t.task, execID)
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
