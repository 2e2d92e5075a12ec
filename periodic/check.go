package periodic

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Checked is the spec as it would be stored: the cron rule normalised, defaults that are
// stored filled in. The error joins everything that is wrong, each naming its field. At the
// given time a rule that fires no more is wrong, too; a time long past leaves that out.
// Nothing is read or written.
func (s Spec) Checked(now time.Time) (Spec, error) {
	r, _, err := s.rule(now)
	if err != nil {
		return s, err
	}
	return specOf(r), nil
}

// CheckedFor says what is wrong with the spec as an edit of the stored rule, or, where that
// is nil, as a new one. Nothing is read or written.
func (s Spec) CheckedFor(stored *schedule.Rule, now time.Time) error {
	if stored != nil {
		now = s.since(now, stored)
	}
	_, err := s.Checked(now)
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

// EngineType is what engines call themselves among the workers: a process that is listed
// with it decides ticks.
const EngineType = engineType
