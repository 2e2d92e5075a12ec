package consumer

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Event is an event of this consumer, for logs, metrics and tests.
type Event struct {
	// Kind of the event. The list names the fields that each kind sets.
	//
	//	claimed     an execution began; the handler may still wait for a slot
	//	taken_over  as claimed, after the lease of Previous lapsed
	//	started     the worker called the handler: Late
	//	finished    the worker stored the end: Outcome, Status, Reason, Ran
	//	parked      the handler returned; the execution waits for a completion
	//	fenced      the end came too late and was refused: Outcome
	//	lease_lost  the lease could not be extended, or another process ended it, and the
	//	            handler's context was cancelled: Reason
	//	cancelled   the handler's context was cancelled, because of a cancel or a worker filter
	//	lapsed      ended a lapsed execution of Previous and left the task to other workers
	//	outage      the database is unavailable: Reason
	//	restored    the database is available again
	//	stream      the worker now watches, polls or does neither: Reason
	Kind     string        `json:"kind"`
	At       time.Time     `json:"at"` // the store's clock
	WorkerID string        `json:"worker_id"`
	TaskID   string        `json:"task_id,omitempty"`
	Type     string        `json:"type,omitempty"`
	ExecID   string        `json:"exec_id,omitempty"` // as it is stored; do not show it, see [Execution.Handle]
	Attempt  int           `json:"attempt,omitempty"`
	Previous string        `json:"previous,omitempty"` // the worker whose lease lapsed
	Outcome  string        `json:"outcome,omitempty"`  // FailKind of [model.WorkerState]; "" = success
	Status   model.Status  `json:"status,omitempty"`   // of the task afterwards
	Reason   string        `json:"reason,omitempty"`
	Late     time.Duration `json:"-"` // from due to started
	Ran      time.Duration `json:"-"` // from started to returned
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
