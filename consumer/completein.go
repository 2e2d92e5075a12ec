package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// CompleteIn ends this execution as a success with that result, as part of the MongoDB
// transaction whose session ctx carries: what the handler wrote in it and the end of the
// task happen together, or not at all. The session is of the client that the worker's
// database is of; run the transaction with the session's WithTransaction, which repeats
// it where somebody's write crossed it:
//
//	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		if _, err := accounts.UpdateOne(ctx, …); err != nil {
//			return nil, err
//		}
//		return nil, t.CompleteIn(ctx, receipt)
//	})
//	return receipt, err
//
// If the transaction commits, what the handler returns does not matter any more: it should
// return soon. If it does not, the handler's return counts as usual, except that there are
// no local retries. An execution that no longer holds its task gets [model.ErrFenced], and
// one that loses it before the commit cannot commit.
//
// A ping of the task's document would be a conflict with the transaction, so from this
// call on until the handler returns the lease is not extended: its context ends when the
// lease does. Where less than half of it is left, this call extends it first. So keep the
// transaction below half the worker timeout; one that takes longer than a ping interval
// should begin with this call, since a ping in between would have it repeated.
func (e *Execution) CompleteIn(ctx context.Context, result any) error {
	x, c := e.hold, e.consumer
	value, err := encodeResult(result)
	if err != nil {
		return err
	}
	if !c.store.InRunningTransaction(ctx) {
		return input.Invalid("ctx", "of CompleteIn carries no running transaction of the worker's client; want the context that WithTransaction passes to its function")
	}
	x.completing.Store(true)
	if !x.lease.Bounded() && x.lease.Trusted(c.cfg.Clock) < x.eff.Lease/2 {
		c.leases.Ping(store.Outside(ctx), x)
	}
	out := lifecycle.Success(value)
	out.NoCallback = x.quiet.Load()
	return c.ends.InTransaction(ctx, c.endOf(x, out))
}
