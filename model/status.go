package model

// Status is the state of a whole task. The ten values are those of seed 000 plus Wait, the
// status of a held task, such as a flow node that is not ready.
type Status string

// The statuses of a task. A document may have a status of a later release; code must not touch
// a task with an unknown status.
const (
	StatusWait              Status = "Wait"              // held: workers do not claim it until it is released
	StatusNew               Status = "New"               // workers may claim it from its start time on
	StatusExecuting         Status = "Executing"         // at least one execution is open
	StatusError             Status = "Error"             // the last execution failed; a retry follows
	StatusSuccess           Status = "Success"           // every required worker succeeded
	StatusCompleted         Status = "Completed"         // succeeded, but the callback is not delivered yet
	StatusFailure           Status = "Failure"           // no retry is left, or none can help
	StatusPending           Status = "Pending"           // as Failure, and a person must decide
	StatusManuallyProcessed Status = "ManuallyProcessed" // a person resolved it
	StatusCancelled         Status = "Cancelled"         // cancelled, or expired before a worker started it
)

// Ended reports whether the task runs no more without a command. Await then returns. Pending
// counts as ended, although a person may still retry the task.
func (s Status) Ended() bool {
	switch s {
	case StatusSuccess, StatusCompleted, StatusFailure, StatusPending, StatusManuallyProcessed, StatusCancelled:
		return true
	default:
		return false
	}
}

// Succeeded reports whether the handlers completed the task's work.
func (s Status) Succeeded() bool { return s == StatusSuccess || s == StatusCompleted }
