package lifecycle

import (
	"slices"

	"github.com/mscheduler/mscheduler/model"
)

// StepsOf are the steps that the worker need not do again. With one wanted worker it does
// not matter who saved them; several workers each do their own.
func StepsOf(t *model.Task, workerID string) []model.Step {
	if Wanted(t) == 1 {
		return t.Steps
	}
	return slices.DeleteFunc(slices.Clone(t.Steps), func(s model.Step) bool { return s.WorkerID != workerID })
}
