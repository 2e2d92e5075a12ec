package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// An open transaction that holds one candidate must not stop the fetches. A claim that ran out
// of time continues beside them, without their lock. There the store finds out which documents
// are held, and claims the others.

// claimApart claims the tasks that shared a command with a held document. Their slots are kept
// meanwhile.
func (c *Consumer) claimApart(ctx context.Context, claims []store.Write, execID string, sent clock.Instant, grants map[*model.Task]limits.Grant) {
	if len(claims) == 0 {
		return
	}
	c.leaveOut(claims)
	release := c.held.promise(claims)
	c.apart.Go(func() {
		defer release()
		written, err := c.writeClaims(ctx, claims, execID, store.Patience)
		if err != nil {
			return // they may have been won: the sweeper finds out
		}
		var won []wonTask
		var held []store.Write
		for i, w := range written {
			before := claims[i].Before
			switch {
			case w.Applied:
				won = append(won, wonTask{task: claims[i].After, due: before.DueAt, grant: grants[before]})
			case w.Held: // the sweeper frees its permits, once it is sure
				held = append(held, claims[i])
			default:
				if w.Refused != nil {
					c.unwritable(before, w.Refused)
				}
				c.gate.Return(grants[before])
			}
		}
		c.leaveOut(held)
		c.stats.attempted.Add(int64(len(claims) - len(held)))
		c.stats.won.Add(int64(len(won)))
		c.hold(won, execID, sent)
	})
}

// leaveOut leaves candidates out of the next fetches.
func (c *Consumer) leaveOut(writes []store.Write) {
	now := c.store.Clock.Now()
	for _, w := range writes {
		c.seeker.Refused.AddHeld(w.Before.ID, now)
	}
}
