package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Redeliver has the callback of one life of an ended task delivered once more: one whose delivery
// failed, or one whose receiver lost what it had. The receiver gets it by the same id, so
// that it can drop what it knows. A delivery that waits for its retry is tried at once, in
// the same life, with the errors that it has had; one that is under way is left alone; one
// that has ended begins a new life. A task that is history is found there.
//
// Generation 0 is the newest life. It returns the delivery's task, Created where a new life of
// it began. The error is a *model.RefusedError for a task that has not ended, or of whose end
// nobody is to be told: no callback is configured, or its handler said NoCallback. It is
// [producer.ErrNotFound] for a life that does not exist, or no longer does.
func (a *Admin) Redeliver(ctx context.Context, id string, generation int64) (producer.Sent, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return producer.Sent{}, fmt.Errorf("redelivering the callback of a task: %w", err)
	}
	sent, err := a.redeliver(ctx, id, generation)
	if err != nil {
		return sent, fmt.Errorf("redelivering the callback of task %s: %w", id, err)
	}
	return sent, nil
}

func (a *Admin) redeliver(ctx context.Context, id string, generation int64) (producer.Sent, error) {
	if err := a.room.Prepare(ctx); err != nil {
		return producer.Sent{}, err
	}
	t, err := a.room.Store.History.Life(ctx, id, generation)
	if err != nil {
		return producer.Sent{}, err
	}
	d, err := lifecycle.Redeliver(t, a.room.Types.Options(t.Type))
	if err == nil {
		err = a.room.Types.Unread(d.Type)
	}
	if err != nil {
		return producer.Sent{}, err
	}
	d.Typed(a.room.Types.Get(d.Type))
	for {
		sent, err := a.deliver(ctx, d)
		if !errors.Is(err, store.ErrNotFound) {
			return sent, err
		}
		// Never handed over, or delivered long ago.
		now := a.room.Store.Clock.Now()
		fresh := lifecycle.NewTask(d, now)
		exists, err := a.room.Store.Tasks.Insert(ctx, []*model.Task{fresh})
		if err != nil {
			return producer.Sent{ID: fresh.ID}, err
		}
		if !exists[0] {
			return producer.Sent{ID: fresh.ID, Generation: fresh.Generation, Status: fresh.Status, Created: true}, nil
		}
		// Somebody else handed it over meanwhile.
	}
}

// deliver makes the delivery that exists due, or begins a new life of one that has ended.
func (a *Admin) deliver(ctx context.Context, d lifecycle.Draft) (producer.Sent, error) {
	id := model.TaskID(d.Tenant, d.Type, d.Key)
	before, after, err := a.room.Store.Tasks.Change(ctx, id, func(t *model.Task) (*model.Task, error) {
		now := a.room.Store.Clock.Now()
		if due := lifecycle.DeliverNow(t, a.room.Effective(t), now); due != t {
			return due, nil
		}
		return lifecycle.SendAgain(t, d, model.RestartFailed|model.RestartSucceeded, now)
	})
	if err != nil {
		return producer.Sent{ID: id}, err
	}
	return producer.Sent{ID: id, Generation: after.Generation, Status: after.Status, Created: after.Generation != before.Generation}, nil
}
