package command

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

// Prepare makes sure, outside of any transaction, that the schema fits, and that the
// database's clock and the types are known; mostly they are, and this costs nothing. When a thousand
// senders find the clock too old, one reads it for all; when the database is away, they
// all learn it at the same time and not one after the other.
func (r *Room) Prepare(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.mu.Lock()
		c := r.check
		if c == nil {
			c = &check{done: make(chan struct{})}
			r.check = c
			r.mu.Unlock()
			r.carryOutCheck(ctx, c)
			return c.err
		}
		r.mu.Unlock()
		select {
		case <-c.done:
			if !c.abandoned {
				return c.err
			}
		case <-ctx.Done():
		}
	}
}

func (r *Room) carryOutCheck(ctx context.Context, c *check) {
	defer func() {
		r.mu.Lock()
		r.check = nil
		r.mu.Unlock()
		close(c.done)
	}()
	outside := store.Outside(ctx)
	if c.err = r.Store.Prepare(outside); c.err == nil {
		c.err = r.Types.Fresh(outside, tasktypes.MaxAge)
	}
	c.abandoned = c.err != nil && ctx.Err() != nil
}
