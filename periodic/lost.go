package periodic

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const (
	// lostAfter is how long a run is left to the outbox of its task.
	lostAfter   = 5 * time.Minute
	perSweep    = 100
	perDecision = 10   // of a sweep, at a time: rules may be large
	runsAtOnce  = 1000 // about as many runs of several rules are looked at together
	callTimeout = 20 * time.Second
)

// runsLost decides the ends of runs that nobody will tell: somebody deleted the task by hand, or
// parts of the database were restored, so that task and rule do not fit. Otherwise they
// would count among those that run at once for ever. lives are the newest lives of the tasks
// of the rule's active runs. nil when there is nothing to decide.
func runsLost(r *schedule.Rule, lives map[string]*model.Task, now time.Time) *schedule.Rule {
	after := r
	for _, a := range r.Active {
		if now.Sub(a.Started) < lostAfter || tickplan.Heavy(after) ||
			slices.ContainsFunc(r.Planned, func(p schedule.Planned) bool { return p.Task != nil && p.Task.Key == a.ID }) {
			continue // it may not have been sent yet, or is told soon
		}
		ended := &model.Task{
			ID: model.TaskID(r.Tenant, a.TaskType, a.ID), CreatedAt: a.Started,
			Origin: &model.Origin{Tick: &model.Tick{Run: a.ID, Nominal: a.Nominal, Attempt: a.Attempt, Manual: a.Manual}},
		}
		t, there := lives[ended.ID]
		if there && t == nil {
			continue // it cannot be read by this process
		}
		if t == nil {
			after = tickplan.Ended(after, ended, schedule.RunCanceled, "its task is gone", now)
			continue
		}
		told := slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomePeriodic })
		if told || !t.Status.Ended() {
			continue
		}
		status, info := tickplan.RunStatusOf(t)
		ended.FinishedAt, ended.WorkerStates, ended.Checkpoint = t.FinishedAt, t.WorkerStates, t.Checkpoint
		after = tickplan.Ended(after, ended, status, info, now)
	}
	if after == r {
		return nil
	}
	return after
}

// Sweep implements [decision.Planner]: it looks for runs whose ends nobody will tell, and removes rules that were deleted
// long ago.
func (p planner) Sweep(ctx context.Context) error {
	for last := ""; ; {
		n, err := p.sweepAfter(ctx, &last)
		if err != nil || n < perSweep {
			return err
		}
	}
}

func (p planner) sweepAfter(ctx context.Context, last *string) (found int, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began, now := clock.Read(p.store.Local()), p.store.Clock.Now()
	rules, unread, err := p.store.Rules.ToSweep(call, now.Add(-lostAfter), now.Add(-tickplan.DefaultRunRetention), *last, perSweep)
	if found = len(rules) + len(unread); err != nil || found == 0 {
		return 0, err
	}
	var gone []*schedule.Rule
	for _, r := range rules {
		if *last = max(*last, r.ID); len(r.Active) > 0 || now.Sub(r.DeletedAt) < r.RunRetention {
			continue
		}
		switch has, err := p.store.Runs.Any(call, r.ID); { // a run may have ended long after the rule was deleted
		case err != nil:
			return 0, err
		case !has:
			gone = append(gone, r)
		}
	}
	for _, u := range unread {
		p.decider.Complain(u.ID, u.Err)
		*last = max(*last, u.ID)
	}
	if err := p.store.Rules.Remove(call, gone); err != nil && !errors.Is(err, store.ErrHeld) { // else the next sweep does it
		return 0, err
	}
	var writes []store.RuleWrite
	for len(rules) > 0 {
		var ids []string
		n := 0
		for ; n < len(rules) && len(ids) < runsAtOnce; n++ {
			for _, a := range rules[n].Active {
				if now.Sub(a.Started) >= lostAfter {
					ids = append(ids, model.TaskID(rules[n].Tenant, a.TaskType, a.ID))
				}
			}
		}
		lives, err := p.store.Tasks.LastLivesOf(call, ids, store.End)
		if err != nil {
			return 0, err
		}
		for _, r := range rules[:n] {
			if after := runsLost(r, lives, now); after != nil {
				writes = append(writes, store.RuleWrite{Before: r, After: after})
			}
		}
		rules = rules[n:]
	}
	// Whoever decided in between has more to say than this: it is looked at again next time.
	for some := range slices.Chunk(writes, perDecision) {
		_, refused, failed := p.decider.Several(ctx, began, some)
		err = errors.Join(err, failed)
		for _, why := range refused {
			err = errors.Join(err, why)
		}
	}
	return found, err
}
