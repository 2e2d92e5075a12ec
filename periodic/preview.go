package periodic

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/model"
)

// PreviewTick is one of the next ticks of a rule, as people read it.
type PreviewTick struct {
	UTC   time.Time // the instant
	Local time.Time // the same in the rule's zone
	Fires bool      // false where the DST policy leaves it out
	Note  string    // what the change of clocks did to it; "" = nothing
}

// Preview lists the next n times of a rule after an instant, those that the DST policy
// leaves out too. Nothing is read or written. The error names the fields that are wrong.
func Preview(s Spec, after time.Time, n int) ([]PreviewTick, error) {
	if n < 1 || n > 10_000 {
		return nil, model.Invalid("n", "is %d; want 1 to 10000", n)
	}
	r, cal, err := s.rule(after)
	if err != nil {
		return nil, err
	}
	var out []PreviewTick
	for t := range cal.Ticks(later(after, beforeStart(r.StartAt))) {
		if len(out) == n || !r.EndAt.IsZero() && !t.At.Before(r.EndAt) {
			break
		}
		out = append(out, PreviewTick{UTC: t.At, Local: t.At.In(cal.Zone()), Fires: t.Fires, Note: note(t)})
	}
	return out, nil
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
