package periodic

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// PreviewTick is one of the next ticks of a rule, as people read it.
type PreviewTick struct {
	UTC   time.Time // the instant
	Local time.Time // the same in the rule's zone
	Fires bool      // false where the DST policy leaves it out
	Note  string    // what the change of clocks did to it; "" = nothing
}

// Preview lists the next n times of a rule that is not stored yet, after an instant, those
// that the DST policy leaves out too. Nothing is read or written. Without a StartAt @every
// counts from that instant, as if the rule were created then; of a stored rule, see
// [PreviewRule]. n is 1 to 10,000. The error names the fields that are wrong.
func Preview(s Spec, after time.Time, n int) ([]PreviewTick, error) {
	if err := previewable(n); err != nil {
		return nil, err
	}
	r, cal, err := s.rule(after)
	if err != nil {
		return nil, err
	}
	return preview(r, cal, later(after, beforeStart(r.StartAt)), n), nil
}

// PreviewRule is [Preview] of a stored rule: its times are those that an engine decides,
// @every counting from its StartAt or its creation, and none is before either. A rule whose
// MaxRuns are reached or whose end has come has none; that it is offline changes nothing.
func PreviewRule(r *schedule.Rule, after time.Time, n int) ([]PreviewTick, error) {
	if err := previewable(n); err != nil {
		return nil, err
	}
	if r.MaxRuns > 0 && r.Runs >= r.MaxRuns {
		return nil, nil
	}
	cal, err := timesOf(r)
	if err != nil {
		return nil, err
	}
	begins := r.CreatedAt // one at that very second counts as decided
	if !r.StartAt.IsZero() {
		begins = beforeStart(r.StartAt)
	}
	return preview(r, cal, later(after, begins), n), nil
}

func previewable(n int) error {
	if n < 1 || n > 10_000 {
		return input.Invalid("n", "is %d; want 1 to 10000", n)
	}
	return nil
}

func preview(r *schedule.Rule, cal *calendar.Schedule, after time.Time, n int) (out []PreviewTick) {
	for t := range cal.Ticks(after) {
		if len(out) == n || !r.EndAt.IsZero() && !t.At.Before(r.EndAt) {
			break
		}
		out = append(out, PreviewTick{UTC: t.At, Local: t.At.In(cal.Zone()), Fires: t.Fires, Note: note(t)})
	}
	return out
}

// timesOf parses the times of a stored rule.
func timesOf(r *schedule.Rule) (*calendar.Schedule, error) {
	s := calendar.Spec{Cron: r.Cron, Timezone: r.Timezone, Start: or(r.StartAt, r.CreatedAt)}
	if r.DST != nil {
		s.Gap, s.Fold = calendar.Gap(r.DST.Gap), calendar.Fold(r.DST.Fold)
	}
	return calendar.Parse(s)
}

func note(t calendar.Tick) string {
	wall := t.Wall.Format("15:04:05")
	switch {
	case t.Shift == calendar.ShiftGap && t.Fires:
		return wall + " does not exist that day: fires when the gap is over"
	case t.Shift == calendar.ShiftGap:
		return wall + " does not exist that day: skipped"
	case t.Shift == calendar.ShiftFirst:
		return wall + " comes twice that day: the first"
	case t.Shift == calendar.ShiftSecond && t.Fires:
		return wall + " comes twice that day: the second"
	case t.Shift == calendar.ShiftSecond:
		return wall + " comes twice that day: the second is left out"
	default:
		return ""
	}
}
