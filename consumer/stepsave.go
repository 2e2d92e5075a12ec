package consumer

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// stepGrace is how long the saving of a step that is done goes on when the handler's
	// context has ended: what it did need not be done again if it can be helped.
	stepGrace = 2 * time.Second
	// stepPause is between two tries for a step whose document somebody holds.
	stepPause = 20 * time.Millisecond
)

// stepItem is a step on its way into its task. Steps are a group commit, as ends are:
// what gathers while one batch is written is the next one.
type stepItem struct {
	x       *execution
	step    model.Step
	waiting context.Context // of who waits for it
	done    chan struct{}
	there   model.Step // what the task has under the name
	err     error
}

func (i *stepItem) settle(there model.Step, err error) {
	i.there, i.err = there, err
	close(i.done)
}

// saveStep saves a step and returns what the task has under its name. It is repeated until
// the server answers, or ctx ends and a grace has passed.
func (c *Consumer) saveStep(ctx context.Context, x *execution, s model.Step) (model.Step, error) {
	waiting, giveUp := lingering(ctx, stepGrace)
	defer giveUp()
	item := &stepItem{x: x, step: s, waiting: waiting, done: make(chan struct{})}
	if err := c.steps.Put(waiting, item); err != nil {
		return s, err
	}
	select {
	case <-item.done:
		return item.there, item.err
	case <-waiting.Done():
		return s, context.Cause(waiting)
	}
}

// lingering ends as ctx does, for the same cause, but the grace later.
func lingering(ctx context.Context, grace time.Duration) (context.Context, func()) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		clock.Pause(out, grace)
		end(context.Cause(ctx))
	})
	return out, func() {
		stop()
		end(nil)
	}
}

// flushSteps writes a batch of steps.
func (c *Consumer) flushSteps(batch []*stepItem) {
	for wait := c.health.NewBackOff(); ; wait.Sleep(c.service) {
		batch = stillWaiting(batch)
		if len(batch) == 0 {
			return
		}
		saved, err := c.trySteps(batch)
		c.health.Report(err)
		switch {
		case err == nil:
			c.settleSteps(batch, saved)
			return
		case c.service.Err() != nil, store.Final(err) && (len(batch) == 1 || store.Denied(err)):
			for _, i := range batch {
				i.settle(i.step, err)
			}
			return
		case store.Final(err): // because of one of them
			for i := range batch {
				c.flushSteps(batch[i : i+1 : i+1])
			}
			return
		}
	}
}

func (c *Consumer) trySteps(batch []*stepItem) ([]store.SavedStep, error) {
	writes := make([]store.StepWrite, len(batch))
	shortest := batch[0].x.lease.Interval()
	for n, i := range batch {
		shortest = min(shortest, i.x.lease.Interval())
		writes[n] = store.StepWrite{ID: i.x.task.ID, ExecID: i.x.execID, Index: i.x.index, Many: i.x.lease.Many(), Step: i.step}
	}
	ctx, cancel := context.WithTimeout(c.service, rpcTimeout)
	defer cancel()
	return c.store.Tasks.SaveSteps(ctx, writes, min(shortest/4, endSearch))
}

func (c *Consumer) settleSteps(batch []*stepItem, saved []store.SavedStep) {
	for n, i := range batch {
		switch s := saved[n]; {
		case s.Fenced:
			i.settle(i.step, model.ErrFenced)
		case s.Refused != nil:
			i.settle(i.step, s.Refused)
		case s.Missed: // beside the queue: the others must not wait
			time.AfterFunc(stepPause, func() { c.flushSteps([]*stepItem{i}) })
		default:
			i.settle(s.Step, nil)
		}
	}
}

// stillWaiting leaves out what nobody waits for any more.
func stillWaiting(batch []*stepItem) []*stepItem {
	var left []*stepItem
	for _, i := range batch {
		if i.waiting.Err() == nil {
			left = append(left, i)
		}
	}
	return left
}
