package periodic

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// perCommand is how many records, or tasks, one command concerns.
const perCommand = 1000

// Finish implements [decision.Planner]: records are stored, and tasks cancelled.
func (p planner) Finish(ctx context.Context, rules []*schedule.Rule) (held map[string]error, err error) {
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
	for some := range slices.Chunk(runs, perCommand) {
		if err := p.store.Runs.Put(ctx, some); err != nil {
			return nil, err
		}
	}
	tasks, err := p.cancelTasks(ctx, cancel)
	if err != nil {
		return nil, err
	}
	held = map[string]error{}
	for _, id := range tasks { // the others go on
		for _, rule := range by[id] {
			held[rule] = fmt.Errorf("cancelling task %s of an earlier run: %w", id, store.ErrHeld)
		}
	}
	return held, nil
}

// cancelTasks asks for the ends of runs' tasks. Their contexts end; a run has ended when the
// handler has returned or its lease has lapsed, and not before. held are those that somebody's
// open transaction holds: they are not cancelled.
func (p planner) cancelTasks(ctx context.Context, ids []string) (held []string, err error) {
	for ; len(ids) > perCommand; ids = ids[perCommand:] {
		some, err := p.cancelTasks(ctx, ids[:perCommand])
		if held = append(held, some...); err != nil {
			return held, err
		}
	}
	var running []string
	for tries := 0; len(ids) > 0; tries++ {
		if tries == maxTries {
			return held, fmt.Errorf("cancelling the tasks of earlier runs, %s among them: somebody else changed them %d times in between", ids[0], tries)
		}
		tasks, err := p.store.Tasks.ReadableByIDs(ctx, ids)
		if err != nil {
			return held, fmt.Errorf("cancelling the tasks of earlier runs: %w", err)
		}
		ids = nil // but for those that must be looked at again
		var writes []store.Write
		now := p.store.Clock.Now()
		for _, t := range tasks {
			if t == nil {
				continue // it stands in no other's way: a person mends it, and cancels it then
			}
			after, err := lifecycle.Cancel(t, "cancelled by its periodic rule", lifecycle.EffectiveOf(t, model.Options{}), now)
			switch {
			case err != nil: // it has ended, and its outcome tells the rule
			case after != t:
				writes, ids = append(writes, store.Write{Before: t, After: after}), append(ids, t.ID)
			case lifecycle.OpenExecutions(t) > 0:
				running = append(running, t.ID)
			}
		}
		written, err := p.store.Tasks.Writes(ctx, writes, store.Patience)
		if err != nil {
			return held, fmt.Errorf("cancelling the tasks of earlier runs: %w", err)
		}
		for i, w := range written {
			if w.Held {
				held = append(held, writes[i].After.ID)
				ids = slices.DeleteFunc(ids, func(id string) bool { return id == writes[i].After.ID })
			}
		}
	}
	return held, p.store.Control.Signal(ctx, running...)
}
