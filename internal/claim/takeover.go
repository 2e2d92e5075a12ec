package claim

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// singly is how many takeovers are written one by one; more go out as a batch.
const singly = 3

// Lapses are tasks that were found over lapsed leases, after a decision.
type Lapses struct {
	TakeOvers []store.Write // this worker becomes their execution
	Leaves    []store.Write // given back or ended, so that a scan leaves nothing behind
	Left      LeftAlone     // their owners may be well
	Stamp     store.Stamp   // of the takeovers
}

// Judge decides about tasks with lapsed leases, of which it takes over as many as slots and room
// allow. Limited tasks are claimed anew, when they have got a grant. Those that other clients hold
// stay as they are until their next probe.
func (c *Claimer) Judge(found []*model.Task, execID string, slots int, room Room, trust *Trust) (l Lapses) {
	l.Stamp = c.Store.Clock.Stamp()
	now, free := l.Stamp.Now, rooms{of: room}
	by := lifecycle.Claimant{WorkerID: c.WorkerID, ExecID: execID, Only: c.Only, Pulled: c.Pulled}
	for _, t := range found {
		eff, applied := c.Terms(t)
		if eff == nil || c.Store.ProbeLater(t.ID) || !trust.Allows(eff, &l.Left) {
			continue
		}
		by.Applied = applied
		may := slots > len(l.TakeOvers) && free.free(t.Type) && !c.Gate.Limited(t) && !vague(eff.Lease, l.Stamp.Behind)
		switch w, takeover, ok := lapsed(t, by, may, *eff, now, rand.Float64()); { //nolint:gosec // jitter, not a secret
		case !ok:
		case takeover:
			l.TakeOvers = append(l.TakeOvers, w)
			free.use(t.Type)
		default:
			l.Leaves = append(l.Leaves, w)
		}
	}
	return l
}

// Leave writes what the finder does not take itself. It returns what it wrote, and how many of the
// tasks have changed since they were found.
func (c *Claimer) Leave(ctx context.Context, leaves []store.Write) (done []store.Write, changed int, err error) {
	if len(leaves) == 0 {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	written, err := c.Store.Tasks.Writes(ctx, leaves, store.Patience)
	for i, w := range written {
		before, after := leaves[i].Before, leaves[i].After
		switch {
		case w.Refused != nil:
			c.Unwritable(after, w.Refused)
			continue
		case w.Held, w.Unanswered:
			continue
		}
		changed++
		if w.Applied {
			c.Ended(after)
			c.Gate.Ended(after, lifecycle.EndedExecutions(before, after))
			done = append(done, leaves[i])
		}
	}
	return done, changed, err
}

// TakeOver writes takeovers: a few one by one with findOneAndUpdate, many as one batch whose
// documents are read back. What was won is in the outcome as it is by then, since other workers of
// the same task may have pinged. The outcome of an error is incomplete.
func (c *Claimer) TakeOver(ctx context.Context, l *Lapses, execID string) (out Outcome, err error) {
	out.ExecID, out.Stamp = execID, l.Stamp
	writes := l.TakeOvers
	var written []store.Written
	var current map[string]*model.Task
	if len(writes) <= singly {
		written, current, err = c.takeOverSingly(ctx, writes, execID)
	} else {
		var unread error
		written, _, err = c.write(ctx, writes, execID, store.Patience)
		current, unread = c.readBack(won(writes, written))
		err = cmp.Or(err, unread)
	}
	for i, w := range writes[:len(written)] {
		switch {
		case written[i].Held:
			out.Held = append(out.Held, w)
			continue
		case written[i].Unanswered:
			continue
		case written[i].Refused != nil:
			c.Unwritable(w.After, written[i].Refused)
			out.Unwritable++
			continue
		case written[i].Applied && current[w.After.ID] != nil:
			w.After = current[w.After.ID]
			if _, st := lifecycle.ExecutionOf(w.After, execID); st != nil && lifecycle.Open(st) {
				out.Won = append(out.Won, w)
				continue
			}
		}
		out.Lost++
	}
	c.Store.Measure.TakenOver.Add(int64(len(out.Won)))
	return out, err
}

// takeOverSingly writes the takeovers one by one. It returns the results of those that it sent,
// in their order, with the tasks that were won. A takeover whose answer is lost is settled like a
// batch, and is the last one: after an outage the owners of the other tasks may be healthy. A majority that lags is
// no outage.
func (c *Claimer) takeOverSingly(ctx context.Context, writes []store.Write, execID string) (written []store.Written, current map[string]*model.Task, err error) {
	current = map[string]*model.Task{}
	for i, w := range writes {
		call, cancel := context.WithTimeout(ctx, callTime)
		t, err := c.Store.Tasks.TakeOver(call, w)
		cancel()
		switch {
		case err == nil:
			written = append(written, store.Written{Applied: t != nil})
			current[w.After.ID] = t
		case errors.Is(err, store.ErrHeld):
			written = append(written, store.Written{Held: true})
		case store.Final(err) && !store.Denied(err): // the others go on
			written = append(written, store.Written{Refused: err})
		case store.Final(err):
			return written, current, err
		default:
			one, lags := writes[i:i+1], errors.Is(err, store.ErrLags)
			settled, tries, err := c.settle(one, execID, err)
			if len(settled) == 0 || !settled[0].Applied && err != nil {
				return written, current, err
			}
			after, err := c.readBack(one)
			if err != nil {
				return written, current, err
			}
			current[w.After.ID] = after[w.After.ID]
			if written = append(written, settled...); !lags || tries > 1 {
				return written, current, nil
			}
		}
	}
	return written, current, nil
}

func won(writes []store.Write, written []store.Written) (won []store.Write) {
	for i, w := range written {
		if w.Applied {
			won = append(won, writes[i])
		}
	}
	return won
}

// readBack reads what was taken over, again until the server answers: giving up would
// leave tasks that nobody knows to be held until their leases lapse once more.
func (c *Claimer) readBack(writes []store.Write) (current map[string]*model.Task, err error) {
	if len(writes) == 0 {
		return nil, nil
	}
	ids := make([]string, len(writes))
	for i, w := range writes {
		ids[i] = w.After.ID
	}
	err = c.insist(func(ctx context.Context) (err error) {
		current, err = c.Store.Tasks.ByIDs(ctx, ids)
		return err
	})
	return current, err
}
