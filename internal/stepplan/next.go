package stepplan

import (
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Next is the next step of a plan.
type Next struct {
	Step    int64     // from 1 on; 0 if the plan is over
	At      time.Time // when it is due; before the given time only with no_keep. Zero if the plan is over
	Skipped int64     // times that are skipped before it, or before the plan is over
	Over    bool      // the plan has no step any more
	Why     string    // why times are skipped, or why the plan is over: a sentence for people
}

// NextPlanTime is the step after p.Step (0 = none has been computed: the first), as computed at now. It
// reads the type, value, repet, no_keep, timezone and start of the plan, its step, and the plan_time of
// that step. The times of the database are milliseconds, and so is now.
//
// A plan with an interval is over when its last time has passed, although it may never have run. So is a
// plan with the interval 0 whose start has passed, even without an end, because all its times are its
// start; if it has no end, Skipped is 0.
//
// An error means that the document is broken. It joins everything that is wrong.
func NextPlanTime(p *repeat.Plan, now time.Time) (Next, error) {
	g, err := gridOf(p)
	if err != nil {
		return Next{}, err
	}
	return g.next(clock.Millis(now)), nil
}

func (g *grid) next(now time.Time) Next {
	switch {
	case g.Step >= g.steps():
		return over("step %d of %d was the last", g.Step, g.steps())
	case g.PlanType == repeat.None:
		return Next{Step: 1, At: now}
	case g.PlanType == repeat.Time:
		return g.once(now)
	case g.PlanType == repeat.Week || g.PlanType == repeat.Month:
		at, ok := g.after(clock.Later(now, g.PlanTime))
		return next(g.Step+1, at, ok)
	case g.NoKeep:
		at, ok := g.at(g.Step + 1)
		return next(g.Step+1, at, ok)
	default:
		return g.future(now)
	}
}

// steps is how many steps the plan has; without an end it is more than there can be.
func (g *grid) steps() int64 {
	switch {
	case !repeats(g.PlanType):
		return 1
	case g.PlanRepet < 0:
		return maxStep + 1
	default:
		return int64(g.PlanRepet)
	}
}

func over(format string, args ...any) Next {
	return Next{Over: true, Why: fmt.Sprintf(format, args...)}
}

// next is step k, if its time is not too late.
func next(k int64, at time.Time, ok bool) Next {
	if !ok {
		return over("the time of step %d would be after the year 9999", k)
	}
	return Next{Step: k, At: at}
}

// once is the step of a plan of type time.
func (g *grid) once(now time.Time) Next {
	if g.NoKeep || !g.Start.Before(now) {
		return Next{Step: 1, At: g.Start}
	}
	n := over("its time, %s, was before %s, and no_keep is false", shown(g.Start), shown(now))
	n.Skipped = 1
	return n
}

// future is the first step, after the last one, whose time is not before now. Those before it are
// skipped, and count as steps.
func (g *grid) future(now time.Time) Next {
	first, last := g.Step+1, g.steps()
	var k int64
	switch {
	case g.PlanValue != 0:
		k = g.from(first, now)
	case g.Start.Before(now): // as are all its times
		if g.PlanRepet < 0 {
			return over("its interval is 0: the time of every step is its start, %s, which was before %s, and no_keep is false", shown(g.Start), shown(now))
		}
		k = last + 1
	default:
		k = first
	}
	if k > last {
		n := over("the last of its times, step %d, was before %s, and no_keep is false", last, shown(now))
		n.Skipped = last - g.Step
		return n
	}
	at, ok := g.at(k)
	n := next(k, at, ok)
	if n.Skipped = k - first; n.Skipped > 0 && ok {
		n.Why = fmt.Sprintf("%s before %s, and no_keep is false", steps(first, k-1), shown(now))
	}
	return n
}

// steps names the steps whose times were.
func steps(first, last int64) string {
	if first == last {
		return fmt.Sprintf("the time of step %d was", first)
	}
	return fmt.Sprintf("the times of steps %d to %d were", first, last)
}

func shown(t time.Time) string { return t.UTC().Format(clock.Format) }
