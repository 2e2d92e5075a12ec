package stepplan

import (
	"cmp"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Entry is one entry of a preview: a step, times that are skipped, or the end of the plan.
type Entry struct {
	Step    int64     // the step, or the first that is skipped; 0 = the plan is over
	At      time.Time // its time
	Skipped int64     // 0 = the step runs; otherwise how many steps, from Step on, are skipped
	Over    bool
	Why     string // why steps are skipped, or why the plan is over
}

// FarthestPreview is how far ahead previews begin.
const FarthestPreview = 100 * 366 * day

// Preview returns the next n steps of a plan, as computed at now, if each ends as soon as it starts: the
// step that waits or runs (p.Step, if it is not 0) and those after it. Steps that are skipped are one entry
// in addition, and so is the end of the plan. Steps before from are left out, unless it is zero; it is no more than
// [FarthestPreview] after now.
func Preview(p *repeat.Plan, now, from time.Time, n int) ([]Entry, error) {
	g, err := gridOf(p)
	if err != nil {
		return nil, err
	}
	now = clock.Millis(now)
	if from.Sub(now) > FarthestPreview {
		return nil, input.Invalid("from", "is %s; want at most 100 years after now", shown(from))
	}
	plan := *p
	g.Plan = &plan
	var out []Entry
	if Over(plan.Status) {
		return []Entry{{Over: true, Why: cmp.Or(plan.Reason, "it is "+string(plan.Status))}}, nil
	}
	if plan.Step > 0 && !plan.Done && n > 0 && !plan.PlanTime.Before(from) {
		out = append(out, Entry{Step: plan.Step, At: plan.PlanTime})
		n--
	}
	g.skip(now, clock.Millis(from))
	for ; n > 0; n-- {
		next := g.next(now)
		if next.Skipped > 0 {
			skipped := Entry{Step: plan.Step + 1, Skipped: next.Skipped, Why: next.Why}
			skipped.At, _ = g.at(skipped.Step)
			out = append(out, skipped)
		}
		if next.Over {
			return append(out, Entry{Over: true, Why: next.Why}), nil
		}
		if !next.At.Before(from) {
			out = append(out, Entry{Step: next.Step, At: next.At})
		}
		plan.Step, plan.PlanTime = next.Step, next.At
	}
	return out, nil
}

// skip passes over the steps before a time. Those of an interval are not computed one by one; of a week or a month there
// are few.
func (g *grid) skip(now, from time.Time) {
	switch {
	case from.IsZero() || !repeats(g.PlanType):
	case g.PlanType == repeat.Week || g.PlanType == repeat.Month:
		for next := g.next(now); !next.Over && next.At.Before(from); next = g.next(now) {
			g.Step, g.PlanTime = next.Step, next.At
		}
	case g.PlanValue != 0:
		g.Step = min(g.from(g.Step+1, from), g.steps()+1) - 1
	}
}
