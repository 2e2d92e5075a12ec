package finish

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/health"
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

// Stepper is an execution whose handler saves a step.
type Stepper interface {
	// Interval is how often the execution is pinged.
	Interval() time.Duration
	// StepWrite returns the write of the step as the execution is now.
	StepWrite(s model.Step) store.StepWrite
}

// Steps saves the steps of handlers. Make one with [NewSteps].
type Steps struct {
	Config
	queue *groupcommit.Queue[*stepItem]
}

// NewSteps returns a writer of steps.
func NewSteps(cfg Config) *Steps {
	w := &Steps{Config: cfg}
	w.queue = groupcommit.New(queued, w.flush)
	return w
}

// stepItem is a step on its way into its task.
type stepItem struct {
	of      Stepper
	step    model.Step
	waiting context.Context // of the caller that waits for it
	done    chan struct{}
	there   model.Step // what the task has under the name
	err     error
}

func (i *stepItem) settle(there model.Step, err error) {
	i.there, i.err = there, err
	close(i.done)
}

// Save saves a step and returns what the task has under its name. It is repeated until the
// server answers, or ctx ends and a grace has passed.
func (w *Steps) Save(ctx context.Context, of Stepper, s model.Step) (model.Step, error) {
	waiting, giveUp := lingering(ctx, stepGrace)
	defer giveUp()
	item := &stepItem{of: of, step: s, waiting: waiting, done: make(chan struct{})}
	if err := w.queue.Put(waiting, item); err != nil {
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

// flush writes a batch of steps.
func (w *Steps) flush(batch []*stepItem) {
	for portion := range portions(batch, (*stepItem).size) {
		w.flushPortion(portion)
	}
}

// flushPortion repeats a part of a batch until the server answers.
func (w *Steps) flushPortion(batch []*stepItem) {
	service := w.Service()
	for wait := w.Health.NewBackOff(); ; wait.Sleep(service) {
		batch = slices.DeleteFunc(batch, func(i *stepItem) bool { return i.waiting.Err() != nil }) // nobody waits any more
		if len(batch) == 0 {
			return
		}
		saved, err := w.try(batch)
		w.Health.Report(err)
		switch {
		case err == nil:
			w.settle(batch, saved)
			return
		case service.Err() != nil, store.Final(err) && (len(batch) == 1 || store.Denied(err)):
			for _, i := range batch {
				i.settle(i.step, err)
			}
			return
		case store.Final(err): // because of one of them
			for i := range batch {
				w.flushPortion(batch[i : i+1 : i+1])
			}
			return
		}
	}
}

func (w *Steps) try(batch []*stepItem) ([]store.SavedStep, error) {
	writes := make([]store.StepWrite, len(batch))
	shortest := batch[0].of.Interval()
	for n, i := range batch {
		shortest = min(shortest, i.of.Interval())
		writes[n] = i.of.StepWrite(i.step)
	}
	ctx, cancel := context.WithTimeout(w.Service(), health.CallTimeout)
	defer cancel()
	return w.Store.Tasks.SaveSteps(ctx, writes, min(shortest/4, Search))
}

func (w *Steps) settle(batch []*stepItem, saved []store.SavedStep) {
	for n, i := range batch {
		switch s := saved[n]; {
		case s.Fenced:
			i.settle(i.step, model.ErrFenced)
		case s.Refused != nil:
			i.settle(i.step, s.Refused)
		case s.Missed: // beside the queue: the others must not wait
			time.AfterFunc(stepPause, func() { w.flushPortion([]*stepItem{i}) })
		default:
			i.settle(s.Step, nil)
		}
	}
}
