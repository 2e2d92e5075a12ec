package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Change carries a rule out on one task, see also [Named]. doing says in errors what was tried.
func (r *Room) Change(ctx context.Context, doing, id string, rule rule) (*model.Task, error) {
	return r.change(ctx, doing, id, asNamed(ctx, rule), r.Store.Tasks.Change)
}

// rule says what becomes of a task, see [store.Tasks.Change].
type rule = func(*model.Task) (*model.Task, error)

// change is Change by that way of writing.
func (r *Room) change(ctx context.Context, doing, id string, rule rule, write func(context.Context, string, rule) (before, after *model.Task, err error)) (*model.Task, error) {
	if _, _, _, err := input.ParseTaskID(id); err != nil {
		return nil, fmt.Errorf("%s a task: %w", doing, err)
	}
	ctx = store.Inside(ctx)
	if err := r.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	before, after, err := write(ctx, id, rule)
	if errors.Is(err, store.ErrNotFound) {
		if past, err2 := r.Store.History.Life(ctx, id, 0); err2 == nil && !past.ArchivedAt.IsZero() {
			return nil, fmt.Errorf("%s task %s: %w: it ended as %s and moved to the history at %s; send its key again to create a new task",
				doing, id, store.ErrNotFound, past.Status, past.ArchivedAt.Format(clock.Format))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s task %s: %w", doing, id, err)
	}
	if after != before {
		r.Changed(ctx, before, after)
	}
	return after, nil
}

// Changed does at once what follows a change of a task, rather than the sweeper, if the caller stays for it. An error
// has been logged, and is the sweeper's.
func (r *Room) Changed(ctx context.Context, before, after *model.Task) {
	r.Wrote(after)
	if r.Store.InRunningTransaction(ctx) { // which may still be rolled back
		return
	}
	r.Limits.Ended(after, lifecycle.EndedExecutions(before, after))
	if after.Status.Ended() {
		r.Follow.Ended(after)
		_ = r.Follow.Wait(ctx)
	}
}
