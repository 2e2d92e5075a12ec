package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Redeliver delivers the callback of one life of an ended task again, for example because the
// delivery failed or the receiver lost its data. The delivery keeps its id, so that the
// receiver can deduplicate. A delivery that waits for its retry becomes due at once, in the
// same life and with its error count. A running delivery is not changed. A delivery that has
// ended begins a new life. Redeliver also finds tasks in the history.
//
// Generation 0 selects the newest life. Redeliver returns the task of the delivery, with
// Created set if the delivery began a new life. If the task has not ended or has no callback,
// because none is configured or its handler called NoCallback, the error is a
// *model.RefusedError. If the life does not exist, or no longer does, it is
// [model.ErrNotFound].
// id is that of producer.Sent, or of [model.TaskID].
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
	ctx = store.Inside(ctx)
	if err := a.room.Prepare(ctx); err != nil {
		return producer.Sent{}, err
	}
	t, err := a.room.Store.History.Life(ctx, id, generation)
	if err != nil {
		return producer.Sent{}, err
	}
	if err := command.AsNamed(ctx, t); err != nil {
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
		if command.Repeated(ctx, t) {
			return t, nil
		}
		return lifecycle.SendAgain(t, d, model.RestartFailed|model.RestartSucceeded, now)
	})
	if err != nil {
		return producer.Sent{ID: id}, err
	}
	return producer.Sent{ID: id, Generation: after.Generation, Status: after.Status, Created: after.Generation != before.Generation}, nil
}
