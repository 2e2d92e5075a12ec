package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
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
		return input.Invalid("ctx", "of CompleteIn carries no running transaction of the worker's client: hand on what the session's WithTransaction calls its function with")
	}
	x.completing.Store(true)
	if !x.lease.Bounded() && x.lease.Trusted(c.cfg.Clock) < x.eff.Lease/2 {
		c.leases.Ping(store.Outside(ctx), x)
	}
	out := lifecycle.Success(value)
	out.NoCallback = x.quiet.Load()
	_, _, err = c.store.Tasks.Change(ctx, e.TaskID, func(t *model.Task) (*model.Task, error) {
		if completed(x, t) {
			return nil, fmt.Errorf("it was completed before: %w", model.ErrFenced)
		}
		if t.Generation != x.task.Generation {
			return nil, model.ErrFenced
		}
		return lifecycle.Finish(t, x.execID, out, lifecycle.EffectiveOf(t, model.Options{}), c.store.Clock.Now(), rand.Float64())
	})
	if err != nil {
		return fmt.Errorf("completing task %s in a transaction: %w", e.TaskID, err)
	}
	return nil
}

// completed says whether the execution ended as a success.
func completed(x *execution, t *model.Task) bool {
	if t == nil || t.Generation != x.task.Generation {
		return false
	}
	_, w := t.Execution(x.execID)
	return w != nil && !w.SuccessTime.IsZero()
}

// settleCompleted settles those that their handlers ended themselves, in a transaction of
// which the task's document says that it has committed; what they returned does not matter
// then. It returns the others.
func (c *Consumer) settleCompleted(batch []*ended) (others []*ended) {
	if !slices.ContainsFunc(batch, func(e *ended) bool { return e.x.completing.Load() }) {
		return batch
	}
	var asked []*ended
	for _, e := range batch {
		switch {
		case !e.x.completing.Load():
			others = append(others, e)
		case !e.looked:
			asked = append(asked, e)
		case completed(e.x, e.task):
			c.settleCommitted(e, e.task)
		default:
			others = append(others, e)
		}
	}
	if len(asked) == 0 {
		return others
	}
	lives, err := c.livesOf(asked)
	c.health.Report(err)
	for _, e := range asked {
		t := lives[e.x]
		switch {
		case err != nil:
			e.late++
			c.later(e)
		case completed(e.x, t):
			c.settleCommitted(e, t)
		default:
			e.looked = true
			if t != nil {
				e.task = t
			}
			others = append(others, e)
		}
	}
	return others
}

// livesOf reads the lives that the executions are of: also one that has moved to the
// history since, because its handler took long to return.
func (c *Consumer) livesOf(batch []*ended) (map[*execution]*model.Task, error) {
	ctx, cancel := context.WithTimeout(c.service, rpcTimeout)
	defer cancel()
	ids := make([]string, len(batch))
	for i, e := range batch {
		ids[i] = e.x.task.ID
	}
	tasks, err := c.store.Tasks.ByIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	lives := make(map[*execution]*model.Task, len(batch))
	for _, e := range batch {
		t := tasks[e.x.task.ID]
		if t == nil || t.Generation != e.x.task.Generation {
			old, err := c.store.History.Life(ctx, e.x.task.ID, e.x.task.Generation)
			switch {
			case err == nil:
				old.Outbox = nil // the sweeper's: it knows where the life is
				t = old
			case !errors.Is(err, store.ErrNotFound):
				return nil, err
			}
		}
		lives[e.x] = t
	}
	return lives, nil
}

// settleCommitted reports an end that a transaction wrote.
func (c *Consumer) settleCommitted(e *ended, t *model.Task) {
	e.parkUntil = time.Time{}
	c.settleEnd(e, t, nil)
}
