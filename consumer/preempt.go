package consumer

import (
	"context"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// preempt decides what becomes of tasks over lapsed leases and writes it: taken over by
// this worker where it may and has a slot, else given back or ended, so that a scan
// leaves nothing behind. It returns how many it changed. Tasks whose owners may be well
// stay as they are.
func (c *Consumer) preempt(ctx context.Context, found []*model.Task) (changed int, left claim.LeftAlone, err error) {
	if err := c.control.Fresh(ctx); err != nil {
		return 0, left, err
	}
	execID := claim.NewExecID()
	l, release := c.judge(found, execID)
	defer release()
	// First the tasks that this worker runs itself. Those that it leaves wake other workers,
	// which would look at the same lapsed tasks.
	took, err := c.takeOver(ctx, &l, execID)
	if err != nil {
		return 0, l.Left, err
	}
	ended, err := c.leave(ctx, l.Leaves)
	return took + ended, l.Left, err
}

// judge decides about tasks with lapsed leases, and keeps the slots of those that this worker
// takes over. The writes may meet held documents, so they go out without the lock of the claims.
func (c *Consumer) judge(found []*model.Task, execID string) (l claim.Lapses, release func()) {
	c.claiming.Lock()
	defer c.claiming.Unlock()
	n := c.held.count()
	slots := c.store.Tasks.Fit(c.cfg.Concurrency - n.running - n.buffered) // what is taken over is read whole
	room := func(typ string) int {
		if c.waits(typ) {
			return 0
		}
		return c.held.room(typ, c.handlerOf(typ).limit)
	}
	l = c.claimer.Judge(found, execID, slots, room, c.health.Trust)
	return l, c.held.promise(c.handlersOf(l.TakeOvers))
}

// leave writes what the finder does not take itself, and says how much has changed since
// it was found.
func (c *Consumer) leave(ctx context.Context, leaves []store.Write) (changed int, err error) {
	done, changed, err := c.claimer.Leave(ctx, leaves)
	for _, w := range done {
		if w.Lapsed == "" {
			continue
		}
		t := w.After
		c.emit(Event{Kind: workerevent.Lapsed, TaskID: t.ID, Type: t.Type, ExecID: w.Lapsed, Previous: claim.Previous(w), Status: t.Status})
		if !t.DueAt.IsZero() {
			c.seeker.Hear(t)
			c.wake.at(t.DueAt)
		}
	}
	return changed, err
}

// takeOver writes the takeovers and starts what was won. It says how much has changed since it
// was found.
func (c *Consumer) takeOver(ctx context.Context, l *claim.Lapses, execID string) (changed int, err error) {
	out, err := c.claimer.TakeOver(ctx, l, execID)
	c.stats.takeovers.Add(int64(len(out.Won)))
	c.hold(&out)
	return len(out.Won) + out.Lost, err
}
