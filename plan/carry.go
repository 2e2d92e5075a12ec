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

// Tasks implements [decision.Planner]: the tasks of steps and the deliveries of callbacks. A step that
// cannot be sent now has none, see Finish.
func (p planner) Tasks(doc *repeat.Plan) (tasks []*model.Task) {
	for i := range doc.Planned {
		pl := &doc.Planned[i]
		if pl.Do == stepplan.DoSend && stepplan.Stands(doc, pl) && p.sendable(doc) == nil {
			if t := lifecycle.NewTask(stepplan.Draft(doc, pl), doc.UpdatedAt); p.types.Give(t) == nil {
				tasks = append(tasks, t)
			}
		}
		if d, is := stepplan.Delivery(doc, pl); is {
			tasks = append(tasks, lifecycle.NewTask(d, doc.UpdatedAt))
		}
	}
	return tasks
}

// sendable says why the task of the plan's step cannot be sent by this process; nil = it can.
func (p planner) sendable(doc *repeat.Plan) error {
	if err := stepplan.Check(doc); err != nil {
		return &store.FatalError{Reason: "the document of the plan is broken", Err: err}
	}
	return p.types.Unread(doc.Station)
}

// Finish implements [decision.Planner]: steps start again, tasks are cancelled, and plans that are over
// move to the history. Each task records its step and its try, so what was done already, or is out of
// date, changes nothing.
func (p planner) Finish(ctx context.Context, plans []*repeat.Plan, unsent map[string]error) (held map[string]error, err error) {
	held = map[string]error{}
	var over []*repeat.Plan
	var unserved []*repeat.Result
	cancels := map[string]cancel{}
	for _, doc := range plans {
		for k := range doc.Planned {
			pl := &doc.Planned[k]
			switch pl.Do {
			case stepplan.DoSend, stepplan.DoAgain:
				if !stepplan.Stands(doc, pl) {
					break
				}
				err := p.sendable(doc)
				if err == nil && pl.Do == stepplan.DoAgain {
					if err = p.again(ctx, doc, pl); store.Outage(err) {
						return nil, err
					}
				}
				if err != nil && doc.Status != repeat.StatusCancelled { // it concerns this plan alone
					held[doc.ID] = fmt.Errorf("starting step %d: %w", pl.Step, err)
				}
			case stepplan.DoUnserved:
				unserved = append(unserved, stepplan.UnservedResult(doc, pl))
			case stepplan.DoCancel:
				cancels[stepplan.TaskID(doc, pl.Step)] = cancel{doc.ID, pl.Tell}
			case stepplan.DoLeave:
				over = append(over, doc)
			}
		}
	}
	if err := p.keep(ctx, unserved); err != nil {
		return nil, err
	}
	if err := p.cancel(ctx, cancels, held); err != nil {
		return nil, err
	}
	// With its plans a plan loses what could not be sent, such as the delivery of its callback.
	over = slices.DeleteFunc(over, func(doc *repeat.Plan) bool { return held[doc.ID] != nil || unsent[doc.ID] != nil })
	stay, err := p.store.Plans.Leave(ctx, over, p.store.Clock.Now().Add(leaveAfter), retention)
	if err != nil {
		return nil, err
	}
	for _, id := range stay {
		held[id] = fmt.Errorf("moving the plan to the history: %w", store.ErrHeld)
	}
	for _, doc := range over {
		if held[doc.ID] == nil {
			doc.Planned = nil // that left with it
		}
	}
	return held, nil
}

// keepTimeout bounds how long one page of results takes.
const keepTimeout = 20 * time.Second

