package consumer

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// singly is how many takeovers are written one by one; more go out as a batch.
const singly = 3

// preempt decides what becomes of tasks over lapsed leases and writes it: taken over by
// this worker where it may and has a slot, else given back or ended, so that a scan
// leaves nothing behind. It returns how many it changed. Tasks whose owners may be well
// stay as they are.
func (c *Consumer) preempt(ctx context.Context, found []*model.Task) (changed int, left claim.LeftAlone, err error) {
	if err := c.control.Fresh(ctx); err != nil {
		return 0, left, err
	}
	by := lifecycle.Claimant{WorkerID: c.cfg.WorkerID, ExecID: newExecID(), Only: c.only}
	takeovers, leaves, left, release := c.judge(found, by)
	defer release()
	// First the tasks that this worker runs itself. Those that it leaves wake other workers,
	// which would look at the same lapsed tasks.
	took, err := c.takeOver(ctx, takeovers, by.ExecID)
	if err != nil {
		return 0, left, err
	}
	ended, err := c.leave(ctx, leaves)
	return took + ended, left, err
}

// judge decides about tasks with lapsed leases, and keeps the slots of those that this worker
// takes over. The writes may meet held documents, so they go out without the lock of the
// claims. judge leaves alone tasks that are known to be held, until their next probe.
func (c *Consumer) judge(found []*model.Task, by lifecycle.Claimant) (takeovers, leaves []store.Write, left claim.LeftAlone, release func()) {
	c.claiming.Lock()
	defer c.claiming.Unlock()
	now := c.store.Clock.Now()
	n := c.held.count()
	slots := c.store.Tasks.Fit(c.cfg.Concurrency - n.running - n.buffered) // what is taken over is read whole
	room := map[string]int{}
	for _, t := range found {
		if c.store.ProbeLater(t.ID) {
			continue
		}
		h := c.handlerOf(t.Type)
		eff := *h.effective(t)
		by.Applied = h.said.Load()
		if !c.health.Trust.Allows(&eff, &left) {
			continue
		}
		if _, known := room[t.Type]; !known {
			room[t.Type] = c.held.room(t.Type, h.limit)
		}
		// A limited one is claimed anew, when it has got a permit.
		may := !c.gate.Limited(t) && slots > len(takeovers) && room[t.Type] > 0 && !c.waits(t.Type)
		found, ok := claim.Lapsed(t, by, may, eff, now, rand.Float64())
		switch {
		case !ok:
		case found.Takeover:
			takeovers = append(takeovers, found.Write)
			room[t.Type]--
		default:
			leaves = append(leaves, found.Write)
		}
	}
	return takeovers, leaves, left, c.held.promise(takeovers)
}

// leave writes what the finder does not take itself, and says how much has changed since
// it was found.
func (c *Consumer) leave(ctx context.Context, leaves []store.Write) (changed int, err error) {
	if len(leaves) == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	written, err := c.store.Tasks.Writes(call, leaves, store.Patience)
	for i, w := range written {
		t := leaves[i].After
		if w.Refused != nil {
			c.unwritable(t, w.Refused)
			continue
		}
		if w.Held {
			continue
		}
		changed++
		if _, previous := claim.Previous(leaves[i].Before, t); w.Applied && previous != "" {
			c.outcomes.Ended(t)
			c.gate.Ended(t, lifecycle.EndedExecutions(leaves[i].Before, t))
			c.emit(Event{Kind: EventLapsed, TaskID: t.ID, Type: t.Type, ExecID: leaves[i].Lapsed, Previous: previous, Status: t.Status})
			if !t.DueAt.IsZero() {
				c.seeker.Hear(t)
				c.wake.at(t.DueAt)
			}
		}
	}
	return changed, err
}

// takeOver writes the takeovers and starts what was won: a few one by one with
// findOneAndUpdate, many as one batch whose documents are read back. It says how much has
// changed since it was found.
func (c *Consumer) takeOver(ctx context.Context, writes []store.Write, execID string) (changed int, err error) {
	var won []wonTask
	add := func(t *model.Task, w store.Write) {
		_, previous := claim.Previous(w.Before, w.After)
		won = append(won, wonTask{task: t, due: w.Before.LapseAt, previous: previous})
	}
	sent := clock.Read(c.cfg.Clock)
	var written []store.Written
	var current map[string]*model.Task
	if len(writes) <= singly {
		written, current, err = c.takeOverSingly(ctx, writes, execID)
	} else if written, err = c.writeClaims(ctx, writes, execID, store.Patience); err == nil {
		current, err = c.readBack(writes)
	}
	for i, w := range writes[:len(written)] {
		if written[i].Held {
			continue
		}
		if written[i].Refused != nil {
			c.unwritable(w.After, written[i].Refused)
			continue
		}
		changed++
		t := current[w.After.ID]
		if !written[i].Applied || t == nil {
			continue
		}
		if _, st := t.Execution(execID); st != nil && st.Open() {
			add(t, w)
		}
	}
	c.stats.takeovers.Add(int64(len(won)))
	c.hold(won, execID, sent)
	return changed, err
}

// takeOverSingly writes the takeovers one by one. It returns the results of those that it sent,
// in their order, with the tasks that were won. A takeover whose answer is lost is settled like a
// batch, and is the last one: after an outage the owners of the other tasks may be healthy.
func (c *Consumer) takeOverSingly(ctx context.Context, writes []store.Write, execID string) (written []store.Written, current map[string]*model.Task, err error) {
	current = map[string]*model.Task{}
	for i, w := range writes {
		call, cancel := context.WithTimeout(ctx, rpcTimeout)
		t, err := c.store.Tasks.TakeOver(call, w)
		cancel()
		switch {
		case err == nil:
			written = append(written, store.Written{Applied: t != nil})
			current[w.After.ID] = t
		case errors.Is(err, store.ErrHeld):
			written = append(written, store.Written{Held: true})
		case store.Final(err) && !store.Denied(err): // the others go on
			written = append(written, store.Written{Refused: err})
		case store.Classify(err) == store.Fatal:
			return written, current, err
		default:
			one := writes[i : i+1]
			settled, err := c.settleClaims(one, execID, err)
			if err != nil {
				return written, current, err
			}
			after, err := c.readBack(one)
			if err != nil {
				return written, current, err
			}
			current[w.After.ID] = after[w.After.ID]
			return append(written, settled...), current, nil
		}
	}
	return written, current, nil
}

// readBack reads what was taken over, again until the server answers: giving up would
// leave tasks that nobody knows to be held until their leases lapse once more.
func (c *Consumer) readBack(writes []store.Write) (current map[string]*model.Task, err error) {
	ids := make([]string, len(writes))
	for i, w := range writes {
		ids[i] = w.After.ID
	}
	for wait := c.health.NewBackOff(); ; wait.Sleep(c.unsure) {
		call, cancel := context.WithTimeout(c.unsure, rpcTimeout)
		current, err = c.store.Tasks.ByIDs(call, ids)
		cancel()
		c.health.Report(err)
		if err == nil || c.unsure.Err() != nil || store.Classify(err) == store.Fatal {
			return current, err
		}
	}
}
