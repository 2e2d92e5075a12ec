package stepplan

import (
	"cmp"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
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

// Preview returns the next n steps of a plan, as computed at now, if each ends as soon as it starts: the
// step that waits or runs (p.Step, if it is not 0) and those after it. Steps that are skipped are one entry
// in addition, and so is the end of the plan.
func Preview(p *repeat.Plan, now time.Time, n int) ([]Entry, error) {
	g, err := gridOf(p)
	if err != nil {
		return nil, err
	}
	now = clock.Millis(now)
	plan := *p
	g.Plan = &plan
	var out []Entry
	if plan.Status.Over() {
		return []Entry{{Over: true, Why: cmp.Or(plan.Reason, "it is "+string(plan.Status))}}, nil
	}
	if plan.Step > 0 && !plan.Done && n > 0 {
		out = append(out, Entry{Step: plan.Step, At: plan.PlanTime})
		n--
	}
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
		out = append(out, Entry{Step: next.Step, At: next.At})
		plan.Step, plan.PlanTime = next.Step, next.At
	}
	return out, nil
}