// Keep implements [decision.Planner]: it stores the results of steps that have ended. Results may be large, so it
// reads and stores them page by page.
func (p planner) Keep(ctx context.Context, cases []decision.Case[*repeat.Plan]) error {
	var results []*repeat.Result
	var lives []store.OutboxLife // whose results are to be read
	var plans []*repeat.Plan     // of those lives
	for _, c := range cases {
		for _, l := range slices.Concat(c.Past, c.Ends) {
			if l.Returned {
				results = append(results, stepplan.ResultsOf(c.Doc, l.Task)...)
			} else {
				lives, plans = append(lives, l), append(plans, c.Doc)
			}
		}
	}
	for len(results)+len(lives) > 0 {
		n, err := p.keepPage(ctx, results, lives, plans)
		if err != nil {
			return err
		}
		results, lives, plans = nil, lives[n:], plans[n:]
	}
	return nil
}

// keepPage stores results, and those of the first n of the lives.
func (p planner) keepPage(ctx context.Context, results []*repeat.Result, lives []store.OutboxLife, plans []*repeat.Plan) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	tasks, n, err := p.store.Tasks.LivesPage(ctx, lives, store.Returned)
	if err != nil {
		return 0, err
	}
	for i, t := range tasks {
		switch {
		case t == nil: // somebody has just deleted the task by hand
		case lives[i].Status.Ended() && !t.Status.Ended(): // a change of primary has undone it
			return 0, fmt.Errorf("reading what the task %s returned: it has not ended", t.ID)
		default:
			results = append(results, stepplan.ResultsOf(plans[i], t)...)
		}
	}
	return n, p.keep(ctx, results)
}

// keep stores results, each unless it is there.
func (p planner) keep(ctx context.Context, results []*repeat.Result) error {
	for _, r := range results {
		r.DeleteAt = r.At.Add(retention)
	}
	return p.store.Results.Put(ctx, results)
}

// there hears that the task of a plan's step was there when it was sent. It is that of an earlier plan, if it was kept for
// longer than that plan: then it begins anew.
func (p planner) there(ctx context.Context, doc *repeat.Plan, t *model.Task) error {
	for i := range doc.Planned {
		if pl := &doc.Planned[i]; pl.Do == stepplan.DoSend && t.ID == stepplan.TaskID(doc, pl.Step) {
			return p.again(ctx, doc, pl)
		}
	}
	return nil
}

// again begins the plan's try of its step, as it is planned: a new life of the step's task.
func (p planner) again(ctx context.Context, doc *repeat.Plan, pl *repeat.Planned) error {
	d := stepplan.Draft(doc, pl)
	d.Typed(p.types.Get(doc.Station))
	begun := func(t *model.Task) bool {
		return ofPlan(t) != doc.ID || t.Origin.Generation >= doc.Try && !stepplan.OfEarlier(doc, t)
	}
	id := stepplan.TaskID(doc, doc.Step)
	err := p.store.Tasks.ChangeUnlessHeld(ctx, id, func(t *model.Task) (*model.Task, error) {
		if begun(t) {
			return t, nil
		}
		if stepplan.OfEarlier(doc, t) { // nothing of it counts
			if !t.Status.Ended() { // somebody has started it again; the sweep waits for its end
				return t, nil
			}
			return lifecycle.SendAgain(t, d, model.RestartFailed|model.RestartSucceeded, p.store.Clock.Now())
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
	running, inFirstLife := map[string]bool{}, decision.FirstLife()
	stuck, err := decision.ChangeTasks(ctx, p.store, "cancelling steps of plans", ids, func(t *model.Task) *model.Task {
		delete(running, t.ID)
		if ofPlan(t) != cancels[t.ID].plan || !inFirstLife(t) {
			return t
		}
		after, err := lifecycle.Abort(t, cmp.Or(cancels[t.ID].remark, "cancelled with its plan"), lifecycle.EffectiveOf(t, p.types.Options(t.Type)), now)
		if err != nil {
			return t // it has ended
		}
		running[t.ID] = lifecycle.OpenExecutions(after) > 0
		return after
	})
	if err != nil {
		return err
	}
	for id, why := range stuck {
		held[cancels[id].plan] = fmt.Errorf("cancelling the task %s: %w", id, why)
	}
	var signal []string
	for id, yes := range running {
		if yes {
			signal = append(signal, id)
		}
	}
	return p.store.Control.Signal(ctx, signal...)
}
