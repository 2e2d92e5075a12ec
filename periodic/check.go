package periodic

import (
	"time"
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

// EngineType is what engines call themselves among the workers: a process that is listed
// with it decides ticks.
const EngineType = engineType
