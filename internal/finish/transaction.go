package finish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// InTransaction writes the end as part of the transaction that ctx carries. Whether that
// commits is known when the end is put that the handler's return makes: see settleCompleted.
func (w *Ends) InTransaction(ctx context.Context, e *End) error {
	_, _, err := w.Store.Tasks.Change(ctx, e.Claimed.ID, func(t *model.Task) (*model.Task, error) {
		if e.completed(t) {
			return nil, fmt.Errorf("the execution was already completed: %w", model.ErrFenced)
		}
		if t.Generation != e.Claimed.Generation {
			return nil, model.ErrFenced
		}
		return lifecycle.Finish(t, e.ExecID, e.Out, lifecycle.EffectiveOf(t, model.Options{}), w.Store.Clock.Now(), rand.Float64())
	})
	if err != nil {
		return fmt.Errorf("completing task %s in a transaction: %w", e.Claimed.ID, err)
	}
	return nil
}

// completed says whether the execution ended as a success.
func (e *End) completed(t *model.Task) bool {
	if t == nil || t.Generation != e.Claimed.Generation {
		return false
	}
	_, w := lifecycle.ExecutionOf(t, e.ExecID)
	return w != nil && !w.SuccessTime.IsZero()
}

// settleCompleted settles those that their handlers ended themselves, in a transaction of
// which the task's document says that it has committed; what they returned does not matter
// then. It returns the others.
func (w *Ends) settleCompleted(batch []*End) (others []*End) {
	if !slices.ContainsFunc(batch, func(e *End) bool { return e.Of.Completing() }) {
		return batch
	}
	var asked []*End
	for _, e := range batch {
		switch {
		case !e.Of.Completing():
			others = append(others, e)
		case !e.looked:
			asked = append(asked, e)
		case e.completed(e.task):
			e.Of.Ended(e.task)
		default:
			others = append(others, e)
		}
	}
	if len(asked) == 0 {
		return others
	}
	lives, err := w.livesOf(asked)
	w.Health.Report(err)
	for i, e := range asked {
		switch {
		case err != nil:
			w.later(e)
		case e.completed(lives[i]):
			e.Of.Ended(lives[i])
		default:
			e.looked = true
			if lives[i] != nil {
				e.task = lives[i]
			}
			others = append(others, e)
		}
	}
	return others
}

// livesOf reads the lives that the executions are of, nil for one that is gone: also one that
// has moved to the history since, because its handler took long to return.
func (w *Ends) livesOf(batch []*End) ([]*model.Task, error) {
	ctx, cancel := context.WithTimeout(w.Service(), health.CallTimeout)
	defer cancel()
	ids := make([]string, len(batch))
	for i, e := range batch {
		ids[i] = e.Claimed.ID
	}
	tasks, err := w.Store.Tasks.ByIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	lives := make([]*model.Task, len(batch))
	for i, e := range batch {
		lives[i] = tasks[e.Claimed.ID]
		if lives[i] != nil && lives[i].Generation == e.Claimed.Generation {
			continue
		}
		old, err := w.Store.History.Life(ctx, e.Claimed.ID, e.Claimed.Generation)
		switch {
		case err == nil:
			old.Outbox = nil // the sweeper's: it knows where the life is
			lives[i] = old
		case !errors.Is(err, store.ErrNotFound):
			return nil, err
		}
	}
	return lives, nil
}
