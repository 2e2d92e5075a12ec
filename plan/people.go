package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Cancel ends a plan: no step follows, and the task of the step that waits or runs is cancelled. Cancel
// changes nothing if the plan is over. remark is kept as the reason.
// id is tenant/plan_id, with - for no tenant, such as -/nightly-report.
func (p *Plans) Cancel(ctx context.Context, id, remark string) (*repeat.Plan, error) {
	if err := input.Label("remark", remark); err != nil {
		return nil, err
	}
	ctx = store.Outside(ctx) // the decision reads
	return p.change(ctx, "cancelling", id, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
		open, err := p.open(ctx, doc)
		if err != nil {
			return nil, err
		}
		return stepplan.Cancel(doc, remark, open, now), nil
	})
}

// open says whether the task of the plan's step waits or runs, is about to be sent, or has an end that the plan does not
// know.
func (p *Plans) open(ctx context.Context, doc *repeat.Plan) (bool, error) {
	if doc.Step == 0 || doc.Done || stepplan.Over(doc.Status) {
		return false, nil
	}
	id := stepplan.TaskID(doc, doc.Step)
	lives, err := p.store.Tasks.LastLives(ctx, []string{id})
	if err != nil {
		return false, err
	}
	starts := stepplan.Check(doc) == nil && slices.ContainsFunc(doc.Planned, func(pl repeat.Planned) bool {
		return (pl.Do == stepplan.DoSend || pl.Do == stepplan.DoAgain) && pl.Step == doc.Step && pl.Try == doc.Try
	})
	switch t, there := lives[id]; {
	case !there:
		return starts, nil
	case t == nil: // this release cannot read it
		return true, nil
	case ofPlan(t) != doc.ID: // nothing of the plan can be sent while it is there
		return false, nil
	case stepplan.OfEarlier(doc, t):
		return starts, nil
	case t.Origin.Generation < doc.Try:
		return starts || !lifecycle.Archivable(t.Status), nil
	default:
		return !lifecycle.Archivable(t.Status) || endPending(t) && !stepplan.Told(doc, t), nil
	}
}

// Reset resumes a plan in ERROR: the step that failed starts again. For other plans, and while
// the document of the plan is broken, the error is a *[model.RefusedError]. If ctx has a
// span, the steps belong to its trace from then on.
// id is tenant/plan_id, with - for no tenant, such as -/nightly-report.
func (p *Plans) Reset(ctx context.Context, id string) (*repeat.Plan, error) {
	return p.change(ctx, "resetting", id, func(doc *repeat.Plan, now time.Time) (*repeat.Plan, error) {
		after, err := stepplan.Reset(doc, now)
		if err == nil {
			after.Trace = cmp.Or(tracing.Of(ctx, now), doc.Trace)
		}
		return after, err
	})
}

// maxTries is how often a decision is made anew when somebody else decided in between.
const maxTries = 50

// change reads a plan, decides and writes that, again until nobody interferes, and carries out what was
// decided.
func (p *Plans) change(ctx context.Context, doing, id string, decide func(*repeat.Plan, time.Time) (*repeat.Plan, error)) (*repeat.Plan, error) {
	ctx = store.Outside(ctx) // what follows the decision is many commands, which no transaction takes back
	if err := p.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
	}
	for range maxTries {
		began := clock.Read(p.store.Local())
		before, err := p.Get(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s a plan: %w", doing, err)
		}
		after, err := decide(before, p.store.Clock.Now())
		if err != nil {
			return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
		}
		applied, err := p.decider.One(ctx, began, store.Decision[*repeat.Plan]{Before: before, After: after})
		if err != nil {
			return nil, fmt.Errorf("%s the plan %s: %w", doing, id, err)
		}
		if applied {
			return after, nil
		}
	}
	return nil, fmt.Errorf("%s the plan %s: somebody else changed it %d times in between", doing, id, maxTries)
}
