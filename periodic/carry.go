package periodic

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// perCommand is how many records, or tasks, one command concerns.
const perCommand = 1000

// Finish implements [decision.Planner]: records are stored, and tasks cancelled.
func (p planner) Finish(ctx context.Context, rules []*schedule.Rule, _ map[string]error) (held map[string]error, err error) {
	var runs []*schedule.Run
	var cancel []string
	by := map[string][]string{} // the rules that cancel a task
	for _, r := range rules {
		for _, pl := range r.Planned {
			if pl.Record != nil {
				runs = append(runs, pl.Record)
			}
			cancel = append(cancel, pl.Cancel...)
			for _, id := range pl.Cancel {
				by[id] = append(by[id], r.ID)
			}
		}
	}
	held = map[string]error{}
	for some := range slices.Chunk(runs, perCommand) {
		waits, err := p.store.Runs.Put(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, r := range waits { // the others go on
			held[r.RuleID] = fmt.Errorf("storing the record of the run %s: %w", r.ID, store.ErrHeld)
		}
	}
	tasks, err := p.cancelTasks(ctx, cancel)
	if err != nil {
		return nil, err
	}
	for id, why := range tasks {
		for _, rule := range by[id] {
			held[rule] = fmt.Errorf("cancelling task %s of an earlier run: %w", id, why)
		}
	}
	return held, nil
}

// cancelTasks asks for the ends of runs' tasks. Their contexts end; a run has ended when the
// handler has returned or its lease has lapsed, and not before. held says why some are not cancelled, see
// [decision.ChangeTasks].
func (p planner) cancelTasks(ctx context.Context, ids []string) (held map[string]error, err error) {
	running, inFirstLife := map[string]bool{}, decision.FirstLife()
	held, err = decision.ChangeTasks(ctx, p.store, "cancelling the tasks of earlier runs", ids, func(t *model.Task) *model.Task {
		delete(running, t.ID)
		if !inFirstLife(t) {
			return t
		}
		after, err := lifecycle.Cancel(t, "cancelled by its periodic rule", lifecycle.EffectiveOf(t, model.Options{}), p.store.Clock.Now())
		if err != nil {
			return t // it has ended, and its outcome tells the rule
		}
		running[t.ID] = lifecycle.OpenExecutions(after) > 0
		return after
	})
	if err != nil {
		return held, err
	}
	maps.DeleteFunc(running, func(_ string, open bool) bool { return !open })
	return held, p.store.Control.Signal(ctx, slices.Sorted(maps.Keys(running))...)
}
