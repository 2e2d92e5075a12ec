package lifecycle

import (
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// next is a copy that a rule may change: states are copied, values shared. The rev
// goes up by one, as it does on every deciding write.
func next(t *model.Task, now time.Time) *model.Task {
	c := *t
	c.WorkerStates = slices.Clone(t.WorkerStates)
	c.Rev++
	c.UpdatedAt = now
	return &c
}
