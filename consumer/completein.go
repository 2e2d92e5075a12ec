package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
)

// CompleteIn ends this execution as a success with this result, as part of the MongoDB
// transaction of the session in ctx. The writes of the handler in the transaction and the end
// of the task take effect together, or not at all. The session must come from the client of the
// worker's database. Run the transaction with the session's WithTransaction, which retries it
// after write conflicts:
//
//	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		if _, err := accounts.UpdateOne(ctx, …); err != nil {
//			return nil, err
//		}
//		return nil, t.CompleteIn(ctx, receipt)
//	})
//	return receipt, err
//
// If the transaction commits, the return values of the handler have no effect; the handler
// should return soon. If the transaction does not commit, the return values count as usual, but
// without local retries. If the execution no longer holds its task, the error is
// [model.ErrFenced]. If it loses the task before the commit, the transaction cannot commit.
//
// A ping would conflict with the transaction. Therefore the worker does not extend the lease
// from this call until the handler returns, and the context ends with the lease. If less than
// half of the lease is left, this call extends it first. Keep the transaction shorter than half
// of the worker timeout. If it takes longer than a ping interval, call CompleteIn first in the
// transaction, because a ping in between would force a retry.
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
