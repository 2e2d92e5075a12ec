package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// planner is what the machinery of decisions needs to know of plans.
type planner struct{ *Plans }

var _ decision.Planner[*repeat.Plan] = planner{}

func (planner) Kind() string { return lifecycle.OutcomePlan }

// DueAt implements [decision.Planner]. No plan is ever due: the task of the next step waits for its time.
func (planner) DueAt(*repeat.Plan) time.Time          { return time.Time{} }
func (planner) MustKnow(*repeat.Plan) (ids []string)  { return nil }
func (planner) Of(l store.OutboxLife) (planID string) { return ofPlan(l.Task) }

// ofPlan is the id of the plan of which the task is a step; "" = none.
func ofPlan(t *model.Task) string {
	if t.Origin == nil || t.Origin.Kind != lifecycle.OutcomePlan {
		return ""
	}
	return t.Origin.ID
}

// PlannedBytes implements [decision.Planner].
func (planner) PlannedBytes(p *repeat.Plan) (n int) {
	const each = 256
	for i := range p.Planned {
		if n += each + len(p.Planned[i].Tell); p.Planned[i].Do == stepplan.DoSend {
			n += each + len(p.Messages.Value)
		}
	}
	return n
}

func (planner) Trace(p *repeat.Plan) *model.Trace { return p.Trace }

// Decide implements [decision.Planner]: each end of a step's task in turn.
func (planner) Decide(_ context.Context, cases []decision.Case[*repeat.Plan], now time.Time) ([]decision.Answer[*repeat.Plan], error) {
	answers := make([]decision.Answer[*repeat.Plan], len(cases))
	for i, c := range cases {
		after := c.Doc
		for _, l := range c.Ends {
			after = stepplan.Ended(after, stepplan.EndOf(l.Task), now)
		}
		answers[i] = decision.Answer[*repeat.Plan]{After: after, Changed: after != c.Doc, Told: len(c.Ends)}
	}
	return answers, nil
}

// Complete implements [decision.Planner].
func (p planner) Complete(w store.Decision[*repeat.Plan], _ time.Time) error {
	return p.complete(w.After, p.store.Plans.PlanIDs(w.Before))
}

const (
	// unservedAfter is how long a step may be due before somebody looks whether its station is served.
	unservedAfter = time.Minute
	// lostAfter is how long an end is left to the outbox of its task.
	lostAfter = 5 * time.Minute
	perSweep  = 100
)

// Sweep implements [decision.Planner]: it looks for steps that nobody serves, and for ends that nobody
// will tell, because somebody deleted a task by hand, or parts of the database were restored.
func (p planner) Sweep(ctx context.Context) (failed error) {
	now := p.store.Clock.Now()
	serving := map[string][]store.Worker{} // by station
	for after := (*repeat.Plan)(nil); ; {
		late, unread, err := p.store.Plans.Late(ctx, now.Add(-unservedAfter), after, perSweep)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, u := range unread {
			failed = errors.Join(failed, fmt.Errorf("the plan %s cannot be read: %w", u.ID, u.Err))
		}
		if len(late) == 0 {
			return failed
		}
		if err := p.sweepLate(ctx, late, serving, now); store.Outage(err) {
			return errors.Join(failed, err)
		} else if err != nil { // it concerns these alone
			failed = errors.Join(failed, err)
		}
		after = late[len(late)-1]
	}
}

// endPending says whether no engine has applied the end of a step's task yet.
func endPending(t *model.Task) bool {
	return slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomePlan })
}

func (p planner) sweepLate(ctx context.Context, late []*repeat.Plan, serving map[string][]store.Worker, now time.Time) (failed error) {
	ids := make([]string, len(late))
	for i, doc := range late {
		ids[i] = stepplan.TaskID(doc, doc.Step)
	}
	lives, err := p.store.Tasks.LastLivesOf(ctx, ids, store.Queued)
	if err != nil {
		return err
	}
	for i, doc := range late {
		t, there := lives[ids[i]]
		there = there && (t == nil || !stepplan.OfEarlier(doc, t))
		waits := there && t != nil && (t.Status == model.StatusNew || t.Status == model.StatusError)
		if _, asked := serving[doc.Station]; waits && !asked {
			workers, err := p.store.Workers.Serving(ctx, doc.Station, now)
			if err != nil {
				return errors.Join(failed, err)
			}
			serving[doc.Station] = workers
		}
		planned := slices.ContainsFunc(doc.Planned, func(pl repeat.Planned) bool { return pl.Do != stepplan.DoSend })
		lost := now.Sub(doc.UpdatedAt) >= lostAfter && now.Sub(doc.PlanTime) >= lostAfter
		foreign := there && t != nil && ofPlan(t) != doc.ID
		var err error
		switch {
		case planned && !lost:
			continue
		case planned:
			_, err = p.change(ctx, "looking at what is planned of", doc.ID, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
				return stepplan.Checked(doc, now), nil
			})
		case foreign && doc.Status == repeat.StatusCancelled && !lost:
			continue
		case foreign && doc.Status == repeat.StatusCancelled: // nothing of it runs
			err = p.gone(ctx, doc)
		case waits && doc.LastState == stepplan.StateNoWorker: // it is known
			continue
		case waits && slices.ContainsFunc(serving[doc.Station], func(w store.Worker) bool { return w.Takes(t) }), there && t == nil:
			continue
		case foreign:
			_, err = p.change(ctx, "noting that another task has the key of a step of", doc.ID, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
				return stepplan.Broken(doc, fmt.Sprintf("another task has the key of its step: %s", t.ID), now), nil
			})
		case waits && now.Sub(clock.Later(t.DueAt, doc.UpdatedAt)) < unservedAfter: // it is a late step, or another try
			continue
		case waits:
			_, err = p.change(ctx, "noting that nobody serves", doc.ID, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
				return stepplan.Unserved(doc, now), nil
			})
		case !lost:
			continue
		case !there || t.Origin.Generation < doc.Try: // the database was restored
			err = p.gone(ctx, doc)
		case t.Status.Ended() && !endPending(t):
			err = p.tellLost(ctx, doc, ids[i])
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// tellLost tells a plan how the task of its step ended, unless the task has begun a new life meanwhile.
func (p planner) tellLost(ctx context.Context, doc *repeat.Plan, taskID string) error {
	lives, err := p.store.Tasks.LastLives(ctx, []string{taskID})
	if err != nil {
		return err
	}
	t := lives[taskID]
	if t == nil || !t.Status.Ended() || endPending(t) {
		return nil
	}
	_, err = p.change(ctx, "looking for lost ends of", doc.ID, func(now *repeat.Plan, at time.Time) (*repeat.Plan, error) {
		if err := p.keep(ctx, stepplan.ResultsOf(now, t)); err != nil {
			return nil, err
		}
		return stepplan.Ended(now, stepplan.EndOf(t), at), nil
	})
	return err
}

// gone tells a plan that nobody will tell how the task of its step ended.
func (p planner) gone(ctx context.Context, doc *repeat.Plan) error {
	_, err := p.change(ctx, "looking for the lost task of", doc.ID, func(now *repeat.Plan, at time.Time) (*repeat.Plan, error) {
		return stepplan.Ended(now, stepplan.End{Step: doc.Step, Try: doc.Try, Gone: true}, at), nil
	})
	return err
}
