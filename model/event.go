package model

import (
	"time"
)

// EventKind says what happened to a task.
type EventKind string

// The kinds of events. The fields that matter to a kind are named beside it.
const (
	EventSent       EventKind = "sent"       // a life began, the first or a new one: Generation
	EventClaimed    EventKind = "claimed"    // an execution began: WorkerID, ExecID, Attempt
	EventTakenOver  EventKind = "taken_over" // as claimed, over a lapsed lease, whose end FailKind and Reason tell
	EventProgress   EventKind = "progress"   // a handler said how far it is: Progress
	EventParked     EventKind = "parked"     // the handler returned, a completion from outside is awaited
	EventReleased   EventKind = "released"   // an execution was given back without cost: FailKind; or a held task was let go
	EventFailed     EventKind = "failed"     // an execution ended badly, and the task goes on: FailKind, Reason
	EventSucceeded  EventKind = "succeeded"  // one of several wanted workers succeeded, and the task goes on
	EventCancelling EventKind = "cancelling" // its end was asked for while it runs: Reason is the remark
	EventChanged    EventKind = "changed"    // anything else that was decided, such as new options or an earlier retry
	EventEnded      EventKind = "ended"      // the task has a last status: Status, FailKind, Reason
)

// TaskEvent is one write to one task, as far as the write itself tells: what else there is
// to know of the task, whoever needs it reads. A write that does several things is one
// event: the end before everything, a new life before all but the end, a claim before the
// lapse that made it possible.
//
// A life may end twice: Completed is followed by Success when the callback is delivered,
// Pending by ManuallyProcessed.
type TaskEvent struct {
	Kind   EventKind `json:"kind"`
	TaskID string    `json:"task_id"`
	Tenant string    `json:"tenant,omitempty"` // "" = none
	Type   string    `json:"type"`
	Key    string    `json:"key"`
	At     time.Time `json:"at"`               // the store's clock
	Rev    int64     `json:"rev,omitempty"`    // of the task afterwards; 0 for progress
	Status Status    `json:"status,omitempty"` // of the task afterwards; "" where the write does not tell

	Generation int64     `json:"generation,omitempty"` // where a life began
	WorkerID   string    `json:"worker_id,omitempty"`
	ExecID     string    `json:"exec_id,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	FailKind   FailKind  `json:"fail_kind,omitempty"` // how an execution ended badly in this write
	Reason     string    `json:"reason,omitempty"`    // its reason, or the remark of who changed the task
	Progress   *Progress `json:"progress,omitempty"`
	// Token is the place in the stream right after this event: a subscription that resumes
	// there gets what came later.
	Token string `json:"token,omitempty"`
}
