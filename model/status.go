package model

// Status is the state of a task as a whole. The ten values are those of seed 000
// plus Wait, which a held task (a flow node that is not ready) has.
type Status string

// The statuses of a task. A document may carry a status of a later release; code
// must treat an unknown one as "not mine to touch".
const (
	StatusWait              Status = "Wait"              // held: nobody may claim it until it is released
	StatusNew               Status = "New"               // to be claimed from its start time on
	StatusExecuting         Status = "Executing"         // at least one execution is open
	StatusError             Status = "Error"             // the last execution went wrong; it will be retried
	StatusSuccess           Status = "Success"           // every wanted worker succeeded
	StatusCompleted         Status = "Completed"         // succeeded, and the callback is not delivered yet
	StatusFailure           Status = "Failure"           // the budget is spent, nobody is to look at it
	StatusPending           Status = "Pending"           // the budget is spent, a person must decide
	StatusManuallyProcessed Status = "ManuallyProcessed" // a person resolved it
	StatusCancelled         Status = "Cancelled"         // somebody cancelled it
)

// Ended says whether nothing more will run by itself: whoever awaits the task goes on.
// Pending counts, although a person may still bring it back.
func (s Status) Ended() bool {
	switch s {
	case StatusSuccess, StatusCompleted, StatusFailure, StatusPending, StatusManuallyProcessed, StatusCancelled:
		return true
	default:
		return false
	}
}

// Succeeded says whether the task's work was done by its handlers.
func (s Status) Succeeded() bool { return s == StatusSuccess || s == StatusCompleted }

// FailKind says in which way an execution ended badly. error, fatal, panic and timeout count in
// error_count; a lapse has a counter and a budget of its own, so that lost machines do not eat
// the retries. The others cost nothing.
//
//	error        the handler returned an error
//	fatal        the handler said that a retry is useless
//	panic        the handler panicked
//	timeout      the execution ran past its deadline
//	lapsed       the lease passed without a ping
//	released     given back: shutdown, margin, snooze, worker filter
//	undecodable  the worker does not understand the arguments (yet)
//	cancelled    ended because the task was cancelled
//	cleaned      succeeded, and a send took the success back, see [RestartSucceeded]
type FailKind string
