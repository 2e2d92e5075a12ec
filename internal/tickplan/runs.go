package tickplan

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// RunStatusOf returns the status of a run as its task has it, and why the run failed.
func RunStatusOf(t *model.Task) (s schedule.RunStatus, info string) {
	switch t.Status {
	case model.StatusSuccess, model.StatusCompleted, model.StatusManuallyProcessed:
		return schedule.RunSuccess, ""
	case model.StatusCancelled:
		return schedule.RunCanceled, t.Remark
	case model.StatusFailure, model.StatusPending:
		return failedStatus(t), t.ErrorInfo
	case model.StatusExecuting:
		for i := range t.WorkerStates {
			if w := &t.WorkerStates[i]; lifecycle.Open(w) && w.Parked {
				return schedule.RunWaiting, ""
			}
		}
		return schedule.RunRunning, ""
	case model.StatusError: // it has been begun, and waits for its retry
		return schedule.RunRunning, t.ErrorInfo
	default:
		return schedule.RunScheduled, t.ErrorInfo
	}
}

// failedStatus tells in which way a failed task's last execution failed.
func failedStatus(t *model.Task) schedule.RunStatus {
	var last *model.WorkerState
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; last == nil || w.FailTime.After(last.FailTime) {
			last = w
		}
	}
	switch {
	case last == nil || last.FailKind != failkind.Timeout:
		return schedule.RunFailed
	case last.Parked:
		return schedule.RunFailedTimeout
	default:
		return schedule.RunTimeout
	}
}

// CallOf returns the last call by the task of a target; nil for none.
func CallOf(t *model.Task) *schedule.HTTPCall {
	if _, typ, _, err := input.ParseTaskID(t.ID); err != nil || typ != httptarget.TaskType {
		return nil
	}
	kept := t.Checkpoint
	var newest time.Time
	for i := range t.WorkerStates { // each of several workers has its own
		if w := &t.WorkerStates[i]; w.Checkpoint.Type != 0 && !w.ClaimedAt.Before(newest) {
			kept, newest = w.Checkpoint, w.ClaimedAt
		}
	}
	var k httptarget.Kept
	if kept.Type == 0 || codec.DecodeValue(kept, &k) != nil {
		return nil
	}
	return k.Call
}

// Failed says whether a run that ended so counts as failed for [schedule.FailurePolicy].
func Failed(s schedule.RunStatus) bool {
	switch s {
	case schedule.RunFailed, schedule.RunTimeout, schedule.RunFailedTimeout, schedule.RunCanceled:
		return true
	default:
		return false
	}
}

// callSize returns about how many bytes the call takes in a document.
func callSize(c *schedule.HTTPCall) int {
	n := 256 + len(c.Request.URL) + len(c.Request.Body) + len(c.Error)
	headers := c.Request.Headers
	if r := c.Response; r != nil {
		n += len(r.Body)
		headers = append(headers[:len(headers):len(headers)], r.Headers...)
	}
	for _, h := range headers {
		n += 8 + len(h)
	}
	return n
}
