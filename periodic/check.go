package periodic

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Rule returns the rule that the spec describes, as it would be stored: the cron rule normalised,
// defaults filled in, created at now. The error joins everything that is wrong; each part names
// its field. It also reports a rule that never fires after now; an old now skips this check.
// Nothing is read or written.
func (s Spec) Rule(now time.Time) (*schedule.Rule, error) {
	r, _, err := s.rule(now)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Checked returns the spec as it would be stored, with its secrets: see [Spec.Rule].
func (s Spec) Checked(now time.Time) (Spec, error) {
	r, err := s.Rule(now)
	if err != nil {
		return s, err
	}
	return specOf(r), nil
}

// CheckedFor reports what is wrong with the spec as an edit of the stored rule, or as a new rule
// if stored is nil. Nothing is read or written.
func (s Spec) CheckedFor(stored *schedule.Rule, now time.Time) error {
	if stored != nil {
		now = s.since(now, stored)
	}
	_, err := s.Rule(now)
	return err
}

// since is the time after which an edited rule must fire: a rule whose end has come and
// stays what it was can still be edited.
func (s *Spec) since(now time.Time, stored *schedule.Rule) time.Time {
	if clock.Millis(s.EndAt).Equal(stored.EndAt) {
		return stored.CreatedAt
	}
	return now
}

// EngineType is the type under which engines are listed among the workers.
const EngineType = engineType
