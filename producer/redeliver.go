package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Redeliver has the callback of an ended task delivered once more: one whose delivery
// failed, or one whose receiver lost what it had. The receiver gets it by the same id, so
// that it can drop what it knows. A delivery that waits for its retry is tried at once, in
// the same life, with the errors that it has had; one that is under way is left alone; one
// that has ended begins a new life. A task that is history is found there.
//
// It returns the delivery's task, Created where a new life of it began. The error is a
// *model.RefusedError for a task that has not ended, or of whose end nobody is to be told:
// no callback is configured, or its handler said NoCallback.
func (p *Producer) Redeliver(ctx context.Context, id string) (Sent, error) {
	return p.RedeliverLife(ctx, id, 0)
}

// RedeliverLife is [Producer.Redeliver] for one life of a task, also one that is over; of
// generation 0 the newest. The error is [ErrNotFound] for a life that there is not, or not
// any more.
func (p *Producer) RedeliverLife(ctx context.Context, id string, generation int64) (Sent, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return Sent{}, fmt.Errorf("redelivering the callback of a task: %w", err)
	}
	sent, err := p.redeliver(ctx, id, generation)
	if err != nil {
		return sent, fmt.Errorf("redelivering the callback of task %s: %w", id, err)
	}
	return sent, nil
}

func (p *Producer) redeliver(ctx context.Context, id string, generation int64) (Sent, error) {
	if err := p.room.Prepare(ctx); err != nil {
		return Sent{}, err
	}
	t, err := p.room.Store.History.Life(ctx, id, generation)
	if err != nil {
		return Sent{}, err
	}
	d, err := lifecycle.Redeliver(t, p.room.Types.Options(t.Type))
	if err != nil {
		return Sent{}, err
	}
	done, err := p.room.Begin()
	if err != nil {
		return Sent{}, err
	}
	defer done()
	before, after, err := p.room.Store.Tasks.Change(ctx, model.TaskID(d.Tenant, d.Type, d.Key), func(d *model.Task) (*model.Task, error) {
		return lifecycle.DeliverNow(d, p.room.Effective(d), p.room.Store.Clock.Now()), nil
	})
	switch {
	case errors.Is(err, ErrNotFound): // never handed over, or delivered long ago
	case err != nil:
		return Sent{}, err
	case after != before:
		return Sent{ID: after.ID, Generation: after.Generation, Status: after.Status}, nil
	}
	again := model.RestartFailed | model.RestartSucceeded
	sent, err := p.carryOut(ctx, []*Draft{{Draft: d, OnExisting: again}}) // no send of the caller's: past the middleware
	if len(sent) != 1 {
		return Sent{}, err
	}
	return sent[0], err
}
