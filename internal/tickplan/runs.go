package tickplan

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
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
			if w := &t.WorkerStates[i]; w.Open() && w.Parked {
				return schedule.RunWaiting, ""
			}
		}
		return schedule.RunRunning, ""
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
	case last == nil || last.FailKind != model.FailTimeout:
		return schedule.RunFailed
	case last.Parked:
		return schedule.RunFailedTimeout
	default:
		return schedule.RunTimeout
	}
}

// ExecutedAt returns when the first known execution of this life of the task began; zero for none.
func ExecutedAt(t *model.Task) (at time.Time) {
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if !w.Unstarted && !w.ClaimedAt.Before(t.CreatedAt) && (at.IsZero() || w.ClaimedAt.Before(at)) {
			at = w.ClaimedAt
		}
	}
	return at
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
