package builtin

import (
	"net/http"
	"strconv"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/httpcall"
)

// caller says who calls, so that a target can recognise a repeated call and refuse a
// late one.
type caller struct {
	workerID    string
	taskID      string
	executionID string
	token       string
	lifeID      string // one for all executions of a life of the task
	attempt     int
}

func callerOf(workerID string, e *consumer.Execution) caller {
	return caller{
		workerID: workerID, taskID: e.TaskID, executionID: e.ID, token: e.Token.String(),
		lifeID: e.TaskID + "@" + strconv.FormatInt(e.Token.Generation, 10), attempt: e.Attempt,
	}
}

// header returns the headers of a request. Every execution of one life of a task has the same
// Idempotency-Key, and the later of two has the greater Mscheduler-Fencing-Token, compared as text.
func (c caller) header() http.Header {
	return http.Header{
		"Mscheduler-Task-Id":       {httpcall.Escape(c.taskID)},
		"Mscheduler-Execution-Id":  {httpcall.Escape(c.executionID)},
		"Mscheduler-Fencing-Token": {c.token},
		"Mscheduler-Worker-Id":     {httpcall.Escape(c.workerID)},
		"Mscheduler-Attempt":       {strconv.Itoa(c.attempt)},
		"Idempotency-Key":          {httpcall.Escape(c.lifeID)},
	}
}

// environ is the same for a program.
func (c caller) environ() []string {
	return []string{
		"MSCHEDULER_TASK_ID=" + c.taskID,
		"MSCHEDULER_EXECUTION_ID=" + c.executionID,
		"MSCHEDULER_FENCING_TOKEN=" + c.token,
		"MSCHEDULER_WORKER_ID=" + c.workerID,
		"MSCHEDULER_ATTEMPT=" + strconv.Itoa(c.attempt),
	}
}
