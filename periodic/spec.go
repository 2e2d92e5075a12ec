package periodic

import (
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// SpecOf returns the definition of a stored rule, to be edited and passed to [Periodic.Update].
// Its secrets, and the parts of a called URL that may be secret, are "***", which stands for the stored ones.
func SpecOf(r *schedule.Rule) schedule.Spec {
	s := rulespec.Of(r)
	rulespec.HideSecrets(&s)
	return s
}
