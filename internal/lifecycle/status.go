package lifecycle

import (
	"github.com/mscheduler/mscheduler/model"
)

// Statuses lists all statuses in the order of a task's life.
var Statuses = []model.Status{
	model.StatusWait, model.StatusNew, model.StatusExecuting, model.StatusError, model.StatusSuccess,
	model.StatusCompleted, model.StatusFailure, model.StatusPending, model.StatusManuallyProcessed, model.StatusCancelled,
}

// Archivable says whether the task moves to the history once its retention is over.
func Archivable(s model.Status) bool { return s.Ended() && s != model.StatusPending }

// Known says whether this release knows the status.
func Known(s model.Status) bool {
	for _, k := range Statuses {
		if s == k {
			return true
		}
	}
	return false
}
