package producer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
)

// check is one look at schema, clock and types, which all who want one at the moment share.
type check struct {
	done      chan struct{}
	err       error
	abandoned bool // the context of who made it ended, which says nothing to the others
}

// prepare makes sure, outside of any transaction, that the schema fits, and that the
// database's clock and the types are known; mostly they are, and this costs nothing. When a thousand
// senders find the clock too old, one reads it for all; when the database is away, they
// all learn it at the same time and not one after the other.
func (p *Producer) prepare(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.mu.Lock()
		c := p.check
		if c == nil {
			c = &check{done: make(chan struct{})}
			p.check = c
			p.mu.Unlock()
			p.carryOutCheck(ctx, c)
			return c.err
		}
		p.mu.Unlock()
		select {
		case <-c.done:
			if !c.abandoned {
				return c.err
			}
		case <-ctx.Done():
		}
	}
}

func (p *Producer) carryOutCheck(ctx context.Context, c *check) {
	defer func() {
		p.mu.Lock()
		p.check = nil
		p.mu.Unlock()
		close(c.done)
	}()
	outside := store.Outside(ctx)
	if c.err = p.store.Ready(outside); c.err == nil {
		c.err = p.store.FreshClock(outside)
	}
	if c.err == nil {
		c.err = p.types.Fresh(outside, tasktypes.MaxAge)
	}
	c.abandoned = c.err != nil && ctx.Err() != nil
}
