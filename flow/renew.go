package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// longTime is for what needs commands for each single task or flow, while a portion of plans is carried out: new
	// lives of tasks, flows that nodes started, and the outputs of elements. It is half of what that may take. What is left then holds its own
	// flow alone, and the next try goes on with it.
	longTime = 10 * time.Second
	// sideBySide is how many of them are on their way.
	sideBySide = 16
)

// eachApart calls do with each of them, side by side, as long as long lasts. of is the flow that an error holds. The
// error is an outage.
func eachApart[T any](ctx, long context.Context, all []T, of func(T) *graph.Flow, held map[string]error, do func(context.Context, T) error) error {
	long, stop := context.WithCancel(long)
	defer stop()
	var mu sync.Mutex // of held, and of the outage
	var outage error
	one := func(x T) {
		id := of(x).ID
		mu.Lock()
		known := held[id]
		mu.Unlock()
		if known != nil {
			return
		}
		err := long.Err()
		if err == nil {
			err = do(long, x)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded): // the driver sends nothing if too little time is left
			held[id] = fmt.Errorf("not all is done yet: %s", err.Error())
		case store.Outage(err):
			outage = cmp.Or(outage, err)
			stop()
		default:
			held[id] = cmp.Or(held[id], err)
		}
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(sideBySide, len(all)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				one(all[i])
			}
		})
	}
	group.Wait()
	return outage
}

// renewAll begins new lives of tasks, and does what else is planned about these, in the order of the decisions. running
// are those whose last life runs still.
func (p planner) renewAll(ctx, long context.Context, ids []string, todos map[string][]todo, held map[string]error) (running map[string]bool, err error) {
	running = map[string]bool{}
	slices.Sort(ids)
	ids, err = p.notRenewed(ctx, slices.Compact(ids), todos)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // of running
	return running, eachApart(ctx, long, ids, func(id string) *graph.Flow { return todos[id][0].flow }, held, func(ctx context.Context, id string) error {
		for _, do := range todos[id] {
			err := p.renew(ctx, id, do)
			if errors.Is(err, runsError{}) {
				mu.Lock()
				running[id] = true
				mu.Unlock()
			}
			if err != nil { // what follows would meet a life that has not begun
				return fmt.Errorf("beginning a new life of the task %s: %w", id, err)
			}
		}
		return nil
	})
}

// notRenewed returns the tasks that a plan still changes. An earlier try may have changed the others.
func (p planner) notRenewed(ctx context.Context, ids []string, todos map[string][]todo) (left []string, err error) {
	tasks, err := p.store.Tasks.DurableHeads(ctx, ids)
	if err != nil {
		return nil, err
	}
	var moved []string
	for _, id := range ids {
		switch t, there := tasks[id]; {
		case !there:
			moved = append(moved, id)
		case t == nil || slices.ContainsFunc(todos[id], func(do todo) bool { return begins(t, do) || p.apply(t, do) != t }):
			left = append(left, id)
		}
	}
	lives, err := p.store.Tasks.LastLivesOf(ctx, moved, store.State)
	if err != nil {
		return nil, err
	}
	for _, id := range moved {
		if lives[id] != nil { // else the task is gone, or unreadable: the sweep ends the node
			left = append(left, id)
		}
	}
	return left, nil
}

// begins says whether a plan begins a new life of the task.
func begins(t *model.Task, do todo) bool {
	return (do.plan.Do == flowplan.DoRestart || do.plan.Do == flowplan.DoReset) && ofNode(t, do.flow, do.place()) && t.Origin.Generation < do.plan.Life
}

// begun is a new life of a task that waits, as its plan wants it.
func (p planner) begun(t *model.Task, do todo) *model.Task {
	if do.plan.Do != flowplan.DoRestart {
		return t
	}
	return p.started(t, do)
}

// runsError: a person has had the last life of a task run again, and its execution has not ended yet. Like
// [store.ErrHeld], it concerns one flow alone, and passes.
type runsError struct{}

func (runsError) Error() string        { return "its last life is cancelled and has not ended yet" }
func (runsError) Is(target error) bool { return target == store.ErrHeld }

// renew begins a new life of a task, which waits, or may run at once. A last life that may run still is cancelled
// before: nothing of it is the work of the new one.
func (p planner) renew(ctx context.Context, id string, do todo) error {
	var last *model.Task
	err := p.store.Tasks.ChangeUnlessHeld(ctx, id, func(t *model.Task) (*model.Task, error) {
		last = nil
		if !begins(t, do) {
			return p.apply(t, do), nil
		}
		now := p.store.Clock.Now()
		if t.Status == model.StatusNew || t.Status == model.StatusExecuting {
			var err error
			last, err = lifecycle.Abort(t, "its node begins a new life", lifecycle.EffectiveOf(t, p.types.Options(t.Type)), now)
			return last, err
		}
		d := lifecycle.Draft{Held: true, Options: t.Options, Trace: do.flow.Trace}
		d.Typed(p.types.Get(t.Type))
		after, err := lifecycle.SendAgain(t, d, model.RestartFailed|model.RestartSucceeded|model.KeepArgs, now)
		if err != nil {
			return nil, err
		}
		if after == t { // it waits still
			if after, err = lifecycle.Update(t, lifecycle.Patch{}, d.TypeOptions, now); err != nil {
				return nil, err
			}
		}
		origin := *t.Origin
		origin.Generation = do.plan.Life
		after.Origin = &origin
		after = p.begun(after, do)
		after.Rev = t.Rev + 1
		return after, nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return p.resend(ctx, id, do)
	case err != nil || last == nil:
		return err
	case last.Status.Ended():
		return p.renew(ctx, id, do)
	}
	return runsError{}
}

// resend stores a new life of a task that has moved to the history. If that life is there already,
// it has run, and ended long ago.
func (p planner) resend(ctx context.Context, id string, do todo) error {
	lives, err := p.store.Tasks.LastLives(ctx, []string{id})
	if err != nil {
		return err
	}
	last := lives[id]
	if last == nil || !begins(last, do) {
		return nil // the task is gone, or unreadable: the sweep ends the node
	}
	d := lifecycle.Draft{
		Tenant: last.Tenant, Type: last.Type, Key: last.Key, Category: last.Category, Creator: last.Creator, Args: last.Args,
		Priority: &last.Priority, Held: true, Options: last.Options, Trace: cmp.Or(do.flow.Trace, last.Trace),
	}
	d.Typed(p.types.Get(last.Type))
	origin := *last.Origin
	origin.Generation = do.plan.Life
	d.Origin = &origin
	t := p.begun(lifecycle.NewTask(d, p.store.Clock.Now()), do)
	_, err = p.store.Tasks.Insert(ctx, []*model.Task{t})
	return err
}
