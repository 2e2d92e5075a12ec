package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/claim"
)

// search finds up to n candidates for a claim. Three things decide where it looks: the knowledge
// of the queue (c.seeker), the crowd (c.spread), and the tasks at the head that this worker may
// not run (c.barred).
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
