package periodic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// perInsert is how many tasks or records go out in one command.
const perInsert = 1000

// complete gives the tasks that a decision plans what a send of their type gives to its
// tasks: the planner knows the rule alone.
func complete(w store.RuleWrite, typeOf func(code string) *model.TaskType) {
	known := map[string]bool{}
	for _, p := range w.Before.Planned {
		known[p.ID] = true
	}
	for _, p := range w.After.Planned {
		if p.Task != nil && !known[p.ID] {
			p.Task.Typed(typeOf(p.Task.Type), p.Task.CreatedAt)
		}
	}
}

// carryOut does what decisions planned: tasks are sent, records stored, tasks cancelled.
// Each part is the same when it is done twice, so a process that dies here leaves the rest
// to another. The tasks come before the records: a record without its task would look like
// a run that nobody started.
func (p *Periodic) carryOut(ctx context.Context, rules []*model.Rule) error {
	var tasks []*model.Task
	var runs []*model.Run
	var cancel []string
	of := map[string]string{} // a task's rule
	for _, r := range rules {
		for _, pl := range r.Planned {
			if pl.Task != nil {
				tasks = append(tasks, pl.Task)
				of[pl.Task.ID] = r.ID
			}
			if pl.Record != nil {
				runs = append(runs, pl.Record)
			}
			cancel = append(cancel, pl.Cancel...)
		}
	}
	var refused error
	stuck := map[string]bool{} // rules with a task that the server refuses
	for len(tasks) > 0 {
		n := min(len(tasks), perInsert)
		// Those that exist were sent before: their keys are the ticks' own.
		_, err := p.store.Insert(ctx, tasks[:n])
		var some *store.InsertError
		switch {
		case errors.As(err, &some): // the others are sent: no rule stands in another's way
			refused = err
			for i := range some.Refused {
				stuck[of[tasks[i].ID]] = true
			}
		case err != nil:
			return fmt.Errorf("sending the tasks of ticks: %w", err)
		}
		tasks = tasks[n:]
	}
	for len(runs) > 0 {
		n := min(len(runs), perInsert)
		if err := p.store.PutRuns(ctx, runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	for _, id := range cancel {
		if err := p.cancelTask(ctx, id); err != nil {
			return err
		}
	}
	done := slices.DeleteFunc(slices.Clone(rules), func(r *model.Rule) bool { return stuck[r.ID] || len(r.Planned) == 0 })
	if err := p.store.CarriedOut(ctx, done); err != nil || refused == nil {
		return err
	}
	return fmt.Errorf("sending the tasks of ticks: %w", refused)
}

// cancelTask asks for the end of a run's task. Its context ends; the run has ended when the
// handler has returned or its lease has lapsed, and not before.
func (p *Periodic) cancelTask(ctx context.Context, id string) error {
	_, after, err := p.store.Change(ctx, id, func(t *model.Task) (*model.Task, error) {
		return model.Cancel(t, "cancelled by its periodic rule", t.Effective(model.Options{}), p.store.Clock.Now())
	})
	var refused *model.RefusedError
	switch {
	case errors.Is(err, store.ErrNotFound), errors.As(err, &refused):
		return nil // it has ended, and its outcome tells the rule
	case err != nil:
		return fmt.Errorf("cancelling the task %s of an earlier run: %w", id, err)
	case after.OpenExecutions() > 0:
		return p.store.Signal(ctx, id)
	default:
		return nil
	}
}
