package periodic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
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
			typ := typeOf(p.Task.Type)
			callOnce(p.Task, typ)
			lifecycle.TypeTask(p.Task, typ, p.Task.CreatedAt)
		}
	}
}

// unreadType is the error for a decision that plans a task of a type that cannot be read.
func unreadType(w store.RuleWrite, unread func(code string) error) error {
	for _, p := range w.After.Planned {
		if p.Task == nil || slices.ContainsFunc(w.Before.Planned, func(b schedule.Planned) bool { return b.ID == p.ID }) {
			continue
		}
		if err := unread(p.Task.Type); err != nil {
			return err
		}
	}
	return nil
}

// callOnce has the call of a target fail with its first error where nobody says how it is
// retried: what follows a failed run is the rule's to say, and each try of a target that
// waits for a completion may take the whole callback timeout.
func callOnce(t *model.Task, typ *model.TaskType) {
	if t.Type == httptarget.TaskType && t.Options.Retry == nil && (typ == nil || typ.Options.Retry == nil) {
		t.Options.Retry = &model.Retry{Strategy: model.RetryNone}
	}
}

// portionBytes is how much is decided, or carried out, at a time: about two hundred small
// tasks.
const portionBytes = 128 << 10

// portions cuts a list so that no part plans more than that, or is of one rule. After an
// outage each rule may have plans for a hundred ticks: all of them at once would take longer
// than a call may, and the next who tried would begin at the beginning again.
func portions[T any](all []T, rule func(T) *schedule.Rule) (out [][]T) {
	from, bytes := 0, 0
	for i, x := range all {
		n := tickplan.PlannedBytes(rule(x))
		if i > from && bytes+n > portionBytes {
			out = append(out, all[from:i])
			from, bytes = i, 0
		}
		bytes += n
	}
	if from < len(all) {
		out = append(out, all[from:])
	}
	return out
}

// carryOut does what decisions planned, portion by portion, so that what is done stays
// done: tasks are sent, records stored, tasks cancelled. It returns how many rules keep
// plans that the server refuses.
func (p *Periodic) carryOut(ctx context.Context, rules []*schedule.Rule) (stuck int, err error) {
	for _, some := range portions(rules, func(r *schedule.Rule) *schedule.Rule { return r }) {
		n, failed := p.carryPortion(ctx, some)
		if stuck += n; failed != nil {
			err = failed
		}
		if failed != nil && n == 0 {
			return stuck, err
		}
	}
	return stuck, err
}

// carryPortion does one portion. Each part is the same when it is done twice, so a process
// that dies here leaves the rest to another.
func (p *Periodic) carryPortion(ctx context.Context, rules []*schedule.Rule) (refusals int, err error) {
	s, err := p.send(ctx, rules)
	if err != nil {
		return 0, err
	}
	return p.finish(ctx, s)
}

// sent is a portion whose tasks are sent.
type sent struct {
	rules   []*schedule.Rule
	stuck   map[string]bool // rules with a task that the server refuses, or that somebody holds
	refused error           // and why
}

// send sends the tasks of a portion. They come before the records: a record without its task
// would look like a run that nobody started.
func (p *Periodic) send(ctx context.Context, rules []*schedule.Rule) (sent, error) {
	ctx, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	s := sent{rules: rules, stuck: map[string]bool{}}
	var tasks []*model.Task
	of := map[string]string{} // a task's rule
	for _, r := range rules {
		for _, pl := range r.Planned {
			if pl.Task != nil {
				tasks = append(tasks, pl.Task)
				of[pl.Task.ID] = r.ID
			}
		}
	}
	for len(tasks) > 0 {
		n := min(len(tasks), perInsert)
		// Those that exist were sent before: their keys are the ticks' own.
		_, err := p.store.Tasks.Insert(ctx, tasks[:n])
		var some *store.InsertError
		switch {
		case errors.As(err, &some): // the others are sent: no rule stands in another's way
			s.refused = fmt.Errorf("sending the tasks of ticks: %w", err)
			for i := range some.Refused {
				s.stuck[of[tasks[i].ID]] = true
			}
		case err != nil:
			return s, fmt.Errorf("sending the tasks of ticks: %w", err)
		}
		tasks = tasks[n:]
	}
	return s, nil
}

// finish does the rest of what a portion plans, and removes the plans. It returns how many
// rules keep theirs.
func (p *Periodic) finish(ctx context.Context, s sent) (refusals int, err error) {
	ctx, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	var runs []*schedule.Run
	var cancel []string
	by := map[string][]string{} // the rules that cancel a task
	for _, r := range s.rules {
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
	for len(runs) > 0 {
		n := min(len(runs), perInsert)
		if err := p.store.Runs.Put(ctx, runs[:n]); err != nil {
			return 0, err
		}
		runs = runs[n:]
	}
	held, err := p.cancelTasks(ctx, cancel)
	if err != nil {
		return 0, err
	}
	for _, id := range held { // the others go on
		for _, rule := range by[id] {
			s.stuck[rule] = true
		}
		s.refused = fmt.Errorf("cancelling task %s of an earlier run: %w", id, store.ErrHeld)
	}
	done := slices.DeleteFunc(slices.Clone(s.rules), func(r *schedule.Rule) bool { return s.stuck[r.ID] || len(r.Planned) == 0 })
	if err := p.store.Rules.CarriedOut(ctx, done); err != nil || s.refused == nil {
		return 0, err
	}
	return len(s.stuck), s.refused
}

// cancelTasks asks for the ends of runs' tasks. Their contexts end; a run has ended when the
// handler has returned or its lease has lapsed, and not before. held are those that somebody's
// open transaction holds: they are not cancelled.
func (p *Periodic) cancelTasks(ctx context.Context, ids []string) (held []string, err error) {
	for ; len(ids) > perInsert; ids = ids[perInsert:] {
		some, err := p.cancelTasks(ctx, ids[:perInsert])
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
