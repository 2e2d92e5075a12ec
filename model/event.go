package model

import (
	"time"
)

// EventKind is the kind of a task event.
type EventKind string

// The kinds of events. Each comment names the fields that the kind sets.
const (
	EventSent       EventKind = "sent"       // a new life began: Generation
	EventClaimed    EventKind = "claimed"    // an execution began: WorkerID, ExecID, Attempt
	EventTakenOver  EventKind = "taken_over" // as claimed, after a lease lapsed: also FailKind and Reason of the lapse
	EventProgress   EventKind = "progress"   // a handler reported its progress: Progress
	EventParked     EventKind = "parked"     // the handler returned; the execution waits for a completion
	EventReleased   EventKind = "released"   // a worker released an execution: FailKind; or a held task was released
	EventFailed     EventKind = "failed"     // an execution failed, but the task has not ended: FailKind, Reason
	EventSucceeded  EventKind = "succeeded"  // one of several required workers succeeded, but the task has not ended
	EventCancelling EventKind = "cancelling" // a cancel was requested while it runs: Reason is the remark
	EventChanged    EventKind = "changed"    // another change, such as new options or an earlier retry
	EventEnded      EventKind = "ended"      // the task reached its final status: Status, FailKind, Reason
)

// TaskEvent describes one write to one task. It contains only data of the write itself; to see
// the rest of the task, read it. A write with several effects is one event, with the kind of
// the most important effect: the end of the task comes first, then a new life, then a claim,
// then the lapse that made the claim possible.
//
// A life may have two ended events: Success follows Completed when the callback is delivered, and
// ManuallyProcessed follows Pending. So does Cancelled if the task's flow or plan ends.
type TaskEvent struct {
	Kind   EventKind `json:"kind"`
	TaskID string    `json:"task_id"`
	Tenant string    `json:"tenant,omitempty"` // "" = none
	Type   string    `json:"type"`
	Key    string    `json:"key"`
	At     time.Time `json:"at"`               // the store's clock
	Rev    int64     `json:"rev,omitempty"`    // of the task afterwards; 0 for progress
	Status Status    `json:"status,omitempty"` // of the task afterwards; "" if the write does not contain it

	Generation int64     `json:"generation,omitempty"` // if a life began
	WorkerID   string    `json:"worker_id,omitempty"`
	ExecID     string    `json:"exec_id,omitempty"` // as it is stored; the REST API has a hash of it
	Attempt    int       `json:"attempt,omitempty"`
	FailKind   string    `json:"fail_kind,omitempty"` // how an execution failed in this write, see [WorkerState]
	Reason     string    `json:"reason,omitempty"`    // its reason, or the remark of the command that changed the task
	Progress   *Progress `json:"progress,omitempty"`
	// Token is the position in the stream right after this event. A subscription that resumes
	// there gets all later events.
	Token string `json:"token,omitempty"`
}
