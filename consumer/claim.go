package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
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

// claim claims what this worker takes of the candidates, in one batch, and starts what was won. with
// has slots and permits for them; nil = there are none, and the caller holds claiming.
func (c *Consumer) claim(ctx context.Context, found []*model.Task, with *hand) (claim.Outcome, error) {
	b := claim.Bid{ExecID: claim.NewExecID(), Tasks: found, Room: c.roomWith(with), MayAsk: c.mayAsk(with)}
	if with != nil && len(with.left) > 0 {
		b.Hand = with.left
	}
	out, err := c.claimer.Claim(ctx, b)
	if err != nil || out.Claims()+len(out.Held) > 0 {
		c.lapses.Hint() // who looked for leases before the write saw none, and rests
	}
	if with != nil {
		with.use(&out)
	} else {
		c.gate.Learn(out.Missed)
	}
	c.gate.Return(out.Unused...)
	if out.Unasked {
		c.wake.now() // the next fetch asks for its grant
	}
	c.settled(&out)
	if with == nil {
		c.slotFreed() // while it was decided what may start
	}
	c.claimApart(ctx, out)
	return out, err
}

// settled counts claims, and starts what was won.
func (c *Consumer) settled(out *claim.Outcome) {
	c.stats.attempted.Add(int64(out.Claims()))
	c.stats.won.Add(int64(len(out.Won)))
	c.hold(out)
}

// apartPatience bounds the wait of a fetch for claims that ran out of time. It is longer than the
// search for a held document among a batch mostly takes.
const apartPatience = 150 * time.Millisecond

// claimApart continues what ran out of time, beside the fetches and without their lock: an open
// transaction that holds one candidate must not stop them. The store finds out which documents are
// held, and claims or repairs the others. The slots of the claims are kept meanwhile.
//
// On a busy machine a command runs out of time although nothing is held. Its tasks go before what
// the next fetch finds, so that one waits a moment for them, see [Consumer.awaitApart].
func (c *Consumer) claimApart(ctx context.Context, out claim.Outcome) {
	if len(out.HeldRepairs) > 0 {
		c.apart.Go(func() {
			_, err := c.claimer.Repair(ctx, out.HeldRepairs, store.Patience)
			c.health.Report(err)
		})
	}
	if len(out.Held) == 0 {
		return
	}
	release := c.held.promise(c.handlersOf(out.Held))
	tried := make(chan struct{})
	if slices.ContainsFunc(out.Held, func(w store.Write) bool { return !c.store.ProbeLater(w.Before.ID) }) {
		select {
		case c.outOfTime <- tried:
		default: // the fetch waits for others already
		}
	}
	c.apart.Go(func() {
		defer close(tried)
		defer release()
		apart := claim.Outcome{ExecID: out.ExecID, Stamp: out.Stamp, Grants: out.Grants, MayArrive: out.MayArrive}
		if err := c.claimer.Write(ctx, out.Held, store.Patience, &apart); err == nil {
			c.claimer.Abandon(ctx, &apart)
		} else if ctx.Err() == nil && !store.Outage(err) {
			c.log.Error().Err(err).Msg("could not claim tasks whose first claim ran out of time")
		}
		c.gate.Return(apart.Unused...)
		c.settled(&apart)
	})
}

// handlersOf returns the handler of each claim.
func (c *Consumer) handlersOf(claims []store.Write) []*handler {
	hs := make([]*handler, len(claims))
	for i, w := range claims {
		hs[i] = c.handlerOf(w.After.Type)
	}
	return hs
}

// awaitApart waits for claims that ran out of time a moment ago. Known to be held are those whose
// probe is not due.
func (c *Consumer) awaitApart(ctx context.Context) {
	select {
	case tried := <-c.outOfTime:
		ctx, cancel := context.WithTimeout(ctx, c.patience)
		defer cancel()
		select {
		case <-tried:
		case <-ctx.Done():
		}
	default:
	}
}

// hold takes won tasks in and starts what fits the slots.
func (c *Consumer) hold(out *claim.Outcome) {
	if len(out.Won) == 0 {
		return
	}
	xs := make([]*execution, len(out.Won))
	var h *handler
	for n, won := range out.Won {
		t := won.After
		if h == nil || h.typ != t.Type {
			h = c.handlerOf(t.Type)
		}
		i, w := lifecycle.ExecutionOf(t, out.ExecID)
		eff, grant := h.effective(t), out.Grants[won.Before]
		x := &execution{
			task: t, execID: out.ExecID, index: i, attempt: w.Attempt,
			h: h, eff: eff, dueAt: won.Before.DueAt, permits: grant.Permits,
			from: grant.From, until: grant.Until,
			lease: lease.New(t, out.ExecID, eff, out.Stamp),
		}
		x.late = x.lease.Trusted(c.cfg.Clock) <= 0
		event := Event{Kind: workerevent.Claimed}
		if won.Lapsed != "" {
			x.dueAt, x.previous = won.Before.LapseAt, claim.Previous(won)
			event = Event{Kind: workerevent.TakenOver, Previous: x.previous}
		}
		xs[n] = x
		c.emitFor(x, event)
	}
	c.traceClaim(out, xs)
	c.held.add(xs, c.cfg.Clock.Monotonic(), c.store.Clock.Now())
	c.control.LookFrom(xs[0].task.UpdatedAt) // a signal may have named them before they were held
	c.leases.Added()
	c.startReady()
}

// startReady starts handlers while there are free slots and something waits. Each goes on
// with what waits by then, in the same goroutine: its stack has grown already.
func (c *Consumer) startReady() {
	c.held.startDue(c.store.Clock.Now(), c.cfg.Clock.Monotonic(), c.startReady)
	c.starting.RLock()
	defer c.starting.RUnlock()
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
	if c.isStopping() || c.cutShort.Load() {
		return nil
	}
	return c.held.next(c.cfg.Clock.Monotonic())
}
