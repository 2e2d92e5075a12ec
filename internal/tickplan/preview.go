package tickplan

import (
	"cmp"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// PreviewTick is one of the next ticks of a rule.
type PreviewTick struct {
	UTC   time.Time // the instant
	Local time.Time // the same in the rule's zone
	Fires bool      // false if the DST policy leaves it out
	Note  string    // how the change of clocks affects it; "" = not at all
}

// Preview lists the next n ticks of a rule, 1 to 10,000, as an engine decides them, including
// those that the DST policy leaves out. @every counts from the rule's StartAt or its creation, and
// no tick is before that. A rule that has reached its MaxRuns or its end has none. A disabled rule
// is previewed as if it were enabled.
func Preview(r *schedule.Rule, after time.Time, n int) ([]PreviewTick, error) {
	if n < 1 || n > 10_000 {
		return nil, input.Invalid("n", "is %d; want 1 to 10000", n)
	}
	if r.MaxRuns > 0 && r.Runs >= r.MaxRuns {
		return nil, nil
	}
	cal, err := TimesOf(r)
	if err != nil {
		return nil, err
	}
	begins := r.CreatedAt // one at that very second counts as decided
	if !r.StartAt.IsZero() {
		begins = BeforeStart(r.StartAt)
	}
	var out []PreviewTick
	for t := range cal.Ticks(clock.Later(after, begins)) {
		if len(out) == n || !r.EndAt.IsZero() && !t.At.Before(r.EndAt) {
			break
		}
		out = append(out, PreviewTick{UTC: t.At, Local: t.At.In(cal.Zone()), Fires: t.Fires, Note: note(t)})
	}
	return out, nil
}

// TimesOf parses the times of a stored rule.
func TimesOf(r *schedule.Rule) (*calendar.Schedule, error) {
	s := calendar.Spec{Cron: r.Cron, Timezone: r.Timezone, Start: cmp.Or(r.StartAt, r.CreatedAt)}
	if r.DST != nil {
		s.Gap, s.Fold = calendar.Gap(r.DST.Gap), calendar.Fold(r.DST.Fold)
	}
	return calendar.Parse(s)
}

func note(t calendar.Tick) string {
	wall := t.Wall.Format("15:04:05")
	switch {
	case t.Shift == calendar.ShiftGap && t.Fires:
		return wall + " does not exist that day: fires after the gap"
	case t.Shift == calendar.ShiftGap:
		return wall + " does not exist that day: skipped"
	case t.Shift == calendar.ShiftFirst:
		return wall + " occurs twice that day: the first"
	case t.Shift == calendar.ShiftSecond && t.Fires:
		return wall + " occurs twice that day: the second"
	case t.Shift == calendar.ShiftSecond:
		return wall + " occurs twice that day: the second is skipped"
	default:
		return ""
	}
}
