package lifecycle

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Conclude ends a task that no worker runs and that waits for something else: as Success with a
// result, or as Failure or Pending with an error. Also one that a person has released or retried ends:
// no worker will. A task that succeeded, was cancelled or resolved stays as it is, and a failed one
// does not become Pending. It returns t itself where nothing changes.
func Conclude(t *model.Task, status model.Status, result bson.RawValue, errorInfo string, eff Effective, now time.Time) *model.Task {
	open := false
	switch t.Status { //nolint:exhaustive // the others stay
	case model.StatusWait, model.StatusNew, model.StatusError, model.StatusPending:
		open = true
	case model.StatusFailure:
		open = status != model.StatusPending
	}
	errorInfo = safetext.Clip(errorInfo, input.MaxTextBytes)
	if !open || t.Status == status && t.ErrorInfo == errorInfo {
		return t
	}
	c := next(t, now)
	c.Result, c.ErrorInfo = result, errorInfo
	c.DueAt, c.ExpireAt = time.Time{}, time.Time{}
	end(c, status, eff, now)
	return c
}
