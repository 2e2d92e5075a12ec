package consumer

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// EventKind says what happened. The fields that matter to a kind are named beside it.
//
//	claimed     an execution began; the handler may still wait for its slot
//	taken_over  as claimed, over the lapsed lease of Previous
//	started     the handler was called: Late
//	finished    the end was written: Outcome, Status, Reason, Ran
//	parked      the handler returned, a completion from outside is awaited
//	fenced      the end came too late and was refused: Outcome
//	lease_lost  the lease could not be kept, or was taken: Reason; the handler was told
//	cancelled   the handler was told that the task is cancelled, or that it must stop
//	lapsed      found a lapsed lease of Previous and gave the task back
//	outage      the database cannot be reached: Reason
//	restored    the database is back
//	stream      watching, polling, off: Reason
type EventKind string

// Event is something that happened in this consumer, for logs, metrics and tests.
type Event struct {
	Kind     EventKind      `json:"kind"`
	At       time.Time      `json:"at"` // the store's clock
	WorkerID string         `json:"worker_id"`
	TaskID   string         `json:"task_id,omitempty"`
	Type     string         `json:"type,omitempty"`
	ExecID   string         `json:"exec_id,omitempty"`
	Attempt  int            `json:"attempt,omitempty"`
	Previous string         `json:"previous,omitempty"` // the worker whose lease lapsed
	Outcome  model.FailKind `json:"outcome,omitempty"`  // "" = success
	Status   model.Status   `json:"status,omitempty"`   // of the task afterwards
	Reason   string         `json:"reason,omitempty"`
	Late     time.Duration  `json:"-"` // from due to started
	Ran      time.Duration  `json:"-"` // from started to returned
}

// heard says whether anybody listens. Events of single executions are not even made
// otherwise.
func (c *Consumer) heard() bool { return c.cfg.OnEvent != nil || c.tap.Load() != nil }

func (c *Consumer) emit(e Event) {
	tap := c.tap.Load()
	if c.cfg.OnEvent == nil && tap == nil {
		return
	}
	e.At, e.WorkerID = c.store.Clock.Now(), c.cfg.WorkerID
	if tap != nil {
		(*tap)(e)
	}
	if c.cfg.OnEvent != nil {
		c.cfg.OnEvent(e)
	}
}

func (c *Consumer) emitFor(x *execution, e Event) {
	if !c.heard() {
		return
	}
	e.TaskID, e.Type, e.ExecID, e.Attempt = x.task.ID, x.task.Type, x.execID, x.attempt
	c.emit(e)
}
