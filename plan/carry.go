package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// retention is how long a plan that is over, and each result, is kept.
const retention = 90 * 24 * time.Hour

// Finish implements [decision.Planner]: results are stored, steps start again, tasks are cancelled, and
// plans that are over move to the history. Each task records its step and its try, and each result has
// an id of its own, so what was done already, or is out of date, changes nothing.
func (p planner) Finish(ctx context.Context, plans []*repeat.Plan) (held map[string]error, err error) {
	held = map[string]error{}
	if err := p.results(ctx, plans); err != nil {
		return nil, err
	}
	var over []*repeat.Plan
	cancels := map[string]cancel{}
	for _, doc := range plans {
		for k := range doc.Planned {
			pl := &doc.Planned[k]
			now := pl.Step == doc.Step && pl.Try == doc.Try // else another decision came after it
			switch {
			case pl.Do == stepplan.DoAgain && now:
				if err := p.again(ctx, doc, pl.At); store.Outage(err) {
					return nil, err
				} else if err != nil { // it concerns this plan alone
					held[doc.ID] = fmt.Errorf("starting step %d again: %w", pl.Step, err)
				}
			case pl.Do == stepplan.DoCancel:
				cancels[stepplan.TaskID(doc, pl.Step)] = cancel{doc.ID, pl.Tell}
			case pl.Do == stepplan.DoLeave:
				over = append(over, doc)
			}
		}
	}
	if err := p.cancel(ctx, cancels, held); err != nil {
		return nil, err
	}
	if err := p.store.Plans.Leave(ctx, over, p.store.Clock.Now().Add(leaveAfter), retention); err != nil {
		return nil, err
	}
	for _, doc := range plans {
		for k := range doc.Planned { // engines remember plans for a while
			if held[doc.ID] == nil {
				doc.Planned[k].Ended = nil
			}
		}
	}
	return held, nil
}

// results stores the results of steps that have ended, and notes those that nobody serves.
func (p planner) results(ctx context.Context, plans []*repeat.Plan) error {
	var results []*repeat.Result
	type missing struct {
		doc *repeat.Plan
		pl  *repeat.Planned
	}
	var unread []missing
	add := func(all []*repeat.Result) {
		for _, r := range all {
			r.DeleteAt = r.At.Add(retention)
		}
		results = append(results, all...)
	}
	for _, doc := range plans {
		for k := range doc.Planned {
			switch pl := &doc.Planned[k]; {
			case pl.Do == stepplan.DoUnserved:
				add([]*repeat.Result{stepplan.UnservedResult(doc, pl)})
			case pl.Do != stepplan.DoResults:
			case pl.Ended != nil:
				add(stepplan.ResultsOf(doc, pl, pl.Ended))
			default:
				unread = append(unread, missing{doc, pl})
			}
		}
	}
	for _, m := range unread { // what an engine left that has died
		t, err := p.store.History.Life(ctx, stepplan.TaskID(m.doc, m.pl.Step), m.pl.Life)
		if errors.Is(err, store.ErrNotFound) {
			continue // somebody deleted it
		}
		if err != nil {
			return fmt.Errorf("reading the results of steps: %w", err)
		}
		add(stepplan.ResultsOf(m.doc, m.pl, t))
	}
	return p.store.Results.Put(ctx, results)
}

// again begins the plan's try of its step: a new life of the step's task, which may start at the time.
func (p planner) again(ctx context.Context, doc *repeat.Plan, at time.Time) error {
	if err := p.types.Unread(doc.Station); err != nil {
		return err
	}
	d := stepplan.Draft(doc, at)
	d.Typed(p.types.Get(doc.Station))
	begun := func(t *model.Task) bool { return ofPlan(t) != doc.ID || t.Origin.Generation >= doc.Try }
	id := stepplan.TaskID(doc, doc.Step)
	_, _, err := p.store.Tasks.Change(ctx, id, func(t *model.Task) (*model.Task, error) {
		if begun(t) {
			return t, nil
		}
		succeeded := t.Status.Succeeded() || t.Status == model.StatusManuallyProcessed
		if !t.Status.Ended() || succeeded { // a person has started it again: that is the new try
			after, origin := *t, *t.Origin
			origin.Generation = doc.Try
			after.Origin, after.Rev = &origin, t.Rev+1
			if succeeded {
				return lifecycle.TellAgain(&after, p.store.Clock.Now()), nil
			}
			return &after, nil
		}
		// Participants that have succeeded need not do it again.
		after, err := lifecycle.SendAgain(t, d, model.RestartFailed, p.store.Clock.Now())
		if err != nil || after == t {
			return t, err
		}
		after.Rev = t.Rev + 1
		return after, nil
	})
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	lives, err := p.store.Tasks.LastLives(ctx, []string{id})
	if err != nil {
		return err
	}
	if last := lives[id]; last != nil && begun(last) {
		return nil // it has run, and ended long ago
	}
	_, err = p.store.Tasks.Insert(ctx, []*model.Task{lifecycle.NewTask(d, p.store.Clock.Now())})
	return err
}

// cancel is the cancelling of a step's task.
type cancel struct{ plan, remark string }

// cancel cancels the tasks of steps, and tells the workers that run them.
func (p planner) cancel(ctx context.Context, cancels map[string]cancel, held map[string]error) error {
	ids := slices.Collect(maps.Keys(cancels))
	now := p.store.Clock.Now()
	running := map[string]bool{}
	stuck, err := decision.ChangeTasks(ctx, p.store, "cancelling steps of plans", ids, func(t *model.Task) *model.Task {
		if ofPlan(t) != cancels[t.ID].plan || t.Status.Ended() {
			return t
		}
		after, err := lifecycle.Cancel(t, cmp.Or(cancels[t.ID].remark, "cancelled with its plan"), lifecycle.EffectiveOf(t, p.types.Options(t.Type)), now)
		if err != nil {
			return t
		}
		running[t.ID] = lifecycle.OpenExecutions(after) > 0
		return after
	})
	if err != nil {
		return err
	}
	for _, id := range stuck {
		held[cancels[id].plan] = fmt.Errorf("cancelling the task %s: %w", id, store.ErrHeld)
	}
	var signal []string
	for id, yes := range running {
		if yes {
			signal = append(signal, id)
		}
	}
	return p.store.Control.Signal(ctx, signal...)
}
