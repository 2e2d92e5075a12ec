package producer

import (
	"context"
	"errors"
	"sync"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// parallelChanges is how many tasks a SendMany changes at once. Each is a decision of
// its own, with a read and a guarded write.
const parallelChanges = 8

// lookUp fills in what is known of tasks that exist and marks those that OnExisting
// changes. It returns those that are gone again.
func (p *Producer) lookUp(ctx context.Context, existing []*outgoing) (gone []*outgoing) {
	var alone, policy []*outgoing
	for _, o := range existing {
		if o.exists == 0 {
			alone = append(alone, o)
		} else {
			policy = append(policy, o)
		}
	}
	// Neither needs what may be large: a change reads the whole task again, see sendAgain.
	gone = p.lookWith(ctx, alone, p.room.Store.Tasks.Lives)
	return append(gone, p.lookWith(ctx, policy, p.room.Store.Tasks.States)...)
}

type readTasks func(ctx context.Context, ids []string) (map[string]*model.Task, error)

func (p *Producer) lookWith(ctx context.Context, outs []*outgoing, read readTasks) (gone []*outgoing) {
	if len(outs) == 0 {
		return nil
	}
	ids := make([]string, len(outs))
	for i, o := range outs {
		ids[i] = o.task.ID
	}
	tasks, err := read(ctx, ids)
	now := p.room.Store.Clock.Now()
	changed := map[string]bool{}
	for _, o := range outs {
		t, there := tasks[o.task.ID]
		switch {
		case err != nil:
			o.err = err
		case !there:
			gone = append(gone, o)
		case t == nil:
			o.err = store.CannotRead(o.task.ID)
		default:
			o.sent = Sent{ID: t.ID, Generation: t.Generation, Status: t.Status}
			if o.exists != 0 {
				after, err := lifecycle.SendAgain(t, o.draft, o.exists, now)
				// What is refused now may not be when it is carried out, or after the change of an earlier item.
				o.again = err != nil || after != t || changed[t.ID]
				changed[t.ID] = o.again
			}
		}
	}
	return gone
}

// sendAgain does to the task that has the key what OnExisting says.
func (p *Producer) sendAgain(ctx context.Context, o *outgoing) {
	for range maxReappearing {
		o.again = false
		before, after, err := p.room.Store.Tasks.Change(ctx, o.task.ID, func(t *model.Task) (*model.Task, error) {
			return lifecycle.SendAgain(t, o.draft, o.exists, p.room.Store.Clock.Now())
		})
		if errors.Is(err, store.ErrNotFound) { // gone meanwhile: the key is free
			p.insert(ctx, []*outgoing{o})
			if o.err == nil && o.again {
				continue
			}
			return
		}
		if err == nil {
			if after != before {
				p.room.Changed(ctx, before, after)
			}
			err = p.tellRunning(ctx, after, o.draft.Options.PingInterval != 0 || o.draft.Options.ConcurrentWorkerCount != 0)
		}
		if err != nil {
			o.err = err
			return
		}
		o.sent = Sent{ID: after.ID, Generation: after.Generation, Created: after.Generation != before.Generation, Status: after.Status}
		return
	}
	o.err = reappeared(o)
}

// sendAllAgain does it for many tasks, a few at a time. The items of one task follow one another, so the last wins.
func (p *Producer) sendAllAgain(ctx context.Context, outs []*outgoing) {
	ofTask := map[string][]*outgoing{}
	var todo []string
	for _, o := range outs {
		if o.err != nil || !o.again {
			continue
		}
		if ofTask[o.task.ID] == nil {
			todo = append(todo, o.task.ID)
		}
		ofTask[o.task.ID] = append(ofTask[o.task.ID], o)
	}
	next := make(chan []*outgoing)
	var workers sync.WaitGroup
	for range min(parallelChanges, len(todo)) {
		workers.Go(func() {
			for items := range next {
				for _, o := range items {
					p.sendAgain(ctx, o)
				}
			}
		})
	}
	for _, id := range todo {
		next <- ofTask[id]
	}
	close(next)
	workers.Wait()
}

// tellRunning writes a signal when a worker runs the task that may no longer, or, with
// options, whose way of pinging may have changed: it must look at the task now. The signal
// is written after the task, and again when the command is repeated.
func (p *Producer) tellRunning(ctx context.Context, t *model.Task, options bool) error {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; lifecycle.Open(w) && (options || lifecycle.MustStop(t, w.WorkerID)) {
			return p.room.Signal(ctx, t)
		}
	}
	return nil
}
