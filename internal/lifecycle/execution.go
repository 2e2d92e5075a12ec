package lifecycle

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// Lapsed says whether the execution is open although its lease has passed.
func Lapsed(w *model.WorkerState, now time.Time) bool {
	return Open(w) && !w.PingExpireTime.After(now)
}

// Open says whether the execution still holds its task.
func Open(w *model.WorkerState) bool { return w.SuccessTime.IsZero() && w.FailTime.IsZero() }

// ExecTime is the duration of the execution that ended last, from its claim to its end (seed 000's
// exec_time); 0 if none has ended. An execution that was released before it did anything does not count.
func ExecTime(t *model.Task) time.Duration {
	var took time.Duration
	var last time.Time
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		ended := clock.Later(w.SuccessTime, w.FailTime)
		if !ended.IsZero() && !w.Unstarted && !ended.Before(last) {
			last, took = ended, max(ended.Sub(w.ClaimedAt), 0)
		}
	}
	return took
}

// Wanted is the number of different workers that must succeed.
func Wanted(t *model.Task) int { return max(t.Options.ConcurrentWorkerCount, 1) }

// ExecutionOf finds the state with that exec id; index -1 when there is none.
func ExecutionOf(t *model.Task, execID string) (int, *model.WorkerState) {
	for i := range t.WorkerStates {
		if t.WorkerStates[i].ExecID == execID {
			return i, &t.WorkerStates[i]
		}
	}
	return -1, nil
}

// OpenExecutions counts the executions that hold the task.
func OpenExecutions(t *model.Task) int {
	n := 0
	for i := range t.WorkerStates {
		if Open(&t.WorkerStates[i]) {
			n++
		}
	}
	return n
}

// Successes counts the workers that succeeded.
func Successes(t *model.Task) int {
	n := 0
	for i := range t.WorkerStates {
		if !t.WorkerStates[i].SuccessTime.IsZero() {
			n++
		}
	}
	return n
}

// Costs says whether an end of this kind counts in error_count. A lapse has a
// counter and a budget of its own, so that lost machines do not eat the retries.
func Costs(k string) bool {
	switch k {
	case failkind.Error, failkind.Fatal, failkind.PlanError, failkind.Panic, failkind.Timeout:
		return true
	default:
		return false
	}
}
