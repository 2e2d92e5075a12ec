package lifecycle

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Conclude ends a task that no worker runs and that waits for something else: as Success with a
// result, or as Failure or Pending with an error. A task that succeeded, was cancelled or resolved
// stays as it is, and only one that waits becomes Pending. It returns t itself where nothing changes.
func Conclude(t *model.Task, status model.Status, result bson.RawValue, errorInfo string, eff Effective, now time.Time) *model.Task {
	open := t.Status == model.StatusWait || t.Status == model.StatusPending || t.Status == model.StatusFailure && status != model.StatusPending
	errorInfo = safetext.Clip(errorInfo, input.MaxTextBytes)
	if !open || t.Status == status && t.ErrorInfo == errorInfo {
		return t
	}
	c := next(t, now)
	c.Result, c.ErrorInfo = result, errorInfo
	end(c, status, eff, now)
	return c
}
