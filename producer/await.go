package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Await waits until the life of the task that a send began or found has ended, and returns its
// result. If the task ended without success, which includes Pending, the error is a
// *model.TaskError. Await also finds a life that has moved to the history. If the history no
// longer has it, if a new life began before it ended, or if the transaction that began it was aborted, the error is
// [model.ErrNotFound].
//
// Await also waits while the database is unavailable, but not if the database refuses to read. ctx limits the wait; [Producer.Close]
// ends it with [ErrClosed]. All awaits of a process share one query.
func Await[A, R any](ctx context.Context, p *Producer, t model.Type[A, R], s Sent) (R, error) {
	var result R
	if _, typ, _, err := input.ParseTaskID(s.ID); err != nil {
		return result, fmt.Errorf("awaiting a task of type %s: %w", t.Name(), err)
	} else if typ != t.Name() {
		return result, fmt.Errorf("awaiting task %s: %w", s.ID, input.Invalid("type", "is %s, but the task is of type %s", t.Name(), typ))
	}
	task, err := p.AwaitTask(ctx, s)
	if err != nil {
		return result, err
	}
	if err := ended(task); err != nil {
		return result, err
	}
	if err := codec.DecodeValue(task.Result, &result); err != nil {
		return result, fmt.Errorf("decoding the result of task %s: %w", s.ID, err)
	}
	return result, nil
}

// ended is nil for a task that succeeded.
func ended(t *model.Task) error {
	switch {
	case t.Status.Succeeded():
		return nil
	case t.Status == model.StatusCancelled, t.Status == model.StatusManuallyProcessed:
		return &model.TaskError{ID: t.ID, Status: t.Status, Info: t.Remark}
	default:
		return &model.TaskError{ID: t.ID, Status: t.Status, Info: t.ErrorInfo}
	}
}

// AwaitTask is [Await] for any type: it returns the ended task, whatever its status. A
// Generation of 0 selects the current life at the time of the first read or, if the task has
// moved to the history, its last life.
func (p *Producer) AwaitTask(ctx context.Context, s Sent) (*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(s.ID); err != nil {
		return nil, fmt.Errorf("awaiting a task: %w", err)
	}
	w := &wait{id: s.ID, generation: s.Generation, fresh: s.Created, done: make(chan struct{})}
	if err := p.await.join(w); err != nil {
		return nil, fmt.Errorf("awaiting task %s: %w", s.ID, err)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		p.await.leave(w)
		return nil, fmt.Errorf("awaiting task %s: %w", s.ID, context.Cause(ctx))
	}
	if w.err != nil {
		return nil, fmt.Errorf("awaiting task %s: %w", s.ID, w.err)
	}
	t := *w.task // others may wait for it, too
	return &t, nil
}

// look finds out which of the waits are over. Two queries at most for those whose tasks
// are where they were; one more for each that has moved. An end that a failover may undo is none yet.
func (a *awaiter) look(ctx context.Context, waits []*wait) (over []*wait, err error) {
	lives, err := a.store.Tasks.Lives(ctx, idsOf(waits))
	if err != nil {
		return nil, err
	}
	var finished []*wait
	for _, w := range waits {
		t, there := lives[w.id]
		if there && t == nil {
			over = append(over, w.unreadable())
			continue
		}
		if t != nil && w.generation == 0 {
			w.generation = t.Generation
		}
		if t == nil || t.Generation != w.generation || t.Status.Ended() {
			finished = append(finished, w)
		}
	}
	if len(finished) == 0 {
		return over, nil
	}
	tasks, err := a.store.Tasks.Durable(ctx, idsOf(finished))
	if err != nil {
		return over, err
	}
	for _, w := range finished {
		t, there := tasks[w.id]
		if there && t == nil {
			over = append(over, w.unreadable())
			continue
		}
		if now := lives[w.id]; t != nil && t.Generation < w.generation && now != nil && now.Generation >= w.generation {
			continue // a majority does not have the life yet
		}
		if t == nil || t.Generation != w.generation {
			t, err = a.store.History.Life(ctx, w.id, w.generation)
			if errors.Is(err, store.ErrNotFound) {
				w.err = err
				over = append(over, w)
				continue
			}
			if err != nil && !store.Unreachable(err) && ctx.Err() == nil { // this life alone cannot be read
				w.err = err
				over = append(over, w)
				continue
			}
			if err != nil {
				return over, err
			}
			if !t.Status.Ended() && !t.ArchivedAt.IsZero() { // it waited for its retry, and never will end
				w.err = fmt.Errorf("%w: %s (generation %d): a new life began before that one ended", store.ErrNotFound, w.id, w.generation)
				over = append(over, w)
				continue
			}
			if t.ArchivedAt.IsZero() { // among the tasks, where a majority does not have it yet
				continue
			}
		}
		if t.Status.Ended() { // not when it was made to run on between the two queries
			w.task = t
			over = append(over, w)
		}
	}
	return over, nil
}

// unreadable ends the wait for a task whose document this release cannot read.
func (w *wait) unreadable() *wait {
	w.err = store.CannotRead(w.id)
	return w
}

func idsOf(waits []*wait) []string {
	seen := make(map[string]struct{}, len(waits))
	ids := make([]string, 0, len(waits))
	for _, w := range waits {
		if _, twice := seen[w.id]; !twice {
			seen[w.id] = struct{}{}
			ids = append(ids, w.id)
		}
	}
	return ids
}
